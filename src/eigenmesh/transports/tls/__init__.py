"""Mutual TLS: links between sites of different organisations, with journals to resume from."""

from eigenmesh.transports.tls._endpoint import Endpoint
from eigenmesh.transports.tls._keyring import CertificateKeyring
from eigenmesh.transports.tls._manifest_of import manifest_of
from eigenmesh.transports.tls._security import Credentials
from eigenmesh.transports.tls._supervisor import Supervisor
from eigenmesh.transports.tls._transport import TlsTransport, TransportStatus

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
