"""MPI: persistent neighbourhood collectives between ranks."""

from eigenmesh.transports.mpi._transport import MPITransport

__all__ = ["MPITransport"]


def __dir__() -> list[str]:
    return __all__
