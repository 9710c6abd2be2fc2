"""gRPC with mutual TLS: links between sites of different organisations, with journals to resume from."""

from eigenmesh.transports.grpc._board import Run
from eigenmesh.transports.grpc._link import Neighbour, Sent
from eigenmesh.transports.grpc._rounds import LinkStatus, TransportStatus
from eigenmesh.transports.grpc._security import Credentials
from eigenmesh.transports.grpc._transport import GrpcTransport

__all__ = ["Credentials", "GrpcTransport", "LinkStatus", "Neighbour", "Run", "Sent", "TransportStatus"]


def __dir__() -> list[str]:
    return __all__
