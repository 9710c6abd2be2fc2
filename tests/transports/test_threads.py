"""What threads do beside the contract of all transports: errors as they were raised, nothing left running."""

import threading
from contextlib import suppress

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from eigenmesh.errors import AbortedError, DeadlineError, InputError
from eigenmesh.transports import Links, run_threads
from eigenmesh.transports.threads import ThreadHub


def test_a_node_that_raises_ends_all_with_its_own_error():
    told = []

    def work(transport):
        if transport.rank == 1:
            raise ValueError("no such data here")
        try:
            transport.exchange((np.ones(1),), Links((1,), (1,)))
        except AbortedError:
            # Not at their deadline.
            told.append(transport.rank)
            raise

    with pytest.raises(ValueError, match="no such data here"):
        run_threads(4, work, timeout_s=60)
    assert sorted(told) == [0, 2, 3]


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


@pytest.mark.parametrize("fails", [False, True])
def test_blas_takes_its_share_of_the_cores_meanwhile(fails, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 6)

    def blas_threads():
        return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    def work(transport):
        seen.append(blas_threads())
        if fails:
            raise InputError("no")

    with threadpool_limits(4, "blas"):
        for size, share in ((1, 4), (3, 2), (8, 1)):
            seen = []
            with suppress(InputError):
                run_threads(size, work)
            assert seen == [{share}] * size
            assert blas_threads() == {4}
