"""Fits in virtual time: rounds take what links take, nodes at their own pace get to the truth, and ends are named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eigenmesh import graphs
from eigenmesh.data import Shards
from eigenmesh.data.datasets import paper_spectrum, unlike_nodes
from eigenmesh.fitting import NodeData, Request
from eigenmesh.metrics import largest_angle
from eigenmesh.rehearsal.conditions import Conditions, Fault, Host, LinkQuality
from eigenmesh.rehearsal.simulation import ConditionLaws, InVirtualTime, simulate
from eigenmesh.rehearsal.virtual_time import VirtualTime
from eigenmesh.solvers import AT_OWN_PACE, Asynchronous, BlockKrylov, Deadlines

M, D, K, TOL = 6, 10, 2, 1e-5
NAMES = tuple("abcdef")
WEIGHTS = graphs.metropolis(graphs.topologies.erdos_renyi(M, p=0.6, seed=1))
EDGES = tuple((NAMES[min(link)], NAMES[max(link)]) for link in WEIGHTS.graph.edges)
ROUGH = LinkQuality(latency_ms=10, jitter_ms=90, bandwidth_mbit=100, loss=0.05, overhead_ms=0)


def conditions(link=ROUGH, product_ms=5.0, faults=()):
    hosts = {name: Host(product_ms=product_ms * (10 if name == "c" else 1), spread=0.5) for name in NAMES}
    return Conditions(dict.fromkeys(EDGES, link), hosts, faults)


def play(solver, under, seed=0):
    parts = unlike_nodes(paper_spectrum(D, K, 0.7), [200] * M, seed)
    truth = np.linalg.eigh(np.cov(np.vstack(parts), rowvar=False))[1][:, : -K - 1 : -1]
    request = Request(K, solver=solver, tol=TOL, max_rounds=20_000, seed=seed)
    return simulate(request, NodeData(Shards.from_list(parts), WEIGHTS), under, NAMES, truth, seed), truth


def laws_of(link, hosts=None, faults=()):
    hosts = hosts or dict.fromkeys(NAMES, Host(product_ms=0.0))
    return ConditionLaws(Conditions(dict.fromkeys(EDGES, link), hosts, faults), NAMES, VirtualTime(0))


def test_a_round_takes_latency_and_bandwidth():
    network = InVirtualTime(WEIGHTS, laws_of(LinkQuality(20, 0, 8, 0, 0)))
    network.mix(np.zeros((M, 10, 25)))
    # 2,000 bytes at 1 MB/s.
    np.testing.assert_allclose(network.clock, 0.022)
    network.maximum(np.zeros((M, 1)))
    rounds = network.average.rounds
    # A maximum goes up a tree and down: its root is done half-way, the last leaf at the end.
    passed = (network.clock - 0.022) / (0.02 + 8e-6)
    np.testing.assert_allclose([passed[network.average.root], passed.max()], [rounds / 2, rounds])


def test_a_round_waits_for_an_outage_and_a_node_that_is_down():
    first = EDGES[0]
    faults = (Fault("stall", 0.0, *first, 3.0), Fault("crash", 0.0, "f", "", 5.0))
    network = InVirtualTime(WEIGHTS, laws_of(LinkQuality(20, 0, 8, 0, 0), faults=faults))
    network.mix(np.zeros((M, 1)))
    assert network.clock[NAMES.index("f")] == pytest.approx(5.0)
    assert min(network.clock[NAMES.index(name)] for name in first) >= 3.02


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", AT_OWN_PACE)
def test_with_slow_nodes_and_loss_they_get_to_the_truth(name, seed):
    found, truth = play(AT_OWN_PACE[name](tol=TOL), conditions(), seed)
    assert found.result.converged
    angle = largest_angle(np.swapaxes(found.result.node_components, -1, -2), truth)
    assert angle <= found.result.certificate.error_bound <= TOL
    assert found.seconds_to(1e-6) <= found.seconds_to(1e-10) <= found.seconds
    assert found.bytes > 0


@pytest.mark.parametrize("name", AT_OWN_PACE)
def test_called_too_soon_they_go_on(name):
    # Together they take longer than a neighbour may be silent.
    solver = AT_OWN_PACE[name](tol=1e-3, patience_s=2.0)
    assert play(solver, conditions(product_ms=100.0))[0].result.converged


def test_a_seed_decides_everything():
    one, other = (play(Asynchronous(tol=TOL), conditions())[0] for _ in range(2))
    np.testing.assert_array_equal(one.curve, other.curve)
    np.testing.assert_array_equal(one.result.components, other.result.components)
    assert (one.seconds, one.bytes) == (other.seconds, other.bytes)


def outage(for_s):
    return tuple(Fault("stall", 1.0, *edge, for_s) for edge in EDGES if {"a", "b"} & set(edge))


@pytest.mark.parametrize("name", AT_OWN_PACE)
def test_an_outage_of_two_seconds_is_outlived(name):
    assert play(AT_OWN_PACE[name](tol=TOL), conditions(faults=outage(2.0)))[0].result.converged


@pytest.mark.parametrize("name", AT_OWN_PACE)
def test_a_long_outage_ends_with_a_name(name):
    found, _ = play(AT_OWN_PACE[name](tol=TOL), conditions(faults=outage(60.0)))
    assert found.result is None
    assert "has heard nothing from node" in found.why


@pytest.mark.parametrize("solver", [BlockKrylov(), Deadlines(tol=TOL)], ids=lambda solver: solver.name)
def test_a_node_that_is_gone_for_good_is_named(solver):
    found, _ = play(solver, conditions(faults=(Fault("kill", 0.5, "d"),)))
    assert found.result is None
    assert "node 3" in found.why


def test_work_that_is_down_meanwhile_takes_longer():
    hosts = dict.fromkeys(NAMES, Host(product_ms=1000.0))
    laws = laws_of(ROUGH, hosts, (Fault("crash", 0.5, "a", "", 2.0),))
    laws.column_s[0] = 1.0
    assert laws.works(0, 1, 0.0) == pytest.approx(3.0)
    assert laws.works(0, 1, 1.0) == pytest.approx(3.5)
    # The second time it is down comes only because of the first.
    laws = laws_of(ROUGH, hosts, (Fault("crash", 0.5, "a", "", 2.0), Fault("crash", 2.75, "a", "", 3.0)))
    laws.column_s[0] = 1.0
    assert laws.works(0, 1, 0.0) == pytest.approx(6.0)


@pytest.mark.parametrize("name", AT_OWN_PACE)
def test_who_is_gone_in_the_middle_of_its_work_does_not_make_the_run_last_for_ever(name):
    faults = tuple(Fault("kill", 2.0, node) for node in NAMES)
    found, _ = play(AT_OWN_PACE[name](tol=TOL), conditions(product_ms=60_000.0, faults=faults))
    assert "node 0, 1, 2, 3, 4, 5 is gone forever" in found.why
    assert found.seconds < 3.0


def test_speeds_are_spread_as_asked_for():
    laws = laws_of(ROUGH, dict.fromkeys(NAMES, replace(Host(), spread=0.5)))
    laws.column_s[0] = 1.0
    drawn = np.log([laws.works(0, 1, 0.0) for _ in range(400)])
    assert abs(drawn.mean()) < 0.1
    assert abs(drawn.std() - 0.5) < 0.06
