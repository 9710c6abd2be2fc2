"""What a fit will cost, before it is run: every solver with every averaging, under a stated cost model."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from eigenmesh import theory
from eigenmesh.averaging import OVER_LINKS, Average, Polynomial
from eigenmesh.data import Shards, choose
from eigenmesh.errors import DataError
from eigenmesh.fitting._costs import Costs
from eigenmesh.fitting._data import NodeData
from eigenmesh.fitting._fit import fit
from eigenmesh.fitting._prepare import prepare
from eigenmesh.fitting._request import Request, expected_components
from eigenmesh.graphs import Weights, complete, metropolis
from eigenmesh.solvers import BlockKrylov, FastPCA, TrackedSubspace, TreeCovariance
from eigenmesh.solvers._fast_pca import suggested_step
from eigenmesh.solvers._tracked_subspace import FIRST_CONTRACTION

# Products that block Krylov usually takes where nothing is known of the spectrum, and iterations of the others for each
# of them; measured on MNIST, CIFAR-10, HapMap3 and synthetic spectra.
USUAL_PRODUCTS, TRACKED_AN_ITERATION, FEWEST_TRACKED = 10, 2.5, 25
# A certificate is two averages and this many maxima; a check of a one-round solver costs a tenth of its rounds.
CERTIFICATE_MAXIMA, CHECKING = 3, 1.1


@dataclass(frozen=True)
class Forecast:
    """One line of a plan: a solver with an averaging.

    Attributes
    ----------
    rounds, messages, bytes : float
        Over the whole network, set-up and certificate included.
    memory_bytes : float
        At one node, beside its data.
    seconds : float
        Communication and arithmetic, one after the other.
    shows_covariances : bool
        True if covariances are sent as such; such a line is never chosen.
    """

    solver: str
    averaging: str
    rounds: float
    messages: float
    bytes: float
    memory_bytes: float
    seconds: float
    shows_covariances: bool = False


@dataclass(frozen=True)
class Plan:
    """All forecasts, cheapest first, and which of them is taken and why."""

    forecasts: tuple[Forecast, ...]
    best: Forecast
    reason: str
    costs: Costs

    def __repr__(self) -> str:
        best = self.best
        return (
            f"Plan(solver={best.solver!r}, averaging={best.averaging!r}, rounds={best.rounds:.0f}, "
            f"bytes={best.bytes:.3g}, seconds={best.seconds:.2g}, forecasts={len(self.forecasts)})"
        )


@dataclass(frozen=True)
class Rehearsal:
    """What a node learns from its own data alone: products that block Krylov takes, and leading eigenvalues."""

    products: float
    values: np.ndarray | None = None


def plan(request: Request, data: NodeData, rehearse: bool = True) -> Plan:
    """Forecast rounds, bytes, memory and time of every solver with every averaging, and pick one.

    Parameters
    ----------
    rehearse : bool
        Solve the problem on the data of three single nodes first, without any message, to know how many products
        it takes; otherwise the usual number is assumed.
    """
    shards, weights, costs, tol = data.shards, data.weights, request.costs, request.tol
    n_samples, _ = data.count_samples()
    wanted = request.components(n_samples, shards.n_features)
    n_components = expected_components(wanted, shards.n_features)
    known = rehearsal(request, shards, n_components) if rehearse else assumed(shards, n_components)
    work = _Work(shards, weights, n_components, tol, costs, known)
    forecasts = sorted(work.forecasts(), key=lambda line: (line.seconds, line.bytes, line.averaging != "tree"))
    allowed = [line for line in forecasts if not line.shows_covariances]
    fitting = [line for line in allowed if line.memory_bytes <= costs.memory_bytes]
    best = (fitting or sorted(allowed, key=lambda line: line.memory_bytes))[0]
    return Plan(tuple(forecasts), best, _reason(best, costs, bool(fitting)), costs)


def assumed(shards: Shards, n_components: int) -> Rehearsal:
    """The usual number of products: fewer where a few blocks fill the space."""
    block = BlockKrylov().columns(n_components, shards.n_features)
    return Rehearsal(min(USUAL_PRODUCTS, math.ceil(shards.n_features / block) + 1))


def rehearsal(request: Request, shards: Shards, n_components: int) -> Rehearsal:
    """Block Krylov on single nodes: the first, the middle and the last that are held here."""
    products, values = [assumed(shards, n_components).products / 2], None
    alone = replace(request, solver=BlockKrylov(), averaging=None, max_rounds=200, device=None)
    for position in sorted({0, len(shards.blocks) // 2, len(shards.blocks) - 1}):
        k = min(n_components, shards.blocks[position].n_rows - 1)
        if k < 1:
            continue
        own = replace(shards, blocks=(shards.blocks[position],), n_nodes=1, ids=(0,), node_names=None)
        try:
            prepared = prepare(replace(alone, n_components=k), NodeData(own, metropolis(complete(1))))
        except DataError:
            # A node may have nothing to say alone, such as samples that are all equal; the pooled data may be fine.
            continue
        result = fit(prepared).result
        products.append(result.iterations)
        if values is None and k == n_components:
            values = np.append(result.explained_variance, max(result.certificate.next_value, 0.0))
    return Rehearsal(max(products), values)


class _Work:
    """The counts that all forecasts of one problem share."""

    def __init__(
        self, shards: Shards, weights: Weights, n_components: int, tol: float, costs: Costs, known: Rehearsal
    ) -> None:
        self.weights, self.costs, self.k, self.tol, self.known = weights, costs, n_components, tol, known
        self.d, self.item = shards.n_features, shards.dtype.itemsize
        self.block = BlockKrylov().columns(n_components, self.d)
        # Nodes work at the same time, so the largest of them is waited for.
        self.rows = max(block.n_rows for block in shards.blocks)
        self.shards = shards

    def forecasts(self) -> list[Forecast]:
        lines = []
        for name, make in OVER_LINKS.items():
            average = make().prepare(self.weights)
            lines += [self.block_krylov(name, average), self.tracked(name, average), self.fast_pca(name, average)]
            lines.append(self.tree_covariance(name, average))
        return [line for line in lines if math.isfinite(line.rounds)]

    def block_krylov(self, name: str, average: Average) -> Forecast:
        products = self.known.products
        width = 12 * self.block
        memory = self.held(products) + 2 * self.d * width * self.item
        line = self.averages(BlockKrylov.name, name, average, products, self.d * self.block, memory)
        return self.with_flops(line, products, 4.0 * self.d * width * self.block * products)

    def tracked(self, name: str, average: Average) -> Forecast:
        iterations = max(FEWEST_TRACKED, TRACKED_AN_ITERATION * self.known.products)
        mixes = Polynomial(FIRST_CONTRACTION).prepare(self.weights).rounds
        memory = self.held(iterations) + 6 * self.d * self.block * self.item
        line = self.averages(TrackedSubspace.name, name, average, 0, 0, memory)
        line = self.rounds_of_mixing(line, iterations * mixes * CHECKING, self.d * self.block)
        return self.with_flops(line, iterations, 6.0 * self.d * self.block**2 * iterations)

    def fast_pca(self, name: str, average: Average) -> Forecast:
        values = self.known.values
        if values is None:
            iterations = math.inf
        else:
            step = suggested_step(float(values[0]), self.weights.spectrum.second)
            iterations = theory.predicted_rounds(values, self.k, step, self.weights.spectrum.beta, self.tol**2)
        memory = self.held(FastPCA.traits.expected_products) + 6 * self.d * self.k * self.item
        line = self.averages(FastPCA.name, name, average, 0, 0, memory)
        line = self.rounds_of_mixing(line, iterations * CHECKING, 2 * self.d * self.k)
        return self.with_flops(line, iterations, 6.0 * self.d * self.k**2 * iterations)

    def tree_covariance(self, name: str, average: Average) -> Forecast:
        packed = self.d * (self.d + 1) // 2
        memory = 3.0 * self.d**2 * self.item
        line = self.averages(TreeCovariance.name, name, average, 1, packed, memory)
        line = self.with_flops(line, 0, 2.0 * self.rows * self.d**2 + 9.0 * self.d**3)
        return replace(line, shows_covariances=TreeCovariance.traits.sends_covariances)

    def held(self, products: float) -> float:
        """Bytes at one node for its covariance, in the way that would be chosen."""
        choice = choose(self.shards, self.block, max(1, round(products)))
        return choice.bytes / len(self.shards.blocks)

    def averages(
        self, solver: str, name: str, average: Average, count: float, numbers: float, memory: float
    ) -> Forecast:
        """Set-up, ``count`` averages of so many numbers, and the certificate."""
        maxima = CERTIFICATE_MAXIMA * self.weights.spectrum.diameter
        per_average = _messages(average, self.weights)
        sizes = [(2.0, self.d + 1.0), (count, numbers), (2.0, float(self.d * self.k))]
        bytes_sent = sum(times * per_average * amount * self.item for times, amount in sizes)
        seconds = sum(
            times * _seconds(average.rounds, amount * self.item, self.weights, self.costs) for times, amount in sizes
        )
        return Forecast(
            solver,
            name,
            rounds=(4 + count) * average.rounds + maxima,
            messages=(4 + count) * per_average + maxima * 2 * self.weights.edges,
            bytes=bytes_sent,
            memory_bytes=memory,
            seconds=seconds + maxima * self.costs.latency_s,
        )

    def rounds_of_mixing(self, line: Forecast, rounds: float, numbers: float) -> Forecast:
        messages = rounds * 2 * self.weights.edges
        return replace(
            line,
            rounds=line.rounds + rounds,
            messages=line.messages + messages,
            bytes=line.bytes + messages * numbers * self.item,
            seconds=line.seconds + _seconds(rounds, numbers * self.item, self.weights, self.costs),
        )

    def with_flops(self, line: Forecast, products: float, extra: float) -> Forecast:
        formed = 2.0 * self.rows * self.d**2 + products * 2.0 * self.d**2 * self.block
        direct = products * 4.0 * self.rows * self.d * self.block
        return replace(line, seconds=line.seconds + (min(formed, direct) + extra) / self.costs.flops_s)


def _messages(average: Average, weights: Weights) -> float:
    """Messages of one average: counted where the rounds are known one by one, else all links both ways each round."""
    rounds = (*getattr(average, "up", ()), *getattr(average, "down", ()))
    return float(sum(each.messages for each in rounds) if rounds else 2 * weights.edges * average.rounds)


def _seconds(rounds: float, message_bytes: float, weights: Weights, costs: Costs) -> float:
    """Rounds one after the other; in each a node sends to all its neighbours through its own line."""
    degree = max((degree for _, degree in weights.graph.degree), default=0)
    return rounds * (costs.latency_s + degree * message_bytes / costs.bandwidth_bytes_s)


def _reason(best: Forecast, costs: Costs, fits: bool) -> str:
    method = f"{best.solver} with {best.averaging} averaging"
    if not fits:
        return f"{method} needs the least memory, but still more than the {costs.memory_bytes:.2g} bytes allowed."
    return (
        f"{method} takes the least time at {costs.latency_s * 1e3:g} ms a round and "
        f"{costs.bandwidth_bytes_s * 8 / 1e6:g} Mbit/s: about {best.rounds:.0f} rounds and {best.seconds:.2g} s. "
        "Solvers that send covariances as such are not considered."
    )
