"""One node per thread on a network that changes: the answers and counts of the simulation."""

import numpy as np
import pytest

from eigenmesh import DecentralizedPCA, graphs
from eigenmesh.data.datasets import geometric_spectrum
from eigenmesh.errors import AbortedError, GraphError, InputError
from eigenmesh.graphs import NetworkSequence
from eigenmesh.networks import Changing
from eigenmesh.transports import run_threads
from eigenmesh.transports.threads import ThreadHub
from problems import angles, make_problem

M = 6
ER = graphs.topologies.erdos_renyi(M, seed=1)
NETWORKS = {
    "links up": graphs.changing.links_up(ER, 0.8, seed=1),
    "fresh one way": graphs.changing.fresh_graphs(M, 0.4, seed=1, one_way=True),
    "matchings": graphs.changing.matchings(ER, seed=1),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_call_gives_what_the_simulation_gives(name):
    rng = np.random.default_rng(0)
    X, S, values = rng.standard_normal((M, 5, 2)), rng.standard_normal((M, 5, 2)), rng.standard_normal((M, 3))

    def work(network, part):
        network.piggyback(part(values))
        mixed, pulled = network.mix(part(X), part(S)), network.push_pull(part(X), part(S))
        mean, largest = network.mean(part(X)), network.maximum(part(values))
        carried = network.piggybacked()
        shared = network.shared_mean(part(S))
        after = network.maximum(shared[:, 0])
        return (*mixed, *pulled, mean, largest, carried, shared, after), network.traffic, network.chance

    simulated = work(Changing(NETWORKS[name]), lambda array: array)
    at_nodes = run_threads(
        M, lambda transport: work(Changing(NETWORKS[name], transport=transport), lambda array: array[[transport.rank]])
    )
    for rank, (arrays, *counts) in enumerate(at_nodes):
        assert counts == [*simulated[1:]]
        for ours, theirs in zip(arrays, simulated[0], strict=True):
            assert ours.tobytes() == theirs[[min(rank, len(theirs) - 1)]].tobytes()


def test_a_fit_on_threads_is_that_of_the_simulation():
    problem = make_problem(geometric_spectrum(10, 2, 0.6), M, unlike=True)
    settings = {"topology": NETWORKS["links up"], "solver": "tracked-subspace", "random_state": 0}
    simulated = DecentralizedPCA(2, **settings).fit(problem.parts)
    threads = DecentralizedPCA(2, **settings, transport="threads").fit(problem.parts)
    assert threads.result_.converged
    # Push sums leave last digits that differ from node to node.
    assert threads.traffic_.rounds == pytest.approx(simulated.traffic_.rounds, rel=0.1)
    true = angles(threads.result_.node_components, problem.vectors).max(axis=0)
    assert (threads.certificate_.error_bounds >= true).all()


def test_nodes_that_never_hear_from_each_other_all_end_with_a_name():
    apart = NetworkSequence(M, lambda round_: np.kron(np.eye(2), np.ones((3, 3))) > 0)

    def node(transport):
        Changing(apart, transport=transport).maximum(np.zeros((1, 1)))

    with pytest.raises((GraphError, AbortedError), match=r"node 0 has not heard from node 3, 4, 5 within"):
        run_threads(M, node)


class Fixed(type(ThreadHub(1).transport(0))):
    """A transport whose links cannot change."""

    changes_links = False


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda hub: Changing(NETWORKS["links up"], transport=Fixed(hub, 0)), r"Fixed keeps its links for the whole"),
        (
            lambda hub: Changing(graphs.changing.lossy(ER), transport=hub.transport(0)),
            r"loses no messages: loss, delay and dup",
        ),
        (
            lambda hub: Changing(graphs.changing.fresh_graphs(3), transport=hub.transport(0)),
            r"has 6 nodes, the graph 3",
        ),
    ],
)
def test_what_no_engine_can_do_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make(ThreadHub(M))
