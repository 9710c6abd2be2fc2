"""Factored averages: as many rounds as the diameter, to rounding; found once, and the same at all nodes."""

import networkx as nx
import numpy as np
import pytest

from eigenmesh import DecentralizedPCA, graphs
from eigenmesh.averaging import Factored, Polynomial, Tree
from eigenmesh.averaging import factored as _factored
from eigenmesh.averaging.factored import FactoredAverage
from eigenmesh.networks import Peers, Stacked
from eigenmesh.transports import run_threads

AT_THE_DIAMETER = {
    "random .5": graphs.topologies.erdos_renyi(20, p=0.5, seed=0),
    "random .5, diameter 3": graphs.topologies.erdos_renyi(20, p=0.5, seed=1),
    "random .3": graphs.topologies.erdos_renyi(20, p=0.3, seed=0),
    "4-regular": graphs.topologies.regular(20, degree=4, seed=0),
    "small world": graphs.topologies.small_world(20, seed=0),
    "grid 4 x 5": graphs.topologies.grid(20),
    "binary tree": graphs.topologies.binary_tree(15),
    "star": graphs.topologies.star(20),
    "hypercube": graphs.topologies.hypercube(16),
    "random .2, 40 nodes": graphs.topologies.erdos_renyi(40, p=0.2, seed=0),
}
RANDOM = graphs.metropolis(AT_THE_DIAMETER["random .5"])


@pytest.fixture
def new_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    monkeypatch.setattr(_factored, "_in_memory", {})
    return tmp_path / "eigenmesh"


@pytest.mark.parametrize("graph", AT_THE_DIAMETER.values(), ids=AT_THE_DIAMETER)
def test_an_average_is_exact_after_as_many_rounds_as_the_diameter(graph):
    network = Stacked(graphs.metropolis(graph), Factored())
    array = np.random.default_rng(0).standard_normal((len(graph), 5, 3))
    error = np.abs(network.mean(array) - array.mean(axis=0)).max()
    assert error <= 1e-13
    assert network.average.accuracy <= 1e-13
    assert network.traffic.rounds == network.average.rounds == nx.diameter(graph)


@pytest.mark.parametrize("name", ["random .5", "4-regular", "grid 4 x 5", "random .2, 40 nodes"])
def test_factors_stay_on_the_links_and_are_well_conditioned(name):
    graph = AT_THE_DIAMETER[name]
    average = Factored().prepare(graphs.metropolis(graph))
    assert isinstance(average, FactoredAverage)
    allowed = nx.to_numpy_array(graph) + np.eye(len(graph))
    for factor in average.exchanges:
        assert (factor.matrix[allowed == 0] == 0).all()
        assert np.abs(factor.matrix).sum(axis=1).max() < 10
    # So rounding is not enlarged either.
    array = np.random.default_rng(0).standard_normal((len(graph), 50))
    averaged = Stacked(graphs.metropolis(graph), Factored()).mean(array)
    assert np.abs(averaged - array.mean(axis=0)).max() < 1e-13


def test_a_polynomial_or_a_tree_takes_over_where_it_needs_no_more_rounds():
    cycle = graphs.metropolis(graphs.topologies.cycle(20))
    assert Factored().prepare(cycle).rounds == Polynomial().prepare(cycle).rounds == 10
    star = graphs.metropolis(graphs.topologies.star(20))
    assert Factored().prepare(star).messages == Tree().prepare(star).messages


@pytest.mark.parametrize(
    "graph", [nx.lollipop_graph(6, 5), graphs.topologies.regular(400, degree=4)], ids=["not found", "large"]
)
def test_a_tree_takes_over_where_nothing_is_found(graph, monkeypatch, new_cache):
    monkeypatch.setattr(_factored, "_solve", lambda *of: None)
    weights = graphs.metropolis(graph)
    assert Factored().prepare(weights).rounds == min(kind().prepare(weights).rounds for kind in (Tree, Polynomial))


def test_factors_are_found_once_and_kept(new_cache, monkeypatch):
    first = Factored().found(RANDOM)
    (kept,) = new_cache.iterdir()
    monkeypatch.setattr(_factored, "_solve", lambda *of: pytest.fail("searched again"))
    assert Factored().found(RANDOM) is first
    monkeypatch.setattr(_factored, "_in_memory", {})
    assert (Factored().found(RANDOM) == first).all()
    # That there are none is kept too.
    _factored._store(kept.name, first[:0])
    assert isinstance(Factored().prepare(RANDOM), type(Tree().prepare(RANDOM)))


@pytest.mark.parametrize("damage", ["broken", "other numbers"])
def test_a_damaged_file_is_found_out_and_replaced(damage, new_cache, monkeypatch):
    first = Factored().found(RANDOM)
    (kept,) = new_cache.iterdir()
    if damage == "broken":
        kept.write_bytes(kept.read_bytes()[:100])
    else:
        _factored._store(kept.name, first + 1e-3)
    monkeypatch.setattr(_factored, "_in_memory", {})
    assert (Factored().found(RANDOM) == first).all()
    monkeypatch.setattr(_factored, "_in_memory", {})
    assert (_factored._read(kept.name, _factored._places(RANDOM)) == first).all()


def test_a_folder_that_cannot_be_written_is_no_error(monkeypatch, new_cache):
    new_cache.write_text("a file, not a folder")
    assert Factored().prepare(RANDOM).rounds == 2


def other_factors(rank):
    """What another processor might find: W_1 / s and s W_2 are factors too. Node 3 finds none."""
    found = Factored().found(RANDOM) * [[1 / (1.0 + rank)], [1.0 + rank]]
    return found[:0] if rank == 3 else found


class OwnFactors(Factored):
    """Factors that differ from node to node."""

    def found(self, weights):
        return other_factors(self.rank)

    @classmethod
    def at(cls, rank):
        own = cls()
        object.__setattr__(own, "rank", rank)
        return own


def test_peers_take_the_factors_of_one_node():
    array = np.random.default_rng(0).standard_normal((20, 4, 2))

    def node(transport):
        rank = transport.rank
        network = Peers(RANDOM, transport, OwnFactors.at(rank))
        before = network.traffic.copy()
        averaged = network.mean(array[[rank]])
        return averaged, before.rounds, network.traffic.rounds - before.rounds

    for averaged, handing, rounds in run_threads(20, node):
        assert np.abs(averaged - array.mean(axis=0)).max() < 1e-13
        assert handing == Tree().prepare(RANDOM).rounds / 2
        assert rounds == 2


def test_a_fit_over_threads_gives_the_answer_of_the_simulation_and_hands_out_factors_once():
    X = np.random.default_rng(0).standard_normal((400, 6)) * [9, 7, 5, 1, 1, 1]
    settings = {"n_components": 2, "topology": RANDOM.graph, "averaging": "factored", "random_state": 0}
    simulated = DecentralizedPCA(**settings).fit(X)
    threads = DecentralizedPCA(**settings, transport="threads").fit(X)
    height = Tree().prepare(RANDOM).rounds // 2
    assert threads.traffic_.rounds == simulated.traffic_.rounds + height
    assert np.allclose(np.abs(threads.components_), np.abs(simulated.components_), atol=1e-6)
    assert threads.traffic_.rounds < DecentralizedPCA(**{**settings, "averaging": "tree"}).fit(X).traffic_.rounds
