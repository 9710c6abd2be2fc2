"""What a user asks for in words, as objects: the only place besides the command line where strings become objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import networkx as nx
import numpy as np

from eigenmesh import graphs
from eigenmesh.averaging import AVERAGINGS, Averaging, averaging_by_name
from eigenmesh.data import CovarianceKind
from eigenmesh.errors import InputError, UnknownNameError
from eigenmesh.iteration._run import require_components
from eigenmesh.solvers import SOLVERS, Solver, solver_by_name
from eigenmesh.solvers._base import require_positive
from eigenmesh.transports import Transport

DEFAULT_NODES = 10
LOOSEST_AVERAGE = 1e-8


def solver_or_auto(solver: str | Solver, step_size: float | str) -> Solver | None:
    """The solver that is asked for by name or as an object; None for "auto"."""
    if not isinstance(solver, str):
        return solver
    if solver not in ("auto", *SOLVERS):
        raise UnknownNameError("solver", solver, ["auto", *SOLVERS])
    if step_size != "auto":
        require_positive("step_size", step_size)
    return None if solver == "auto" else solver_by_name(solver, step_size=step_size)


def averaging_or_auto(averaging: str | Averaging) -> Averaging | None:
    """The averaging that is asked for by name or as an object; None for "auto"."""
    if not isinstance(averaging, str):
        return averaging
    if averaging not in ("auto", *AVERAGINGS):
        raise UnknownNameError("averaging", averaging, ["auto", *AVERAGINGS])
    return None if averaging == "auto" else averaging_by_name(averaging)


def is_parts(X: Any) -> bool:
    """True for a list of matrices; a nested list of numbers is one matrix."""
    return isinstance(X, Sequence) and len(X) > 0 and all(getattr(part, "ndim", None) == 2 for part in X)


def seed_of(random_state: Any) -> int:
    """A seed that all nodes share; None is a fixed one."""
    if random_state is None:
        return 0
    if isinstance(random_state, int | np.integer):
        if random_state < 0:
            raise InputError(f"random_state = {random_state} must not be negative.")
        return int(random_state)
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    raise InputError(f"random_state = {random_state!r} must be None, a whole number or a NumPy random generator.")


def covariance_kind(name: str) -> CovarianceKind | None:
    """The way to hold covariances that is asked for; None for "auto"."""
    if name == "auto":
        return None
    kinds = {kind.value: kind for kind in CovarianceKind}
    if name not in kinds:
        raise UnknownNameError("covariance", name, ["auto", *kinds])
    return kinds[name]


def device_of(transport: Transport, device: str | None) -> str | None:
    """Where the arrays of a node lie: the transport says so where it carries arrays of a device."""
    own = getattr(transport, "device", None)
    if own is None and device is not None:
        raise InputError(f"{type(transport).__name__} carries NumPy arrays; leave out device = {device!r}.")
    if own is not None and device is not None and not str(own).startswith(device):
        raise InputError(f"the transport's arrays lie on {own}, not on device = {device!r}; leave it out.")
    return None if own is None else str(own)


def weights_of(topology: Any, weighting: str, n_nodes: int, seed: int) -> graphs.Weights:
    """Weights of a network that is asked for by name, as a graph, as a matrix or as weights."""
    if isinstance(topology, str):
        topology = graphs.topology(topology, n_nodes, seed=seed)
    if isinstance(topology, nx.Graph):
        topology = graphs.weighting(weighting, graphs.from_networkx(topology))
    weights = topology if isinstance(topology, graphs.Weights) else graphs.from_matrix(topology)
    if weights.n_nodes != n_nodes:
        raise InputError(f"the network has {weights.n_nodes} nodes but the data have {n_nodes} parts; make them equal.")
    return weights


def nodes_of(topology: Any, n_nodes: int | None, n_samples: int) -> int:
    """M: what the topology has, what is asked for, or 10, or fewer so that each node has at least two samples."""
    if isinstance(topology, graphs.Weights):
        return topology.n_nodes
    if isinstance(topology, nx.Graph):
        return int(topology.number_of_nodes())
    if not isinstance(topology, str):
        return int(np.shape(topology)[0])
    return n_nodes if n_nodes is not None else max(1, min(DEFAULT_NODES, n_samples // 2))


def components_of(wanted: Any, n_samples: int, n_features: int) -> int | float:
    """K, or the share of the variance to explain; None asks for min(N - 1, d)."""
    if wanted is None:
        return min(n_samples - 1, n_features)
    if isinstance(wanted, float | np.floating):
        if not 0 < wanted < 1:
            raise InputError(
                f"n_components = {wanted!r} must lie strictly between 0 and 1 as a share of the variance, "
                "or be a whole number."
            )
        return float(wanted)
    require_components(wanted, n_features, n_samples)
    return int(wanted)


def require_exact(accuracy: float) -> None:
    """Raise if averages are so loose that not even the number of samples would come out right."""
    if accuracy > LOOSEST_AVERAGE:
        raise InputError(
            f"averages of accuracy {accuracy:.1g} are too loose for exact moments; ask for {LOOSEST_AVERAGE:g} or less."
        )
