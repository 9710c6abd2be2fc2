"""Mutual TLS: links between sites of different organisations, with journals to resume from."""

from eigenmesh.transports.tls.connection import Credentials, Supervisor, manifest_of
from eigenmesh.transports.tls.journal import has_rounds, lock, wipe
from eigenmesh.transports.tls.keyring import CertificateKeyring, is_signed_by, key_fingerprint
from eigenmesh.transports.tls.transport import Endpoint, TlsTransport, TransportStatus

__all__ = [
    "CertificateKeyring",
    "Credentials",
    "Endpoint",
    "Supervisor",
    "TlsTransport",
    "TransportStatus",
    "manifest_of",
]


def __dir__() -> list[str]:
    return __all__
