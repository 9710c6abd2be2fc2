"""Certificates for tests, made on the spot."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from eigenmesh.transports.tls import Credentials

PEM = serialization.Encoding.PEM


class Authority:
    """A private certificate authority."""

    def __init__(self, name: str = "test authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        self._certificate = self._sign(self._name, self._key, timedelta(days=9), x509.BasicConstraints(True, None))

    @property
    def pem(self) -> bytes:
        return self._certificate.public_bytes(PEM)

    def issue(self, name: str, lasts: timedelta = timedelta(days=5)) -> Credentials:
        """Key and certificate of a site; a negative time makes one that has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(_named(name), key, lasts, x509.SubjectAlternativeName([x509.DNSName(name)]))
        private = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return Credentials(private, certificate.public_bytes(PEM), self.pem)

    def _sign(self, subject, key, lasts, extension):
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name)
        builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(days=8)).not_valid_after(now + lasts)
        # Python's own TLS asks for these from 3.13 on.
        identifiers = (
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()),
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
        )
        for identifier in identifiers:
            builder = builder.add_extension(identifier, critical=False)
        is_critical = isinstance(extension, x509.BasicConstraints)
        return builder.add_extension(extension, critical=is_critical).sign(self._key, hashes.SHA256())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
