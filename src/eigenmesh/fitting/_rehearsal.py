"""A fit of a small copy of the problem, to record the network calls that the real one will make."""

from dataclasses import dataclass, field, replace

import numpy as np
from scipy import sparse

from eigenmesh import arrays as ea
from eigenmesh.averaging import Averaging, Integers, Tree
from eigenmesh.data import Covariance, CovarianceKind, Formed, Missing, Moments, Scaling, Shards
from eigenmesh.data._place import HOST
from eigenmesh.errors import DataError
from eigenmesh.events import EventLog, Record, on_record
from eigenmesh.fitting._data import NodeData
from eigenmesh.fitting._fit import fit
from eigenmesh.fitting._network_calls import NetworkCall, RecordingChanging, RecordingNetwork, recording
from eigenmesh.fitting._one_result import SHARED_ROWS
from eigenmesh.fitting._prepare import Prepared, prepare
from eigenmesh.graphs import NetworkSequence, Weights, complete, metropolis
from eigenmesh.iteration import Result
from eigenmesh.networks import Network, Traffic
from eigenmesh.settings import Request
from eigenmesh.solvers import Solver

# Rows of the copy: USUAL_ROWS; more if they are short, up to USUAL_NUMBERS numbers; at most MOST_NUMBERS numbers.
USUAL_ROWS, USUAL_NUMBERS, MOST_NUMBERS = 2000, 2**23, 2**26
# Random rows if there are too few to copy.
FEWEST_ROWS = 500
# Directions of a reduced problem: the larger of a fixed number and a multiple of the columns of a block.
FEWEST_DIRECTIONS, DIRECTIONS_PER_COLUMN, SPARE_COLUMNS = 64, 3, 5
# Products that turn random directions towards the leading ones.
PRODUCTS = 4


@dataclass(frozen=True)
class Rehearsed:
    """Network calls of one solver: iterations, checks and certificates.

    ``closing`` is the number of calls after the last check; they do not count towards the budget of rounds.
    """

    solver: Solver
    calls: list[NetworkCall]
    closing: int
    result: Result


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """A small copy of the problem, solved on a single node.

    Attributes
    ----------
    set_up : list of NetworkCall
        Calls that compute the moments.
    samples : Shards
        The rows of the copy, at their nodes.
    made_up : bool
        True if the copy consists of random numbers, because this process has too few samples.
    """

    prepared: Prepared
    set_up: list[NetworkCall]
    rehearsed: Rehearsed
    samples: Shards
    made_up: bool


@dataclass(frozen=True, eq=False)
class _Recorded(NodeData):
    """Samples on networks that record their calls; ``known`` moments are not computed again."""

    networks: list[RecordingNetwork | RecordingChanging] = field(default_factory=list)
    known: Moments | None = None

    def _network(self, averaging: Averaging) -> Network:
        self.networks.append(recording(self.weights, averaging))
        return self.networks[-1]

    def _moments(self, shards: Shards, network: Network, scale: Scaling, missing: Missing) -> Moments:
        return self.known or super()._moments(shards, network, scale, missing)


def rehearse(
    request: Request, data: NodeData, solver: Solver, averaging: Averaging, most_rows: int | None = None
) -> Rehearsal:
    """Solve a copy of the problem with a few thousand rows of all nodes in this process, as a single node.

    ``most_rows`` limits the rows further.
    """
    shards, wanted = data.shards, request.n_components
    k = wanted if isinstance(wanted, int) else 1
    d, rows = shards.n_features, _rows_to_copy(shards.n_features, k)
    if most_rows is not None:
        rows = min(rows, max(4 * k, most_rows))
    # A fixed seed, so that the same data always have the same plan.
    alone = replace(request, at_most=False, averaging=Tree(), solver=solver, device=None, covariance=None, seed=0)
    if isinstance(averaging, Integers):
        # Integers make other calls than a tree. A single node needs no masks.
        alone = replace(alone, averaging=averaging, privacy="open")
    samples = shards.thinned(rows)
    copy = _Recorded(_pooled(samples), metropolis(complete(1)))
    try:
        if data.transport is None or copy.shards.blocks[0].n_rows > k:
            return _rehearse(alone, copy, samples)
    except DataError:
        # Columns of the copy may be constant or empty although those of the whole are not.
        if data.transport is None:
            return _rehearse_with_all_moments(alone, data, copy, samples)
    random = np.random.default_rng(0).standard_normal((min(rows, max(2 * k, FEWEST_ROWS)), d))
    samples = Shards.from_list([random / np.sqrt(np.arange(1.0, d + 1))])
    return _rehearse(alone, replace(copy, shards=samples, networks=[]), samples, made_up=True)


def _rows_to_copy(n_features: int, k: int) -> int:
    """Number of rows of a copy, if there are that many."""
    return min(max(USUAL_ROWS, 4 * k, USUAL_NUMBERS // n_features), max(4 * k, MOST_NUMBERS // n_features))


def _rehearse(request: Request, copy: _Recorded, samples: Shards, made_up: bool = False) -> Rehearsal:
    prepared = prepare(request, copy)
    network = copy.networks[-1]
    set_up = list(network.calls)
    return Rehearsal(prepared, set_up, _rehearsed(prepared, network), samples, made_up)


def _rehearse_with_all_moments(request: Request, data: NodeData, copy: _Recorded, samples: Shards) -> Rehearsal:
    """Compute the moments of all samples, which raises the errors of a fit, and use the copy for the rest."""
    whole = _Recorded(data.shards, data.weights)
    moments = prepare(replace(request, covariance=CovarianceKind.CHUNKED), whole).moments
    known = replace(moments, n_samples=copy.shards.blocks[0].n_rows)
    rehearsal = _rehearse(request, replace(copy, known=known, networks=[]), samples)
    return replace(rehearsal, set_up=whole.networks[-1].calls)


def _pooled(shards: Shards) -> Shards:
    """The rows of all nodes in this process at one node."""
    rows = [block.read(slice(None)) for block in shards.moved(HOST).blocks]
    return Shards.from_list([sparse.csr_array(sparse.vstack(rows)) if shards.is_sparse else np.concatenate(rows)])


def _rehearsed(prepared: Prepared, network: RecordingNetwork | RecordingChanging) -> Rehearsed:
    """Run a prepared fit, and keep its network calls."""
    before, last_check = len(network.calls), 0

    def note(record: Record) -> None:
        nonlocal last_check
        if np.isnan(record.bound):
            last_check = len(network.calls)

    result = fit(prepared, events=EventLog(on_record(note))).result
    return Rehearsed(prepared.solver, network.calls[before:], len(network.calls) - last_check, result)


class ReducedProblem:
    """The covariances of all nodes in their leading directions: (M, r, r) matrices, on the real network.

    With orthonormal Q of shape (d, r) that holds the leading directions of the copy, node i has ``Q^T C_i Q``. A solver
    takes about as many rounds on these as on the C_i, and far less time.
    """

    def __init__(self, rehearsal: Rehearsal, weights: Weights | NetworkSequence) -> None:
        self.weights, self.prepared = weights, rehearsal.prepared
        Q = _leading_directions(rehearsal.prepared.covariance, rehearsal.rehearsed.result.components)
        matrices = _projected(rehearsal.samples, rehearsal.prepared.moments, Q)
        # If this process has the samples of one node only, the others are assumed to be like it.
        everywhere = np.broadcast_to(matrices, (weights.n_nodes, *matrices.shape[1:]))
        self.covariance = Formed(np.array(everywhere))

    def rehearse(self, solver: Solver, averaging: Averaging) -> Rehearsed:
        """Run the solver itself, within the requested budget of rounds."""
        d, r = self.prepared.facts.n_features, self.covariance.n_features
        stands_for = {r: d, r * (r + 1) // 2: d * (d + 1) // 2, r + SHARED_ROWS: d + SHARED_ROWS}
        network = recording(self.weights, averaging, stands_for)
        network.learn_scales(self.prepared.moments.diagonal)
        prepared = replace(
            self.prepared,
            facts=self.prepared.facts._replace(n_nodes=self.weights.n_nodes, n_features=r, node_names=None),
            solver=solver,
            averaging=averaging,
            network=network,
            covariance=self.covariance,
            set_up=Traffic(),
        )
        return _rehearsed(prepared, network)


def _leading_directions(covariance: Covariance, components: np.ndarray) -> np.ndarray:
    """Orthonormal basis (d, r) of the leading eigenvectors, by a few products from a random start."""
    k, d = components.shape
    r = min(d, max(FEWEST_DIRECTIONS, DIRECTIONS_PER_COLUMN * (k + SPARE_COLUMNS)))
    if r == d:
        return np.eye(d)
    block = np.random.default_rng(0).standard_normal((d, r))
    for _ in range(PRODUCTS):
        basis = covariance.place(np.linalg.qr(block)[0][np.newaxis])
        block = ea.to_numpy(covariance.apply(basis))[0]
    return np.asarray(np.linalg.qr(np.hstack([components.T, block[:, k:]]))[0])


def _projected(samples: Shards, moments: Moments, Q: np.ndarray) -> np.ndarray:
    """``Q^T C_i Q`` of the nodes in this process: (nodes, r, r)."""
    centring = moments.centring(len(samples.blocks))
    matrices = np.zeros((len(samples.blocks), Q.shape[1], Q.shape[1]))
    for matrix, block in zip(matrices, samples.blocks, strict=True):
        for _, ready in centring.chunks(block):
            part = ready @ Q
            matrix += part.T @ part
    return matrices
