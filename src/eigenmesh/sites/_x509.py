"""X.509 certificates of sites: a private certificate authority, one certificate per site, and signing requests."""

import datetime as dt
import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from eigenmesh.errors import InputError
from eigenmesh.sites._names import require_name

AUTHORITY_CERTIFICATE_DAYS = 3650
SITE_CERTIFICATE_DAYS = 825
MIN_RSA_BITS = 2048
# The clocks of sites differ: a new certificate must also be valid where the clock is slow.
CLOCK_SLACK = dt.timedelta(hours=1)

PEM = serialization.Encoding.PEM
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey


class CertificateAndKey(NamedTuple):
    """An X.509 certificate and its private key, as PEM."""

    certificate: bytes
    key: bytes


class CertificateRequest(NamedTuple):
    """A certificate signing request and its private key, as PEM."""

    request: bytes
    key: bytes


@dataclass(frozen=True)
class CertificateAuthority:
    """A private certificate authority: elliptic curve P-256, SHA-256."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_and_key(self) -> CertificateAndKey:
        """Both as PEM."""
        return CertificateAndKey(self.certificate.public_bytes(PEM), _key_pem(self.key))

    def issue(self, name: str, days: int = SITE_CERTIFICATE_DAYS) -> CertificateAndKey:
        """A new certificate for a site, with a new key."""
        require_name(name)
        key = ec.generate_private_key(ec.SECP256R1())
        return CertificateAndKey(self._certificate(name, key.public_key(), days), _key_pem(key))

    def sign(self, request: bytes, name: str, days: int = SITE_CERTIFICATE_DAYS) -> bytes:
        """The certificate (PEM) for a signing request (PEM), which must name only that site.

        Only the key is taken from the request. The authority decides what the certificate allows.
        """
        require_name(name)
        return self._certificate(name, _requested_key(request, name), days)

    def renew(self, certificate: bytes, days: int = SITE_CERTIFICATE_DAYS) -> tuple[str, bytes]:
        """The site's name, and a new certificate (PEM) with the name and key of an old one of this authority (PEM)."""
        old = load_certificate(certificate)
        try:
            old.verify_directly_issued_by(self.certificate)
        except (ValueError, TypeError, InvalidSignature) as error:
            raise InputError(
                "the certificate was not issued by this authority; have a request signed instead."
            ) from error
        (name,) = alternative_names(old)
        return name, self._certificate(name, _require_accepted(old.public_key(), name), days)

    def revocation_list(self, serials: Iterable[int], number: int) -> bytes:
        """A list of revoked certificates (PEM, RFC 5280), to be put next to ``ca.pem`` at all sites."""
        now = _now()
        builder = x509.CertificateRevocationListBuilder().issuer_name(self.certificate.subject).last_update(now)
        builder = builder.next_update(self.certificate.not_valid_after_utc)
        builder = builder.add_extension(x509.CRLNumber(number), critical=False)
        for serial in sorted(set(serials)):
            revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
            builder = builder.add_revoked_certificate(revoked)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(PEM)

    def _certificate(self, name: str, key: PublicKey, days: int) -> bytes:
        last = self.certificate.not_valid_after_utc
        if days < 1 or _now() + dt.timedelta(days=days) > last:
            bounds = f"give at least 1, and an end before {last:%Y-%m-%d}, when the authority's own expires."
            raise InputError(f"a certificate for {days} days cannot be made; {bounds}")
        permitted = permitted_names(self.certificate)
        if permitted and name not in permitted:
            sites = ", ".join(permitted)
            raise InputError(f"this authority is only for {sites}, not for {name}; make another for a larger network.")
        builder = _builder(name, self.certificate.subject, key, days)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        builder = builder.add_extension(_key_usage(signs=True), critical=True)
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(both), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        return builder.add_extension(issuer, critical=False).sign(self.key, hashes.SHA256()).public_bytes(PEM)


def make_certificate_authority(
    name: str = "eigenmesh", days: int = AUTHORITY_CERTIFICATE_DAYS, sites: Sequence[str] = ()
) -> CertificateAuthority:
    """A new private authority. It can certify sites (only these, if any are given), but no other authorities."""
    key, name = ec.generate_private_key(ec.SECP256R1()), f"{name} authority"[:64]
    builder = _builder(name, _subject(name), key.public_key(), days)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage(certifies=True), critical=True)
    if sites:
        everywhere = [x509.IPAddress(ipaddress.ip_network(network)) for network in ("0.0.0.0/0", "::/0")]
        constraints = x509.NameConstraints([x509.DNSName(site) for site in sites], everywhere)
        builder = builder.add_extension(constraints, critical=True)
    return CertificateAuthority(builder.sign(key, hashes.SHA256()), key)


def load_certificate_authority(certificate: bytes, key: bytes) -> CertificateAuthority:
    """An authority from its certificate and key, as PEM."""
    try:
        loaded, private = x509.load_pem_x509_certificate(certificate), serialization.load_pem_private_key(key, None)
    except (ValueError, TypeError) as error:
        raise InputError(f"the authority's certificate or key cannot be read: {error}; give PEM files.") from error
    if not isinstance(private, ec.EllipticCurvePrivateKey) or loaded.public_key() != private.public_key():
        raise InputError("the authority's certificate and key do not match; give the two files of one authority.")
    return CertificateAuthority(loaded, private)


def make_certificate_request(name: str) -> CertificateRequest:
    """A new key and a signing request for it, for a site whose certificate is signed elsewhere."""
    require_name(name)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(_subject(name))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    return CertificateRequest(builder.sign(key, hashes.SHA256()).public_bytes(PEM), _key_pem(key))


def _requested_key(request: bytes, name: str) -> PublicKey:
    """The public key in a signing request; raise unless the request is valid and names only this site."""
    try:
        parsed = x509.load_pem_x509_csr(request)
        names = alternative_names(parsed)
        valid = parsed.is_signature_valid
    except (ValueError, InvalidSignature) as error:
        raise InputError(f"the request for {name} cannot be read: {error}; give a PEM file.") from error
    if not valid:
        raise InputError(f"the request for {name} is not signed with its own key; ask the site for a new one.")
    if names != (name,):
        named = ", ".join(names) or "no site"
        raise InputError(f"the request names {named}, not {name} only; ask the site for one with DNS:{name}.")
    return _require_accepted(parsed.public_key(), name)


def _require_accepted(key: object, name: str) -> PublicKey:
    if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in ("secp256r1", "secp384r1"):
        return key
    if isinstance(key, rsa.RSAPublicKey) and key.key_size >= MIN_RSA_BITS:
        return key
    accepted = f"use an elliptic curve (P-256, P-384) or RSA of at least {MIN_RSA_BITS} bits."
    raise InputError(f"the site {name} has a key that is not accepted; {accepted}")


def load_certificate(content: bytes) -> x509.Certificate:
    """The first certificate of a PEM file."""
    try:
        return x509.load_pem_x509_certificate(content)
    except ValueError as error:
        raise InputError(f"this is not a certificate ({error}); give a PEM file.") from error


def permitted_names(authority: x509.Certificate) -> tuple[str, ...]:
    """Sites that an authority may certify; empty if it is not constrained."""
    try:
        permitted = authority.extensions.get_extension_for_class(x509.NameConstraints).value.permitted_subtrees
    except x509.ExtensionNotFound:
        return ()
    return tuple(name.value for name in permitted or () if isinstance(name, x509.DNSName))


def alternative_names(source: x509.CertificateSigningRequest | x509.Certificate) -> tuple[str, ...]:
    """All subject alternative names; a name that is not a DNS name is shown with its kind."""
    try:
        names = source.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(name.value if isinstance(name, x509.DNSName) else repr(name) for name in names)


def _builder(name: str, issuer: x509.Name, key: PublicKey, days: int) -> x509.CertificateBuilder:
    begin, end = _now() - CLOCK_SLACK, _now() + dt.timedelta(days=days)
    builder = x509.CertificateBuilder().subject_name(_subject(name)).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(begin).not_valid_after(end)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _key_usage(signs: bool = False, certifies: bool = False) -> x509.KeyUsage:
    encipherment = ("key_encipherment", "data_encipherment", "key_agreement", "encipher_only", "decipher_only")
    unused = dict.fromkeys(("content_commitment", *encipherment), False)
    return x509.KeyUsage(digital_signature=signs, key_cert_sign=certifies, crl_sign=certifies, **unused)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC).replace(microsecond=0)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
