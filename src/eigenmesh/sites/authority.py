"""The folder of a network's certificate authority: its key, its log of certificates, and its revocation list."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import logging
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from getpass import getpass
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPublicKeyTypes as IssuerKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from eigenmesh.atomic_write import read_secret, require_private, write_atomically
from eigenmesh.errors import InputError, UnreadableFileError, file_errors
from eigenmesh.sites.fields import Fields
from eigenmesh.sites.site import FINGERPRINTS, FileNames, TlsFiles, fingerprints_table, read_fingerprints, require_name
from eigenmesh.transports.tls import Credentials
from eigenmesh.transports.tls.keyring import is_signed_by, key_fingerprint

# X.509 certificates of sites: a private certificate authority, one certificate per site, and signing requests.


AUTHORITY_CERTIFICATE_DAYS = 3650
SITE_CERTIFICATE_DAYS = 825
MIN_RSA_BITS = 2048
# The clocks of sites differ: a new certificate must also be valid where the clock is slow.
CLOCK_SLACK = dt.timedelta(hours=1)

PEM = serialization.Encoding.PEM
Extension = TypeVar("Extension", bound=x509.ExtensionType)
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

    def issue(self, name: str, days: int | None = None) -> CertificateAndKey:
        """A new certificate for a site, with a new key."""
        require_name(name)
        key = ec.generate_private_key(ec.SECP256R1())
        return CertificateAndKey(self._certificate(name, key.public_key(), days), _key_pem(key))

    def sign(self, request: bytes, name: str, days: int | None = None) -> bytes:
        """The certificate (PEM) for a signing request (PEM), which must name only that site.

        Only the key is taken from the request. The authority decides what the certificate allows.
        """
        require_name(name)
        return self._certificate(name, _requested_key(request, name), days)

    def renew(self, certificate: bytes, days: int | None = None) -> tuple[str, bytes]:
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

    def _certificate(self, name: str, key: PublicKey, days: int | None) -> bytes:
        days = SITE_CERTIFICATE_DAYS if days is None else days
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
    """The public key in a signing request. Raise unless the request is valid and names only this site."""
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
    """Sites that an authority may certify. Empty if it is not constrained."""
    constraints = _extension(authority, x509.NameConstraints)
    permitted = (constraints and constraints.permitted_subtrees) or ()
    return tuple(name.value for name in permitted if isinstance(name, x509.DNSName))


def alternative_names(source: x509.CertificateSigningRequest | x509.Certificate) -> tuple[str, ...]:
    """All subject alternative names. A name that is not a DNS name is shown with its kind."""
    names = _extension(source, x509.SubjectAlternativeName) or ()
    return tuple(name.value if isinstance(name, x509.DNSName) else repr(name) for name in names)


def _extension(source: x509.CertificateSigningRequest | x509.Certificate, kind: type[Extension]) -> Extension | None:
    """The extension of this kind, if there is one."""
    try:
        return source.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


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


class Issued(NamedTuple):
    """One certificate that an authority has issued. ``why`` is the command that made it.

    The serial number is hexadecimal text: it has up to 160 bits, and many JSON readers would round such a number.
    """

    at: str
    why: str
    name: str
    serial: str
    until: str
    sha256: str

    @classmethod
    def of(cls, certificate: bytes, why: str) -> Issued:
        """The entry for a certificate, as PEM."""
        made = load_certificate(certificate)
        (name,) = alternative_names(made)
        now, until = dt.datetime.now(dt.UTC).isoformat(timespec="seconds"), made.not_valid_after_utc.isoformat()
        return cls(now, why, name, f"{made.serial_number:x}", until, made.fingerprint(hashes.SHA256()).hex())

    @property
    def line(self) -> bytes:
        """The line of the issuance log."""
        return json.dumps(self._asdict()).encode() + b"\n"


class AuthorityFolder:
    """An authority with its issuance log and its revocation list."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.authority: CertificateAuthority = load_certificate_authority(
            read_file(path / FileNames.AUTHORITY), read_file(path / FileNames.CA_KEY)
        )

    def record(self, certificate: bytes, why: str) -> None:
        """Append to the issuance log. Call it before the certificate is handed out."""
        with (self.path / FileNames.ISSUED).open("ab") as file:
            file.write(Issued.of(certificate, why).line)

    def issued(self) -> list[Issued]:
        """Everything in the issuance log, oldest first."""
        lines = read_file(self.path / FileNames.ISSUED).splitlines()
        try:
            return [Issued(**json.loads(line)) for line in lines if line.strip()]
        except (ValueError, TypeError) as error:
            raise UnreadableFileError(
                f"{self.path / FileNames.ISSUED} is damaged ({error!r}); restore it from a backup."
            ) from error

    def revoke(self, name: str) -> list[int]:
        """Revoke all certificates that a site has so far, and return the serial numbers that are new on the list.

        A certificate issued later is not revoked.
        """
        issued = self.issued()
        serials = [int(one.serial, 16) for one in issued if one.name == name]
        if not serials:
            names = ", ".join(sorted({one.name for one in issued}))
            raise InputError(f"no certificate was issued to {name!r}; give one of: {names}.")
        path = self.path / FileNames.REVOKED
        before: list[int] = []
        number = 1
        if path.exists():
            known = x509.load_pem_x509_crl(read_file(path))
            before = [one.serial_number for one in known]
            number = known.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number + 1
        made = self.authority.revocation_list([*before, *serials], number)
        write_atomically(path, lambda file: file.write(made))
        return sorted(set(serials) - set(before))


def read_file(path: Path, fix: str = "check the path") -> bytes:
    """The bytes of a file. An error says which one cannot be read."""
    with file_errors(f"{path} cannot be read", fix):
        return path.read_bytes()


# Revoked certificates: a list next to ``ca.pem``, signed by the authority, which a running peer reads again.


logger = logging.getLogger(__name__)

_BLOCK = re.compile(rb"-----BEGIN X509 CRL-----.+?-----END X509 CRL-----", re.DOTALL)


class RevocationList:
    """The certificates that are revoked now. A new list takes effect as soon as its file is there, without a restart.

    ``ca`` is the file of trusted authorities. ``revoked.pem``, in the same folder, may hold one list per authority. A
    list that none of them has signed is an error at the start. Later it is only logged, and the last good list stays in
    force. A certificate that was revoked once stays revoked.
    """

    def __init__(self, ca: Path) -> None:
        self.path, self._ca = ca.with_name(FileNames.REVOKED), ca
        self._seen: tuple[int, int, int] | None = None
        self._revoked: frozenset[tuple[bytes, int]] = frozenset()
        self._revoked = self._read()

    def is_revoked(self, certificate: bytes | x509.Certificate) -> bool:
        """Whether a certificate, or its PEM, is revoked. Reads the file again if it has changed."""
        self._refresh()
        if not isinstance(certificate, x509.Certificate):
            certificate = x509.load_pem_x509_certificate(certificate)
        return (certificate.issuer.public_bytes(), certificate.serial_number) in self._revoked

    def _refresh(self) -> None:
        before = self._seen
        try:
            self._revoked |= self._read()
        except (InputError, UnreadableFileError) as error:
            if self._seen != before:
                logger.warning("%s The list that was read before stays in force.", error)

    def _read(self) -> frozenset[tuple[bytes, int]]:
        """Issuer and serial number of all revoked certificates. Those known before if the file has not changed."""
        with file_errors(f"{self.path} cannot be read", "check its owner"):
            try:
                facts = self.path.stat()
                seen = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
                if seen == self._seen:
                    return self._revoked
                self._seen = seen
                blocks, authorities = _BLOCK.findall(self.path.read_bytes()), self._ca.read_bytes()
            except FileNotFoundError:
                return self._revoked
        try:
            trusted = x509.load_pem_x509_certificates(authorities)
            lists = [x509.load_pem_x509_crl(block) for block in blocks]
        except ValueError as error:
            fix = "get it again from the authority"
            raise InputError(f"{self.path} is not a list of revoked certificates ({error}); {fix}.") from error
        for one in lists:
            issuers = [ca for ca in trusted if ca.subject == one.issuer]
            if not any(one.is_signature_valid(cast(IssuerKey, ca.public_key())) for ca in issuers):
                raise InputError(f"{self.path} is not signed by an authority in {self._ca}; get it from the authority.")
        if not lists:
            raise InputError(f"{self.path} holds no list of revoked certificates; get it again, or remove it.")
        return frozenset((one.issuer.public_bytes(), entry.serial_number) for one in lists for entry in one)


# A site's key and X.509 certificates, checked before the run, so that errors appear here and not at a neighbour.


SEE_TLS = "see [tls] in site.toml"


def load_credentials(tls: TlsFiles, name: str, fingerprints: Mapping[str, str] | None = None) -> Credentials:
    """Read the files and check that they fit together, name this site, are valid now, and that the key is private.

    With fingerprints, the key must be the one that the other sites have pinned.
    """
    certificate, key, authorities = (read_file(path, SEE_TLS) for path in (tls.certificate, tls.key, tls.ca))
    require_private(tls.key)
    chain, trusted = _certificates(tls.certificate, certificate), _certificates(tls.ca, authorities)
    own = chain[0]
    passphrase = _passphrase_of(tls, key)
    try:
        private = serialization.load_pem_private_key(key, passphrase)
    except (ValueError, TypeError) as error:
        if passphrase is not None:
            raise InputError(
                f"the passphrase of {tls.key} is wrong; give the one with which it was encrypted."
            ) from error
        raise InputError(f"{tls.key} is not a private key ({error}); give the key as PEM.") from error
    if private.public_key() != own.public_key():
        raise InputError(f"{tls.key} is not the key of {tls.certificate}; give the two that were made together.")
    if alternative_names(own) != (name,):
        names = ", ".join(alternative_names(own)) or "no site"
        raise InputError(f"{tls.certificate} is for {names}, not for {name} only; give the certificate of this site.")
    _require_valid_now(tls.certificate, own)
    _require_trusted(tls, chain, trusted)
    if RevocationList(tls.ca).is_revoked(own):
        revoked = tls.ca.with_name(FileNames.REVOKED)
        raise InputError(f"{tls.certificate} is revoked by {revoked}; make a new key and have its request signed.")
    if (fingerprints or {}).get(name, known := key_fingerprint(own)) != known:
        fix = "pin the certificate again at all sites: eigenmesh site pin"
        raise InputError(f"{tls.certificate} does not match the fingerprint of {name} in site.toml; {fix}.")
    return Credentials(key, certificate, authorities, passphrase)


# Words in the PEM of a key that is encrypted: PKCS 8, and the older form.
_ENCRYPTED = (b"BEGIN ENCRYPTED PRIVATE KEY", b"Proc-Type: 4,ENCRYPTED")


def _passphrase_of(tls: TlsFiles, key: bytes) -> bytes | None:
    """The passphrase of an encrypted key: from the file that site.toml names, or else as somebody types it."""
    if not any(words in key for words in _ENCRYPTED):
        return None
    if tls.passphrase is not None:
        return read_secret(tls.passphrase).encode()
    if not sys.stdin.isatty():
        fix = "give the file with it as passphrase in [tls], or start the peer in a terminal"
        raise InputError(f"{tls.key} needs a passphrase; {fix}.")
    return _typed(tls.key)


@cache
def _typed(path: Path) -> bytes:
    return getpass(f"passphrase of {path}: ").encode()


def dates(path: Path) -> tuple[dt.datetime, dt.datetime]:
    """The first and the last moment at which all certificates of a file are valid."""
    found = _certificates(path, read_file(path, SEE_TLS))
    return max(one.not_valid_before_utc for one in found), min(one.not_valid_after_utc for one in found)


def _certificates(path: Path, content: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError as error:
        raise InputError(f"{path} holds no certificate ({error}); give certificates as PEM.") from error


def _require_valid_now(path: Path, certificate: x509.Certificate) -> None:
    now, begin, end = dt.datetime.now(dt.UTC), certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < begin:
        raise InputError(f"{path} is valid from {str(begin)[:16]} UTC, but it is {str(now)[:16]} now; check the clock.")
    if now > end:
        raise InputError(f"{path} expired on {end:%Y-%m-%d}, and it is {now:%Y-%m-%d}: renew it, or check the clock.")


def _require_trusted(tls: TlsFiles, chain: list[x509.Certificate], trusted: list[x509.Certificate]) -> None:
    """Each certificate must be signed by the next one, and the last by a trusted authority."""
    current = chain[0]
    for above in chain[1:]:
        if not is_signed_by(current, above):
            break
        current = above
    if not any(is_signed_by(current, authority) for authority in trusted):
        raise InputError(f"{tls.certificate} is not signed by an authority in {tls.ca}; put that certificate there.")


# Fingerprints of keys, written into the files that sites share.


_TABLE = re.compile(rf"\n*^\[{FINGERPRINTS}\][^\n]*\n(?:(?!\[)[^\n]*\n?)*", re.MULTILINE)


def fingerprint_of(path: Path) -> tuple[str, str]:
    """The name of the site in a certificate, and the fingerprint of its key."""
    certificate = load_certificate(read_file(path))
    names = alternative_names(certificate)
    if len(names) != 1:
        raise InputError(f"{path} is for {', '.join(names) or 'no site'}; give the certificate of one site.")
    return names[0], key_fingerprint(certificate)


def pinned(path: Path, sources: Iterable[Path]) -> tuple[str, dict[str, str]]:
    """The text of a site.toml or network.toml with the fingerprints of these sources added, and all fingerprints.

    Parameters
    ----------
    path : Path
        The site.toml or network.toml.
    sources : iterable of Path
        Each is a certificate, or a network.toml that has fingerprints.
    """
    fields, sites = _with_sites(path)
    known = {name: str(value) for name, value in fields.table(FINGERPRINTS).content.items()}
    for source in sources:
        for name, value in _fingerprints_in(source).items():
            if name not in sites:
                raise InputError(f"{source} is for {name}, which is not a site of {path} ({', '.join(sites)}).")
            known[name] = value
    ordered = {name: known[name] for name in sites if name in known}
    rest = _TABLE.sub("\n", path.read_text(encoding="utf-8")).rstrip("\n")
    return f"{rest}\n\n{fingerprints_table(ordered)}", ordered


def _with_sites(path: Path) -> tuple[Fields, tuple[str, ...]]:
    """The fields of a file and all sites: a site.toml has a list of them, a network.toml one table per site."""
    fields = Fields.read(path, "a site.toml or network.toml")
    tables = fields.tables("site")
    return fields, tuple(table.text("name") for table in tables) if tables else fields.texts("sites")


def _fingerprints_in(source: Path) -> dict[str, str]:
    if source.suffix != ".toml":
        return dict([fingerprint_of(source)])
    found = read_fingerprints(*_with_sites(source))
    if not found:
        fix = f"the coordinator adds it with: eigenmesh site pin {source} CERT.pem ..."
        raise InputError(f"{source} has no table [{FINGERPRINTS}]; {fix}")
    return found
