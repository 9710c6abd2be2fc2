"""Nodes that are processes of their own find out whether their data fit together."""

import numpy as np
import pytest

from eigenmesh import graphs
from eigenmesh.data import Shards
from eigenmesh.errors import DataError, InputError
from eigenmesh.fitting import NodeData, Request, prepare
from eigenmesh.transports import run_threads

M = 4


def samples(rows, columns, dtype=np.float64):
    return np.random.default_rng(rows).standard_normal((rows, columns)).astype(dtype)


def count(parts, names=None, topology="path"):
    weights = graphs.metropolis(graphs.topology(topology, M))

    def node(transport):
        rank = transport.rank
        shards = Shards.from_list([parts[rank]], ids=[rank], n_nodes=M)
        if names is not None and names[rank] is not None:
            shards = Shards(shards.blocks, M, (rank,), feature_names=names[rank])
        prepared = prepare(Request(n_components=1, seed=0), NodeData(shards, weights, transport))
        # What must be equal everywhere rides along with the moments: no round beside those of one average.
        assert prepared.network.traffic.rounds == prepared.network.average.rounds
        return prepared.moments.n_samples

    return run_threads(M, node)


@pytest.mark.parametrize("topology", ["path", "star", "cycle", "complete"])
def test_all_nodes_learn_the_number_of_samples(topology):
    assert count([samples(rank + 2, 3) for rank in range(M)], topology=topology) == [14] * M


def test_unequal_columns_are_refused_by_name():
    with pytest.raises(InputError, match=r"node 3 (sent|expected) .* all nodes must send the same"):
        count([samples(4, 5 if rank == 3 else 3) for rank in range(M)])


def test_nodes_may_hold_numbers_of_different_dtypes():
    assert count([samples(4, 3, np.float32 if rank == 1 else np.float64) for rank in range(M)]) == [16] * M


def test_names_in_another_order_are_refused_and_nodes_without_names_have_no_say():
    parts, names = [samples(2, 2)] * M, [("a", "b"), None, ("a", "b"), ("a", "b")]
    assert count(parts, names) == [8] * M
    names[2] = ("b", "a")
    with pytest.raises(DataError, match="names or their order differ"):
        count(parts, names)
