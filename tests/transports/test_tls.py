"""Peers over mutual TLS on loopback: rounds, resuming, links that break, and intruders."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from hashlib import sha256
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest

from eigenmesh import graphs, run
from eigenmesh.data import Shards, build_covariance, pooled_moments
from eigenmesh.data.datasets import geometric_spectrum
from eigenmesh.errors import (
    AbortedError,
    DeadlineError,
    DisagreementError,
    InputError,
    LostNeighbourError,
    ParkedError,
    TransportError,
)
from eigenmesh.networks import Peers, Stacked
from eigenmesh.protocol.effects import Tick
from eigenmesh.protocol.wire import Kind
from eigenmesh.solvers import BlockKrylov
from eigenmesh.transports.tls import CertificateKeyring
from eigenmesh.transports.tls.connection import round_trip_s
from problems import angles, make_problem
from transports.faulty_links import FaultyRun
from transports.proxy import Proxy
from transports.sites import Sites
from waiting import until

GRAPHS = {
    "pair": nx.path_graph(2),
    "ring": nx.cycle_graph(5),
    "star": nx.star_graph(4),
    "path": nx.path_graph(5),
    "random": nx.erdos_renyi_graph(6, 0.5, seed=2),
}


def value(rank, round_, shape=(1, 6, 2)):
    """What a site sends in a round: different everywhere."""
    return np.random.default_rng([rank, round_]).standard_normal(shape)


def rounds(transport, neighbours, count, first=0, pause_s=0.0, shape=(1, 6, 2)):
    """Exchange with all neighbours, and check every number."""
    links = transport.links(neighbours, neighbours)
    for round_ in range(first, first + count):
        received = transport.exchange((value(transport.rank, round_, shape), np.array([round_])), links)
        assert list(received) == list(neighbours)
        for sender, (matrix, number) in received.items():
            assert np.array_equal(matrix, value(sender, round_, shape))
            assert number == round_
        time.sleep(pause_s)


def all_rounds(sites, count, **settings):
    return lambda transport: rounds(transport, sorted(sites.graph.neighbors(transport.rank)), count, **settings)


@pytest.mark.parametrize("name", GRAPHS)
def test_every_neighbour_gets_every_round(name):
    sites = Sites(GRAPHS[name])
    sites.run(all_rounds(sites, 30))


@pytest.mark.slow
def test_messages_of_tens_of_megabytes():
    sites = Sites(nx.path_graph(2))
    sites.run(all_rounds(sites, 3, shape=(1, 1 << 20, 4)))


def test_one_way_rounds_run_ahead_only_as_far_as_the_window():
    sites, sent = Sites(nx.path_graph(2), window_frames=16), []

    def work(transport):
        other = 1 - transport.rank
        links = transport.links([other], []) if transport.rank == 0 else transport.links([], [other])
        for round_ in range(200):
            if transport.rank == 1 and round_ == 0:
                until(lambda: transport_0 and transport_0[0].status().round >= 16, "the first site does not run ahead")
                time.sleep(0.1)
                sent.append(transport_0[0].status().round)
            received = transport.exchange((value(0, round_),), links)
            if transport.rank == 1:
                assert np.array_equal(received[0][0], value(0, round_))

    transport_0 = []

    def kept(transport):
        if transport.rank == 0:
            transport_0.append(transport)
        work(transport)

    sites.run(kept)
    assert sent[0] <= 17


def test_a_solver_gives_the_stacked_answer():
    K = 3
    problem = make_problem(geometric_spectrum(12, K, 0.6), 4, "erdos_renyi", seed=1)
    shards, weights = Shards.from_list(problem.parts), problem.network.weights

    def work(network, held):
        covariance = build_covariance(held, pooled_moments(held, network))
        return run(BlockKrylov(), covariance, network, K, tol=1e-6, seed=5)

    stacked = work(Stacked(weights), shards)
    sites = Sites(weights.graph)
    results = sites.run(lambda transport: work(Peers(weights, transport), shards.take([transport.rank])))
    for rank, result in enumerate(results):
        assert result.stop_reason is stacked.stop_reason
        assert result.traffic == stacked.traffic
        assert angles(result.node_components[0], stacked.node_components[rank].T).max() < 1e-12
        assert (np.sum(result.components * stacked.components, axis=1) > 0).all()


def test_the_audit_has_every_message_and_its_sum():
    sites, audits = Sites(nx.cycle_graph(3)), [[], [], []]

    def work(rank):
        with sites.transport(rank, on_sent=audits[rank].append) as transport:
            all_rounds(sites, 20)(transport)

    assert in_threads(work, 3) == {}
    for rank, audit in enumerate(audits):
        data = [sent for sent in audit if sent.kind == "DATA"]
        assert Counter(sent.neighbour for sent in data) == {f"site{other}": 20 for other in range(3) if other != rank}
        assert sum(sent.bytes for sent in data) == 2 * 20 * (12 * 8 + 8)
        assert {sent.shapes for sent in data} == {((1, 6, 2), (1,))}
        assert not any(sent.again for sent in data)
        kinds = Counter(sent.kind for sent in audit)
        assert kinds["HELLO"] + kinds["WELCOME"] >= 2
        digests = {(sent.round, sent.sha256) for sent in data}
        assert len(digests) == 20
    farewells = [(rank, sent) for rank, audit in enumerate(audits) for sent in audit if sent.kind == "DONE"]
    assert {(sent.bytes, sent.sha256) for _, sent in farewells} == {(0, sha256(b"").hexdigest())}
    # One that was told so by its neighbour need not say it too; each link has a farewell, and nobody says it twice.
    assert len({frozenset((f"site{rank}", sent.neighbour)) for rank, sent in farewells}) == 3
    assert max(Counter((rank, sent.neighbour) for rank, sent in farewells).values()) == 1


def test_nothing_is_left_after_the_end():
    before = {thread.name for thread in threading.enumerate()}
    sites = Sites(nx.cycle_graph(3))
    sites.run(all_rounds(sites, 5), on_sent=lambda sent: None)
    assert {thread.name for thread in threading.enumerate()} <= before
    for port in sites.ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))


def test_a_round_trip_is_known_as_soon_as_a_link_is_up():
    sites = Sites(nx.path_graph(3))
    known = hasattr(socket, "TCP_INFO")

    def work(transport):
        neighbours = sorted(sites.graph.neighbors(transport.rank))
        rounds(transport, neighbours, 1)
        trips = [link.round_trip_s for link in transport.status().links]
        # Nobody leaves before this one, so all links were up.
        rounds(transport, neighbours, 1, first=1)
        # Between two kernels that are the same one.
        assert [0 < trip < 1 for trip in trips] == [known] * sites.graph.degree(transport.rank)

    sites.run(work)


@pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="this system does not tell")
def test_a_round_trip_is_the_least_that_the_kernel_has_seen():
    def told(microseconds, n_bytes=152):
        content = (bytes(148) + microseconds.to_bytes(4, sys.byteorder))[:n_bytes]
        return round_trip_s(SimpleNamespace(getsockopt=lambda level, name, most: content))

    assert told(123456) == 0.123456
    # None yet; an older kernel; a connection that is closed.
    assert told(2**32 - 1) == told(123456, n_bytes=104) == 0.0
    with socket.socket() as closed:
        pass
    assert round_trip_s(closed) == 0.0


# How a run ends.


def test_a_connection_that_has_ended_has_no_round_trip():
    # asyncio has no socket any more, between the end of a connection and the call that says so.
    assert round_trip_s(None) == 0.0


def test_an_abort_reaches_every_site_with_its_reason():
    sites = Sites(nx.path_graph(4))
    reasons = []

    def work(transport):
        try:
            if transport.rank == 3:
                rounds(transport, [2], 2)
                raise ValueError("the cat sat on the keyboard")
            all_rounds(sites, 50)(transport)
        except AbortedError as error:
            reasons.append(str(error))
            raise

    with pytest.raises(ValueError, match="cat"):
        sites.run(work)
    assert len(reasons) == 3
    assert all("site3 ended the run: ValueError: the cat sat" in reason for reason in reasons)


def test_parking_reaches_every_site():
    sites, parked = Sites(nx.path_graph(3)), []

    def work(transport):
        try:
            all_rounds(sites, 10)(transport)
            if transport.rank == 0:
                threading.Thread(target=transport.park, args=["Ctrl-C"]).start()
            all_rounds(sites, 100_000, first=10)(transport)
        except ParkedError as error:
            parked.append(str(error))

    sites.run(work)
    # Each reason is under the name of the neighbour that it came from.
    assert sorted(parked) == ["site0 parked the run: Ctrl-C"] * 2 + ["site1 says: site0 parked the run: Ctrl-C"]


def give_up(transport, rank):
    """As if a neighbour had been silent for longer than anybody waits."""
    with transport.endpoint.lock:
        transport.endpoint.machine.epoch.links[f"site{rank}"].heard -= 1000.0


def test_a_silent_neighbour_is_lost_and_named():
    sites, has_all = Sites(nx.path_graph(2)), threading.Event()

    def work(rank):
        transport = sites.transport(rank)
        rounds(transport, [1 - rank], 3)
        if rank == 1:
            # With what it has still to send lost, the other one would wait out its whole patience.
            assert has_all.wait(300.0)
            sites.crash(transport)
            return
        has_all.set()
        with transport:
            until(lambda: transport.status().links[0].refusal, "site1 is still there")
            give_up(transport, 1)
            rounds(transport, [1], 1, first=3)

    (error,) = in_threads(work, 2).values()
    assert isinstance(error, LostNeighbourError)
    assert str(error) == "site0 has heard nothing from site1 for 60 s."
    assert error.neighbours == ("site1",)
    # The address is for the status of this site: the error may be told to all.
    assert "127.0.0.1" not in str(error)


def test_a_site_that_leaves_calls_nobody_again():
    """The end of its streams leads to calls, which would be left behind unfinished."""
    sites = Sites(nx.path_graph(2))
    left, called = threading.Event(), []

    async def no_call(neighbour, after_s):
        """Nobody is there."""

    def work(rank):
        transport = sites.transport(rank)
        rounds(transport, [1 - rank], 3)
        if rank == 0:
            streams = transport.endpoint._streams
            streams._dial = lambda *words: called.append(words) or no_call(*words)
            streams.stop()
            left.set()
        else:
            assert left.wait(60)
            sites.crash(transport)

    assert in_threads(work, 2) == {}
    assert called == []


def test_a_neighbour_that_never_joins_is_lost_and_named():
    sites = Sites(nx.path_graph(2), join_s=0.1)
    with (
        sites.transport(0) as transport,
        pytest.raises(LostNeighbourError, match=r"^site0 has waited 0\.1 s for site1 to join\.$") as caught,
    ):
        rounds(transport, [1], 1)
    assert caught.value.neighbours == ("site1",)


def test_patience_with_a_neighbour_begins_when_it_joins():
    sites = Sites(nx.path_graph(2), join_s=1e6)

    def work(rank):
        with sites.transport(rank) as transport:
            if rank == 0:
                # Longer than patience_s, and not as long as join_s.
                give_up(transport, 1)
                transport.endpoint._feed(Tick())
                assert transport.status().links[0].last_heard == 0
                started.set()
            rounds(transport, [1 - rank], 3)
            assert transport.status().links[0].last_heard > 0

    started = threading.Event()

    def later(rank):
        assert rank == 0 or started.wait(300.0)
        work(rank)

    assert in_threads(later, 2) == {}


def test_a_neighbour_that_is_in_another_run_of_the_same_name_has_joined():
    """It answers, so the long wait for a site that has yet to start is over."""
    sites = Sites(nx.path_graph(2), patience_s=0.5)

    def work(rank):
        with sites.transport(rank, run=sites.run_of(run_id=bytes([rank] * 16))) as transport:
            rounds(transport, [1 - rank], 1)

    errors = in_threads(work, 2)
    for rank in range(2):
        assert str(errors[rank]) == f"site{rank} has heard nothing from site{1 - rank} for 0.5 s."


class Clock:
    """The time, with jumps."""

    def __init__(self):
        self.ahead_s = 0.0

    def monotonic(self):
        return time.monotonic() + self.ahead_s


@pytest.mark.slow
def test_a_stop_of_the_whole_process_is_not_blamed_on_the_neighbours(monkeypatch):
    """As after SIGSTOP and SIGCONT: nothing was heard, for nobody listened."""
    clock, sites = Clock(), Sites(nx.path_graph(2), round_s=1e6)
    monkeypatch.setattr("eigenmesh.transports.tls.transport.time", clock)
    met, silent, looked = threading.Event(), threading.Event(), threading.Event()

    def hush():
        silent.set()
        looked.wait(300.0)

    def work(rank):
        with sites.transport(rank) as transport:
            rounds(transport, [1 - rank], 3)
            if rank == 1:
                # What this site has still to send must be there before it falls silent.
                assert met.wait(300.0)
                transport.endpoint._streams._loop.call_soon_threadsafe(hush)
                assert looked.wait(300.0)
            else:
                met.set()
                assert silent.wait(300.0)
                link = transport.endpoint.machine.epoch.links["site1"]
                before = link.heard
                clock.ahead_s = 1000.0
                until(lambda: link.heard > before + 500.0 or link.lost, "the clock has not been looked at")
                looked.set()
            rounds(transport, [1 - rank], 3, first=3)

    assert in_threads(work, 2) == {}


def test_an_audit_that_fails_ends_the_run():
    sites = Sites(nx.path_graph(2))

    def full(sent):
        raise OSError(28, "No space left on device")

    def work(rank):
        with sites.transport(rank, on_sent=full if rank else None) as transport:
            all_rounds(sites, 1000, pause_s=0.005)(transport)

    errors = in_threads(work, 2)
    assert sorted(errors) == [0, 1]
    for error in errors.values():
        assert isinstance(error, ParkedError)
        assert "site1 parked the run: the audit cannot be written: " in str(error)


def test_a_neighbour_that_hashes_wrongly_is_found_out():
    """By then its frames would be in the journal, where nothing could mend them after a crash."""
    sites = Sites(nx.path_graph(2))

    def work(rank):
        with sites.transport(rank) as transport:
            outbox = transport.endpoint.machine.outbox
            message = outbox.message

            def spoilt(kind, *args):
                sound = message(kind, *args)
                if kind is not Kind.DATA:
                    return sound
                return sound._replace(frame=sound.frame[:56] + bytes(8) + sound.frame[64:])

            if rank:
                outbox.message = spoilt
            all_rounds(sites, 10)(transport)

    errors = in_threads(work, 2)
    assert "site1 sent a hash in round 0 that does not match the numbers, 3 times over" in str(errors[0])


def test_a_mistake_in_the_machine_ends_the_run_and_not_only_a_stream(caplog):
    sites = Sites(nx.path_graph(2), patience_s=1.0)

    def hear(*frame):
        raise KeyError("a mistake")

    def work(rank):
        with sites.transport(rank) as transport:
            rounds(transport, [1 - rank], 3)
            if rank == 0:
                transport.endpoint.machine.peering._hear = hear
            rounds(transport, [1 - rank], 1000, first=3)

    errors = in_threads(work, 2)
    assert isinstance(errors[0], KeyError)
    assert isinstance(errors[1], TransportError)
    assert "the protocol of site0 has ended the run: KeyError: 'a mistake'" in caplog.text


def tick_dies(endpoint):
    feed = endpoint._streams._feed

    def fed(event):
        if isinstance(event, Tick):
            raise KeyError("a mistake")
        feed(event)

    endpoint._streams._feed = fed


def journal_dies(endpoint):
    def store(batch):
        raise KeyError("a mistake")

    endpoint._journal._store = store


def callback_dies(endpoint):
    def call():
        raise KeyError("a mistake")

    endpoint._streams.call(call)


DEATHS = {
    tick_dies: "the task tick has ended the run: KeyError: 'a mistake'",
    journal_dies: "the thread eigenmesh-journal has ended the run: KeyError: 'a mistake'",
    callback_dies: "a callback of the communication thread has ended the run: KeyError: 'a mistake'",
}


@pytest.mark.parametrize("death", DEATHS)
def test_a_task_or_thread_that_dies_ends_the_run_at_all_sites_with_its_reason(tmp_path, caplog, death):
    sites = Sites(nx.path_graph(2), patience_s=3.0)

    def work(rank):
        with sites.transport(rank, journal=tmp_path / f"{rank}") as transport:
            rounds(transport, [1 - rank], 3)
            if rank == 0:
                death(transport.endpoint)
            rounds(transport, [1 - rank], 10**9, first=3)

    errors = in_threads(work, 2)
    assert isinstance(errors[0], KeyError)
    assert isinstance(errors[1], AbortedError)
    assert "site0 ended the run: KeyError; ask its operator." in str(errors[1])
    assert DEATHS[death] in caplog.text


def test_an_error_of_the_system_in_a_callback_is_about_a_connection_and_ends_no_run(caplog):
    """A handshake that was given up may still be reset later; the loop then has nobody else to tell."""
    sites = Sites(nx.path_graph(2))

    def given_up():
        future = asyncio.get_running_loop().create_future()
        future.set_exception(ConnectionResetError("reset"))

    def work(transport):
        rounds(transport, [1 - transport.rank], 3)
        transport.endpoint._streams.call(given_up)
        rounds(transport, [1 - transport.rank], 20, first=3)

    sites.run(work)
    assert caplog.text.count("Future exception was never retrieved: reset") == 2


@pytest.mark.parametrize("seed", range(6))
def test_the_driver_outlives_connections_that_close_or_stall_at_any_byte(monkeypatch, seed):
    if seed % 2:
        # As where uvloop is not installed.
        monkeypatch.setattr("eigenmesh.transports.tls.connection.new_loop", asyncio.new_event_loop)
    FaultyRun(seed, 25, parks=seed > 3).play()


@pytest.mark.slow
def test_a_missing_extra_is_named():
    code = "import sys; sys.modules['cryptography'] = None; import eigenmesh.transports.tls"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert "pip install 'eigenmesh[peers]'" in ended.stderr


@pytest.mark.slow
def test_importing_eigenmesh_does_not_import_what_peers_need():
    code = "import sys, eigenmesh; raise SystemExit('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=300).returncode == 0


@pytest.mark.slow
def test_a_neighbour_that_lives_but_does_not_answer_meets_the_deadline():
    sites, late = Sites(nx.path_graph(2), round_s=1.5), threading.Event()

    def work(rank):
        with sites.transport(rank) as transport:
            if rank == 1:
                assert late.wait(300.0)
                return
            try:
                rounds(transport, [1], 1)
            finally:
                late.set()

    errors = in_threads(work, 2)
    assert isinstance(errors[0], DeadlineError)
    assert "site0 waited 1.5 s for site1" in str(errors[0])


def test_a_neighbour_that_finishes_early_is_named():
    sites = Sites(nx.path_graph(2))
    with pytest.raises(TransportError, match="site1 has finished, but its round 3"):
        sites.run(lambda transport: rounds(transport, [1 - transport.rank], 5 if transport.rank == 0 else 3))


def test_shapes_that_differ_are_named():
    sites = Sites(nx.path_graph(2))

    def work(transport):
        links = transport.links([1 - transport.rank], [1 - transport.rank])
        transport.exchange((np.ones((1, 3 + transport.rank)),), links)

    with pytest.raises(InputError, match=r"sent shapes \(\(1, [34]\),\)"):
        sites.run(work)


def test_a_matrix_with_nan_is_not_sent():
    sites = Sites(nx.path_graph(2))

    def work(transport):
        links = transport.links([1 - transport.rank], [1 - transport.rank])
        transport.exchange((np.full((1, 12, 2), np.nan if transport.rank else 1.0),), links)

    with pytest.raises(TransportError, match="not finite"):
        sites.run(work)


# Agreement.


def test_manifests_that_differ_end_both_sites_before_any_number_flows():
    sites, errors, audit, problems = Sites(nx.path_graph(2)), {}, [], []

    def compare(ours, theirs):
        return [f"seed: {ours} here, {theirs} there"]

    def work(rank):
        run_ = sites.run_of(manifest=f"seed {rank}", compare=compare)
        with sites.transport(rank, run=run_, on_sent=audit.append) as transport:
            try:
                rounds(transport, [1 - rank], 1)
            except DisagreementError as error:
                errors[rank] = error
                problems.append(transport.status().links[0].refusal)

    assert in_threads(work, 2) == {}
    # What is said of the link is no manifest.
    assert not any("seed" in problem for problem in problems), problems
    assert str(errors[0]) == "site0 and site1 are set up for different runs: seed: seed 0 here, seed 1 there."
    assert (errors[1].neighbour, errors[1].manifest) == ("site0", "seed 0")
    assert "DATA" not in {sent.kind for sent in audit}


def test_a_port_that_is_taken_is_told():
    sites = Sites(nx.path_graph(2))
    with sites.transport(1, join_s=1.0), pytest.raises(InputError, match="cannot listen"):
        sites.transport(1)


# Links that break.

FAULTS = {
    "cut": lambda proxy: proxy.cut(),
    "truncated": lambda proxy: proxy.truncate_after(1000),
    "doubled": lambda proxy: proxy.spoil("double"),
    "dropped": lambda proxy: proxy.spoil("drop"),
    "garbled": lambda proxy: proxy.spoil("garble"),
}


def proxied(sites, proxy_of, edge=(0, 1)):
    proxy = proxy_of("127.0.0.1", sites.ports[edge[1]])
    sites.via[edge] = proxy.address
    return proxy


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_link_that_breaks_loses_no_round(fault):
    sites = Sites(nx.cycle_graph(3))
    with proxied(sites, Proxy) as proxy:

        def work(transport):
            neighbours = sorted(sites.graph.neighbors(transport.rank))
            for first in range(0, 200, 50):
                rounds(transport, neighbours, 50, first=first)
                if transport.rank == 0 and first < 150:
                    # The rounds have gone over the link, so it is up; those that follow meet the fault.
                    FAULTS[fault](proxy)

        sites.run(work)
        assert proxy.connections >= 4


@pytest.mark.slow
def test_a_link_may_be_down_for_longer_than_a_round():
    sites = Sites(nx.path_graph(3))
    with proxied(sites, Proxy) as proxy:

        def work(transport):
            all_rounds(sites, 20)(transport)
            if transport.rank == 0:
                proxy.cut(restore=False)
                attempts = proxy.connections
                threading.Thread(target=restore_after, args=(attempts + 3,)).start()
            all_rounds(sites, 20, first=20)(transport)

        def restore_after(attempts):
            until(lambda: proxy.connections >= attempts, "nobody dials again")
            proxy.restore()

        sites.run(work)


# Restarts.


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_sites_that_are_dropped_resume_from_their_journals(tmp_path, seed):
    """Sites vanish without a word at random rounds and are started anew; nobody sees another number."""
    graph = [nx.cycle_graph(4), nx.path_graph(3), nx.star_graph(3)][seed % 3]
    sites, generator = Sites(graph), np.random.default_rng(seed)
    total = int(generator.integers(20, 200))
    stops = [sorted(generator.integers(1, total + 1, generator.integers(0, 4)).tolist()) for _ in graph]

    def work(rank):
        neighbours = sorted(graph.neighbors(rank))
        for stop in stops[rank]:
            transport = sites.transport(rank, journal=tmp_path / f"{rank}")
            rounds(transport, neighbours, stop)
            sites.crash(transport)
            time.sleep(0.3 * (stop % 2))
        with sites.transport(rank, journal=tmp_path / f"{rank}") as transport:
            rounds(transport, neighbours, total)

    assert in_threads(work, len(graph)) == {}


def in_threads(work, count):
    errors = {}

    def guarded(rank):
        try:
            work(rank)
        except BaseException as error:
            errors[rank] = error

    threads = [threading.Thread(target=guarded, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300.0)
    assert not any(thread.is_alive() for thread in threads)
    return errors


def test_a_site_resumes_even_when_all_others_have_finished(tmp_path):
    sites = Sites(nx.path_graph(2))

    def work(rank):
        with sites.transport(rank, journal=tmp_path / f"{rank}") as transport:
            rounds(transport, [1 - rank], 20)

    assert in_threads(work, 2) == {}

    def alone(rank):
        # It waits for nobody, or it would never end.
        with sites.transport(0, journal=tmp_path / "0", join_s=1e6, round_s=1e6) as transport:
            assert transport.status().replaying
            rounds(transport, [1], 20)

    assert in_threads(alone, 1) == {}


@pytest.mark.slow
def test_a_site_whose_journal_is_gone_is_told_that_it_cannot_resume(tmp_path):
    sites = Sites(nx.path_graph(2))
    outcome, transports = {}, {}

    def work(rank):
        if rank == 0:
            transport = sites.transport(0, journal=tmp_path / "0")
            rounds(transport, [1], 20)
            sites.crash(transport)
            (tmp_path / "0").unlink()
        with sites.transport(rank, journal=tmp_path / f"{rank}") as transports[rank]:
            try:
                rounds(transports[rank], [1 - rank], 40)
            except TransportError as error:
                outcome[rank] = error
        if rank == 0:
            give_up(transports[1], 0)

    assert in_threads(work, 2) == {}
    assert "started the run over" in str(outcome[0])
    # The others learn it too.
    assert "site0 cannot resume the run: its journal is gone" in str(outcome[1])


def test_a_full_disk_parks_the_run_everywhere(tmp_path):
    """The journal is swapped for a device that is always full once some rounds are in it."""
    sites = Sites(nx.path_graph(2))

    def work(rank):
        with sites.transport(rank, journal=tmp_path / f"{rank}") as transport:
            rounds(transport, [1 - rank], 20)
            if rank:
                full = os.open("/dev/full", os.O_RDWR)
                os.dup2(full, transport.endpoint._journal._file)
                os.close(full)
            rounds(transport, [1 - rank], 2000)

    errors = in_threads(work, 2)
    assert {type(error) for error in errors.values()} == {ParkedError}
    assert "site1 parked the run: the journal cannot be written: No space left" in str(errors[0])


def test_graph_weights_are_not_needed_by_the_transport():
    weights = graphs.metropolis(graphs.topologies.cycle(3))
    sites = Sites(weights.graph)
    X = np.arange(6.0).reshape(3, 2, 1)
    mixed = sites.run(lambda transport: Peers(weights, transport).mix(X[[transport.rank]]))
    assert np.allclose(np.concatenate(mixed), Stacked(weights).mix(X), atol=1e-14)


@pytest.mark.parametrize("refusing", [0, 1])
def test_that_a_certificate_was_taken_back_before_is_said_of_the_link(refusing):
    """At both ends of it: by who calls, and by who is called."""
    sites, said = Sites(nx.path_graph(2), join_s=1e6), threading.Event()
    theirs = sites.credentials[1 - refusing].certificate

    def work(rank):
        keyring = CertificateKeyring(sites.credentials[rank], lambda pem: rank == refusing and pem == theirs)
        transport = sites.transport(rank, keyring=keyring)
        try:
            if rank == refusing:
                until(lambda: "revoked" in transport.status().links[0].refusal, "nobody was refused")
                said.set()
            else:
                assert said.wait(300.0)
        finally:
            sites.crash(transport)

    assert in_threads(work, 2) == {}


def test_a_neighbour_whose_certificate_is_taken_back_is_cut_off():
    sites, revoked, over = Sites(nx.path_graph(2), join_s=1e6), threading.Event(), threading.Event()
    theirs = sites.credentials[1].certificate

    def first():
        keyring = CertificateKeyring(sites.credentials[0], lambda pem: revoked.is_set() and pem == theirs)
        with sites.transport(0, keyring=keyring) as transport:
            rounds(transport, [1], 3)
            revoked.set()
            until(lambda: "revoked" in transport.status().links[0].refusal, "the link is still up")
            give_up(transport, 1)
            rounds(transport, [1], 1, first=3)

    def second():
        transport = sites.transport(1)
        rounds(transport, [0], 3)
        assert over.wait(300.0)
        sites.crash(transport)

    def work(rank):
        if rank:
            second()
            return
        try:
            first()
        finally:
            over.set()

    errors = in_threads(work, 2)
    assert set(errors) == {0}
    assert isinstance(errors[0], LostNeighbourError)
