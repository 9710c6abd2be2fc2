"""Threads as a transport: the contract that every transport keeps."""

import threading
import time

import numpy as np
import pytest

from eigenmesh import graphs
from eigenmesh.errors import AbortedError, DeadlineError, InputError
from eigenmesh.transports import Links, ThreadHub, run_threads

GRAPHS = {
    "ring": graphs.cycle(5),
    "star": graphs.star(5),
    "path": graphs.path(4),
    "random": graphs.erdos_renyi(6, seed=1),
    "one": graphs.complete(1),
}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("shape", [(1,), (1, 7, 3), (1, 1000, 100)], ids=str)
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
def test_neighbours_get_what_was_sent(name, shape, dtype):
    graph = GRAPHS[name]

    def work(transport):
        neighbours = sorted(graph.neighbors(transport.rank))
        seen = []
        for turn in range(3):
            first = np.full(shape, 10 * transport.rank + turn, dtype=dtype)
            second = np.arange(4, dtype=np.float64) + transport.rank
            seen.append(transport.exchange((first, second), Links(tuple(neighbours), tuple(neighbours))))
            first[...] = 99  # what was sent must not change any more
        return neighbours, seen

    for neighbours, seen in run_threads(graph.number_of_nodes(), work):
        for turn, received in enumerate(seen):
            assert sorted(received) == neighbours
            for sender, (first, second) in received.items():
                assert first.dtype == dtype
                assert (first == 10 * sender + turn).all()
                assert (second == np.arange(4) + sender).all()


def test_large_messages_both_ways_do_not_block():
    big = np.ones((1, 1_000_000))

    def work(transport):
        (received,) = transport.exchange((big,), Links((1 - transport.rank,), (1 - transport.rank,))).values()
        return received[0].sum()

    assert run_threads(2, work) == [1e6, 1e6]


def test_a_slow_node_is_waited_for():
    def work(transport):
        if transport.rank == 2:
            time.sleep(0.3)
        others = [rank for rank in range(3) if rank != transport.rank]
        return sum(
            arrays[0][0] for arrays in transport.exchange((np.ones(1),), Links(tuple(others), tuple(others))).values()
        )

    assert run_threads(3, work) == [2.0, 2.0, 2.0]


def test_a_node_that_raises_ends_all_with_its_own_error():
    began = time.monotonic()

    def work(transport):
        if transport.rank == 1:
            raise ValueError("no such data here")
        transport.exchange((np.ones(1),), Links((1,), (1,)))

    with pytest.raises(ValueError, match="no such data here"):
        run_threads(4, work, timeout_s=30)
    assert time.monotonic() - began < 10


def test_the_others_are_told_who_failed_and_why():
    hub = ThreadHub(2)
    hub.transport(1).abort("disk full")
    with pytest.raises(AbortedError, match="node 1 ended the run: disk full"):
        hub.transport(0).exchange((np.ones(1),), Links((1,), (1,)))


def test_a_node_that_never_comes_is_named():
    hub = ThreadHub(3, timeout_s=0.2)
    with pytest.raises(DeadlineError, match=r"node 0 waited 0\.2 s for node 2"):
        hub.transport(0).exchange((np.ones(1),), Links((2,), (2,)))


def test_unlike_messages_are_refused():
    def work(transport):
        other = [1 - transport.rank]
        transport.exchange((np.ones(3 + transport.rank),), Links(tuple(other), tuple(other)))

    with pytest.raises(InputError, match=r"sent .*\(4,\).* expected .*\(3,\)|sent .*\(3,\).* expected .*\(4,\)"):
        run_threads(2, work)


def test_nothing_is_left_running():
    before = threading.active_count()
    run_threads(6, lambda transport: transport.rank)
    assert threading.active_count() == before


@pytest.mark.parametrize(("size", "timeout_s"), [(0, 1), (2, 0), (2, -1)])
def test_bad_settings(size, timeout_s):
    with pytest.raises(InputError):
        ThreadHub(size, timeout_s)
    with pytest.raises(InputError, match="rank = 5"):
        ThreadHub(2).transport(5)
