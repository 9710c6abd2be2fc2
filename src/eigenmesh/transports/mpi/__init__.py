"""MPI: persistent neighbourhood collectives between ranks."""

from eigenmesh.transports.mpi._transport import MPITransport

__all__ = ["MPITransport"]
