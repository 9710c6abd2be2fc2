"""Signatures with the keys of the sites' X.509 certificates, so that no neighbour can pose as another site."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
from collections.abc import Callable, Mapping
from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes

from eigenmesh.errors import InputError
from eigenmesh.transports.tls.connection import Credentials

HASH = hashes.SHA256()


class CertificateKeyring:
    """Signs with this site's key, and checks the certificates and signatures of others against the authority.

    Parameters
    ----------
    credentials : of this site.
    revoked : tells whether the authority has revoked a certificate (PEM).
    fingerprints : a site in it must have the key with this SHA-256, so that not even the authority can impersonate it.
    """

    def __init__(
        self,
        credentials: Credentials,
        revoked: Callable[[bytes], bool] = lambda pem: False,
        fingerprints: Mapping[str, str] | None = None,
    ) -> None:
        self._revoked, self._fingerprints = revoked, dict(fingerprints or {})
        key = serialization.load_pem_private_key(credentials.key, credentials.passphrase)
        if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
            raise InputError(f"a key of kind {type(key).__name__} cannot sign; use an elliptic curve or RSA.")
        self._key = key
        self.public_key = base64.b64encode(_der(key.public_key())).decode()
        self.certificate = credentials.certificate.decode()
        self._trusted = x509.load_pem_x509_certificates(credentials.authority)
        # Cached, because the same few certificates come with every statement.
        self._public_key = lru_cache(maxsize=1024)(self._public_key_of)

    def sign(self, data: bytes) -> str:
        if isinstance(self._key, rsa.RSAPrivateKey):
            signature = self._key.sign(data, padding.PKCS1v15(), HASH)
        else:
            signature = self._key.sign(data, ec.ECDSA(HASH))
        return base64.b64encode(signature).decode()

    def is_revoked(self, certificate: str) -> bool:
        return self._revoked(certificate.encode())

    def is_signed(self, site: str, certificate: str, data: bytes, signature: str) -> bool:
        key = self._public_key(site, certificate)
        return key is not None and not self.is_revoked(certificate) and _has_signed(key, data, signature)

    def _public_key_of(self, site: str, text: str) -> object:
        """The public key of a certificate that the authority has issued to this site only, or None for any other."""
        try:
            chain = x509.load_pem_x509_certificates(text.encode())
            own, now = chain[0], dt.datetime.now(dt.UTC)
            names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            if names.get_values_for_type(x509.DNSName) != [site]:
                return None
            if not own.not_valid_before_utc <= now <= own.not_valid_after_utc:
                return None
            if self._fingerprints.get(site, known := key_fingerprint(own)) != known:
                return None
            last = own
            for above in chain[1:]:
                last.verify_directly_issued_by(above)
                last = above
            return own.public_key() if any(is_signed_by(last, authority) for authority in self._trusted) else None
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm, x509.ExtensionNotFound):
            return None


def _has_signed(key: object, data: bytes, signature: str) -> bool:
    try:
        signed = base64.b64decode(signature, validate=True)
        if isinstance(key, rsa.RSAPublicKey):
            key.verify(signed, data, padding.PKCS1v15(), HASH)
        elif isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signed, data, ec.ECDSA(HASH))
        else:
            return False
    except (InvalidSignature, ValueError):
        return False
    return True


def is_signed_by_pinned(fingerprint: str, public_key: str, data: bytes, signature: str) -> bool:
    """Whether the key with this fingerprint has signed the data. It needs no certificate, and no date.

    Parameters
    ----------
    fingerprint : SHA-256 of the key, in hexadecimal.
    public_key : the key as ``CertificateKeyring.public_key`` gives it.
    data, signature : what is signed, and what ``CertificateKeyring.sign`` made of it.
    """
    try:
        der = base64.b64decode(public_key, validate=True)
        is_pinned = hashlib.sha256(der).hexdigest() == fingerprint
        return is_pinned and _has_signed(serialization.load_der_public_key(der), data, signature)
    except (ValueError, UnsupportedAlgorithm):
        return False


def fingerprint_of_public_key(public_key: str) -> str:
    """SHA-256 of a key as ``CertificateKeyring.public_key`` gives it, in hexadecimal; empty if it cannot be read."""
    try:
        return hashlib.sha256(base64.b64decode(public_key, validate=True)).hexdigest()
    except ValueError:
        return ""


def key_fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256 of the public key (SubjectPublicKeyInfo), in hexadecimal. A renewed certificate keeps it."""
    return hashlib.sha256(_der(certificate.public_key())).hexdigest()


def _der(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def is_signed_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    """Whether the issuer's key has signed a certificate that names the issuer."""
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
