"""Nodes that are processes of their own find out whether their data fit together."""

import numpy as np
import pytest

from eigenmesh import graphs
from eigenmesh.averaging import Tree
from eigenmesh.data import Shards
from eigenmesh.errors import DataError
from eigenmesh.fitting._data import match_nodes
from eigenmesh.networks import Peers
from eigenmesh.transports import run_threads

M = 4


def count(parts, names=None, topology="path"):
    weights = graphs.metropolis(graphs.topology(topology, M))

    def node(transport):
        rank = transport.rank
        shards = Shards.from_list([parts[rank]], ids=[rank], n_nodes=M)
        if names is not None and names[rank] is not None:
            shards = Shards(shards.blocks, M, (rank,), feature_names=names[rank])
        network = Peers(weights, transport, Tree())
        n_samples, _ = match_nodes(shards, network)
        # What must be equal everywhere rides along: no round beside those of the average.
        assert network.traffic.rounds == network.average.rounds
        return n_samples

    return run_threads(M, node)


@pytest.mark.parametrize("topology", ["path", "star", "cycle", "complete"])
def test_all_nodes_learn_the_number_of_samples(topology):
    assert count([np.ones((rank + 1, 3)) for rank in range(M)], topology=topology) == [10] * M


def test_unequal_columns_are_refused_with_both_numbers():
    with pytest.raises(DataError, match="unequal numbers of columns, from 3 to 5"):
        count([np.ones((2, 5 if rank == 3 else 3)) for rank in range(M)])


def test_mixed_precision_is_refused():
    with pytest.raises(DataError, match="some nodes hold float32"):
        count([np.ones((2, 3), dtype=np.float32 if rank == 1 else np.float64) for rank in range(M)])


def test_names_in_another_order_are_refused_and_nodes_without_names_have_no_say():
    parts, names = [np.ones((2, 2))] * M, [("a", "b"), None, ("a", "b"), ("a", "b")]
    assert count(parts, names) == [8] * M
    names[2] = ("b", "a")
    with pytest.raises(DataError, match="names or their order differ"):
        count(parts, names)
