"""gRPC with mutual TLS: links between sites of different organisations, with journals to resume from."""

from eigenmesh.transports.grpc._endpoint import Endpoint
from eigenmesh.transports.grpc._keyring import CertificateKeyring
from eigenmesh.transports.grpc._manifest_of import manifest_of
from eigenmesh.transports.grpc._security import Credentials
from eigenmesh.transports.grpc._transport import GrpcTransport, TransportStatus

__all__ = ["CertificateKeyring", "Credentials", "Endpoint", "GrpcTransport", "TransportStatus", "manifest_of"]


def __dir__() -> list[str]:
    return __all__
