"""Trees whose messages are sent again until they arrive: how long an average takes."""

import numpy as np
import pytest

from eigenmesh import graphs
from eigenmesh.averaging import Tree
from eigenmesh.graphs import NetworkSequence
from eigenmesh.graphs.changing import tree_rounds


@pytest.mark.parametrize("name", ["cycle", "star", "grid", "random_out", "directed_cycle"])
def test_where_every_message_arrives_it_is_the_usual_tree(name):
    graph = graphs.topology(name, 12)
    usual = Tree().prepare(graphs.weighting("auto", graph)).rounds
    assert tree_rounds(graphs.changing.over_time(graph)) == usual


def test_a_wait_is_as_long_as_chance_makes_it():
    # Two nodes: the first success of a coin, there and back. Three in a star: the later of two coins.
    assert tree_rounds(graphs.changing.lossy(graphs.topologies.path(2), 0.75)) == pytest.approx(2 * 4)
    assert tree_rounds(graphs.changing.lossy(graphs.topologies.star(3), 0.5)) == pytest.approx(2 * (2 + 2 - 4 / 3))
    up = tree_rounds(graphs.changing.links_up(graphs.topologies.path(2), 0.5, seed=1))
    assert up == pytest.approx(2 * 2, rel=0.3)


def test_parts_that_are_never_linked_have_no_tree():
    assert tree_rounds(NetworkSequence(4, lambda round_: np.kron(np.eye(2), np.ones((2, 2))) > 0)) == np.inf
