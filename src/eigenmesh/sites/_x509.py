"""Keys and certificates of sites: a private authority, a certificate a site, requests for sites with their own."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from eigenmesh.errors import InputError
from eigenmesh.sites._names import require_name

AUTHORITY_DAYS = 3650
SITE_DAYS = 825
SMALLEST_RSA_BITS = 2048
# Clocks of different sites differ; a certificate made just now must hold where it is a little earlier.
CLOCK_SLACK = dt.timedelta(hours=1)

PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey


@dataclass(frozen=True)
class Credentials:
    """A certificate and its private key, PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True)
class Request:
    """A certificate request and its private key, PEM."""

    request: bytes
    key: bytes


@dataclass(frozen=True)
class Authority:
    """A private certificate authority: elliptic curve P-256, SHA-256."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def credentials(self) -> Credentials:
        """Certificate and key, PEM."""
        return Credentials(_pem(self.certificate), _key_pem(self.key))

    def issue(self, name: str, days: int = SITE_DAYS) -> Credentials:
        """A new key and a certificate for a site."""
        require_name(name)
        key = ec.generate_private_key(ec.SECP256R1())
        return Credentials(_pem(self._certify(name, key.public_key(), days)), _key_pem(key))

    def sign(self, request: bytes, name: str, days: int = SITE_DAYS) -> bytes:
        """The certificate (PEM) that a site asks for in its request (PEM); the request must name that site alone.

        Nothing but the key is taken from the request: what the certificate allows is decided here.
        """
        require_name(name)
        return _pem(self._certify(name, _asked_for(request, name), days))

    def _certify(self, name: str, key: PublicKey, days: int) -> x509.Certificate:
        begin = _now()
        end = begin + dt.timedelta(days=days)
        last = self.certificate.not_valid_after_utc
        if days < 1 or end > last:
            raise InputError(
                f"a certificate for {days} days cannot be made: at least 1, and not beyond {last:%Y-%m-%d}, when the "
                "authority's own ends; change the number of days."
            )
        builder = _builder(name, self.certificate.subject, key, begin - CLOCK_SLACK, end)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        builder = builder.add_extension(_usage(signs=True), critical=True)
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(both), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        return builder.add_extension(issuer, critical=False).sign(self.key, hashes.SHA256())


def make_authority(name: str = "eigenmesh", days: int = AUTHORITY_DAYS) -> Authority:
    """A new private authority, which can certify sites and no further authorities."""
    key = ec.generate_private_key(ec.SECP256R1())
    begin = _now()
    subject = _subject(f"{name} authority"[:64])
    builder = _builder(
        f"{name} authority"[:64], subject, key.public_key(), begin - CLOCK_SLACK, begin + dt.timedelta(days=days)
    )
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(certifies=True), critical=True)
    return Authority(builder.sign(key, hashes.SHA256()), key)


def load_authority(certificate: bytes, key: bytes) -> Authority:
    """An authority from its certificate and key, PEM."""
    try:
        loaded, private = x509.load_pem_x509_certificate(certificate), serialization.load_pem_private_key(key, None)
    except (ValueError, TypeError) as error:
        raise InputError(f"the authority's certificate or key cannot be read: {error}") from error
    if not isinstance(private, ec.EllipticCurvePrivateKey) or loaded.public_key() != private.public_key():
        raise InputError(
            "the authority's certificate and key do not belong together; name both files of one authority."
        )
    return Authority(loaded, private)


def make_request(name: str) -> Request:
    """A new key and a request for a certificate on it, for a site whose own authority shall sign."""
    require_name(name)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(_subject(name))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    return Request(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), _key_pem(key))


def _asked_for(request: bytes, name: str) -> PublicKey:
    """The key that a request asks a certificate for; raise unless it is sound and names this site alone."""
    try:
        asked = x509.load_pem_x509_csr(request)
        names = alternative_names(asked)
        sound = asked.is_signature_valid
    except (ValueError, InvalidSignature) as error:
        raise InputError(f"the request for {name} cannot be read: {error}") from error
    if not sound:
        raise InputError(f"the request for {name} is not signed with its own key; ask the site for a new one.")
    if names != (name,):
        raise InputError(
            f"the request names {', '.join(names) or 'nobody'}, not {name} alone; ask the site for one with DNS:{name}."
        )
    key = asked.public_key()
    if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in ("secp256r1", "secp384r1"):
        return key
    if isinstance(key, rsa.RSAPublicKey) and key.key_size >= SMALLEST_RSA_BITS:
        return key
    raise InputError(
        f"the request for {name} has a key that is not accepted; use an elliptic curve (P-256, P-384) or RSA of at "
        f"least {SMALLEST_RSA_BITS} bits."
    )


def alternative_names(asked: x509.CertificateSigningRequest | x509.Certificate) -> tuple[str, ...]:
    """All alternative names; those that are no DNS names are written out with their kind."""
    try:
        names = asked.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(name.value if isinstance(name, x509.DNSName) else repr(name) for name in names)


def _builder(
    name: str, issuer: x509.Name, key: PublicKey, begin: dt.datetime, end: dt.datetime
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(_subject(name)).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(begin).not_valid_after(end)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(signs: bool = False, certifies: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=certifies,
        crl_sign=certifies,
        encipher_only=False,
        decipher_only=False,
    )


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC).replace(microsecond=0)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
