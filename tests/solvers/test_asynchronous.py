"""Nodes that do not wait for each other: sums that are kept, the truth in the end, and named ends."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from eigenmesh import DecentralizedPCA, graphs
from eigenmesh.data import Shards, build_covariance, pooled_moments
from eigenmesh.data.datasets import paper_spectrum, unlike_nodes
from eigenmesh.errors import DeadlineError, InputError
from eigenmesh.fitting import NodeData, Request, fit, prepare
from eigenmesh.metrics import largest_angle
from eigenmesh.networks import Stacked
from eigenmesh.solvers import AT_OWN_PACE, Asynchronous, Deadlines, TrackedSubspace
from eigenmesh.solvers.at_own_pace import PacedNode, StepReports
from eigenmesh.transports import run_threads

M, D, K = 5, 8, 2
PARTS = unlike_nodes(paper_spectrum(D, K, 0.7), [200] * M, 0)
TRUTH = np.linalg.eigh(np.cov(np.vstack(PARTS), rowvar=False))[1][:, : -K - 1 : -1]
WEIGHTS = graphs.metropolis(graphs.topologies.cycle(M))


def nodes_of(weights=WEIGHTS, **settings) -> list[PacedNode]:
    shards = Shards.from_list(PARTS)
    moments = pooled_moments(shards, Stacked(graphs.metropolis(graphs.topologies.cycle(M))))
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((D, K)))[0][np.newaxis]
    settings = {"tol": 1e-6, "patience": 100} | settings
    return [
        PacedNode(
            TrackedSubspace(), weights, rank, build_covariance(shards.take([rank]), moments), basis, 0, **settings
        )
        for rank in range(M)
    ]


def work(nodes: list[PacedNode]) -> None:
    for node in nodes:
        todo = node.begin()
        if todo is not None:
            node.end(todo())


@pytest.mark.parametrize(
    "weights", [WEIGHTS, graphs.push(graphs.topologies.random_out(M, seed=1))], ids=["cycle", "one-way"]
)
def test_sums_are_kept_whatever_is_lost_late_doubled_or_overtaken(weights):
    nodes, random, posted = nodes_of(weights), np.random.default_rng(1), []
    for _ in range(40):
        work(nodes)
        ticking = nodes[random.integers(M)]
        posted += [(ticking.rank, receiver, message) for receiver, message in ticking.tick()]
        for place in random.permutation(len(posted))[:4]:
            sender, receiver, message = posted[place]
            nodes[receiver].receive(sender, message)
    # Every link's last message is enough to bring in all that was ever sent.
    for sender, receiver, message in posted:
        nodes[receiver].receive(sender, message)
    total = sum(node.sums.values for node in nodes)
    np.testing.assert_allclose(total, [*sum(node._inserted for node in nodes).ravel(), M], atol=1e-12)


def test_a_neighbour_that_is_not_heard_gets_nothing_and_is_named_in_the_end():
    node = nodes_of()[0]
    for _ in range(6):
        node.tick()
    kept = node.sums.values[-1]
    for _ in range(90):
        node.tick()
    assert node.sums.values[-1] == kept
    node.require_heard()
    for _ in range(10):
        node.tick()
    with pytest.raises(DeadlineError, match="node 0 has heard nothing from node 1 for 100 ticks; restart that node"):
        node.require_heard()


def test_a_neighbour_whose_ticks_last_longer_is_fed_all_the_same():
    nodes = nodes_of()
    for _ in range(3):
        for neighbour in (1, M - 1):
            nodes[0].receive(neighbour, dict(nodes[neighbour].tick())[0])
        for _ in range(10):
            nodes[0].tick()
    before = nodes[0].sums.values[-1]
    nodes[0].tick()
    assert nodes[0].sums.values[-1] < before


def in_disorder(nodes: list[PacedNode], seed: int, acts: int) -> None:
    """Nodes act in any order, the last one seldom, and a fifth of the messages gets lost."""
    random = np.random.default_rng(seed)
    likely = np.array([1.0] * (M - 1) + [0.1])
    for _ in range(acts):
        node = nodes[random.choice(M, p=likely / likely.sum())]
        for receiver, message in node.tick():
            if random.random() < 0.8:
                nodes[receiver].receive(node.rank, message)
        work([node])
        products = [each.products for each in nodes]
        assert max(products) - min(products) <= 1


@pytest.mark.parametrize(
    "weights", [WEIGHTS, graphs.push(graphs.topologies.random_out(M, seed=1))], ids=["cycle", "one-way"]
)
def test_nodes_are_in_step_without_a_clock_and_who_is_ahead_does_not_disturb_those_behind(weights):
    seen = {}
    for node in (nodes := nodes_of(weights, tol=1e-9)):
        report = node._report

        def noted(node=node, report=report):
            report()
            seen[node.products, node.rank] = node.state

        node._report = noted
    in_disorder(nodes, 2, 6000)
    for product in range(3, 9):
        now, before, first = ([seen[product - back, rank] for rank in range(M)] for back in range(3))
        # The same coefficients at all nodes in the same step, or momentum does not settle.
        assert len({(state.momentum, state.mixing.accuracy) for state in now}) == 1
        assert now[0].momentum > 0
        changes = [state.added - old.added for state, old in zip(now, first, strict=True)]
        allowed = 3 * before[0].mixing.accuracy * np.linalg.norm(changes) / np.sqrt(M)
        mean = np.mean([state.added for state in now], axis=0)
        assert max(np.linalg.norm(state.S / state.y - mean) for state in now) <= allowed


def test_step_reports_are_the_same_by_whatever_route_they_come():
    reports = [StepReports(3, 2) for _ in range(3)]
    for rank, numbers in enumerate(([1.0, -5.0], [3.0, -7.0], [2.0, -6.0])):
        reports[rank].add(4, rank, np.array(numbers))
    reports[1].add(5, 1, np.array([9.0, 9.0]))
    assert reports[0].agreed(4) is None
    for route in ((1, 2), (2, 1, 2, 1)):
        merged = StepReports(3, 2)
        merged.add(2, 0, np.array([8.0, 8.0]))
        merged.merge(reports[0].table)
        for other in route:
            merged.merge(reports[other].table)
        np.testing.assert_array_equal(merged.agreed(4), [3.0, -5.0])
        assert merged.agreed(5) is None


@pytest.mark.parametrize("name", AT_OWN_PACE)
def test_on_threads_they_find_the_components_of_the_pooled_data(name):
    solver = AT_OWN_PACE[name](tick_s=0.002, tol=1e-7)
    pca = DecentralizedPCA(
        K, solver=solver, transport="threads", topology=graphs.topologies.cycle(M), tol=1e-7, max_rounds=200_000
    )
    pca.fit(np.vstack(PARTS), nodes=np.repeat(np.arange(M), 200))
    bound = pca.certificate_.error_bound
    assert pca.result_.converged
    assert largest_angle(np.swapaxes(pca.result_.node_components, -1, -2), TRUTH) <= bound <= 1e-7
    # The answer is one for all.
    np.testing.assert_allclose(pca.result_.node_components - pca.result_.node_components[0], 0, atol=1e-13)
    assert pca.result_.traffic.messages > 0


def test_without_time_they_are_refused_by_name():
    pca = DecentralizedPCA(K, solver=Asynchronous(), n_nodes=M)
    with pytest.raises(InputError, match='Stacked has none; use transport="threads", or eigenmesh simulate'):
        pca.fit(np.vstack(PARTS))


class Stopping:
    """A covariance whose product, after a few, does what it is told."""

    def __init__(self, covariance, products, then):
        self._covariance, self._left, self._then = covariance, products, then

    def apply(self, X):
        self._left -= 1
        if self._left < 0:
            self._then()
        return self._covariance.apply(X)

    def __getattr__(self, name):
        return getattr(self._covariance, name)


def ends_of(solver, then, timeout_s) -> dict[int, str]:
    """Why each node has ended where the products of node 2 stop."""
    data, request = NodeData(Shards.from_list(PARTS), WEIGHTS), Request(K, solver=solver, seed=0, max_rounds=100_000)
    ends = {}

    def node(transport):
        prepared = prepare(request, data.at_node(transport))
        if transport.rank == 2:
            prepared = replace(prepared, covariance=Stopping(prepared.covariance, 20, then))
        try:
            return fit(prepared)
        except Exception as error:
            ends[transport.rank] = str(error)
            raise

    with pytest.raises(Exception, match=r"disk|has worked for"):
        run_threads(M, node, timeout_s)
    return ends


@pytest.mark.parametrize("name", AT_OWN_PACE)
def test_a_node_that_fails_in_the_middle_ends_all_with_its_reason(name):
    def fail():
        raise OSError("the disk is gone")

    ends = ends_of(AT_OWN_PACE[name](tick_s=0.002), fail, 60.0)
    assert len(ends) == M
    assert all("the disk is gone" in end for end in ends.values())


def test_a_product_that_never_ends_ends_the_run_with_the_name_of_the_node():
    over = threading.Event()
    try:
        ends = ends_of(Asynchronous(tick_s=0.002), over.wait, 1.0)
    finally:
        over.set()
    assert len(ends) == M
    assert all("node 2 has worked for 1 s on one product" in end for end in ends.values())


@pytest.mark.parametrize("transport", [None, "threads"])
def test_on_a_network_that_changes_they_are_refused_with_what_to_use(transport):
    network = graphs.changing.links_up(graphs.topologies.cycle(M), 0.8)
    pca = DecentralizedPCA(K, solver=Asynchronous(), topology=network, transport=transport)
    with pytest.raises(InputError, match=r"need links that stay the same.*use the solver tracked-subspace"):
        pca.fit(np.vstack(PARTS))


@pytest.mark.parametrize("settings", [{"tick_s": 0}, {"tick_s": -1}, {"tol": 0}, {"patience_s": 0.01}])
def test_wrong_settings_are_named(settings):
    with pytest.raises(InputError, match=next(iter(settings))):
        Deadlines(**settings)
