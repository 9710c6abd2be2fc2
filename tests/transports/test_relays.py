"""Sites that meet at a relay: honest, lying, stalled and besieged relays, and callers that have no business there."""

import asyncio
import logging
import socket
import ssl
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from typing import ClassVar

import networkx as nx
import numpy as np
import pytest

pytest.importorskip("cryptography")

from eigenmesh.errors import LostNeighbourError
from eigenmesh.sites import relay as relays
from eigenmesh.sites.relay import Meeting, Relay
from eigenmesh.transports.tls import HttpProxy, dialling
from eigenmesh.transports.tls import connection as connections
from eigenmesh.transports.tls.connection import MessageReader, new_loop, prefixed
from eigenmesh.transports.tls.keyring import key_fingerprint
from http_proxies import TINYPROXY, FalseProxy, Tinyproxy
from transports.authority import Authority
from transports.faulty_links import FaultyRun
from transports.relays import LyingRelay, RelayThread, relay_file
from transports.sites import Sites, connected
from transports.test_tls import all_rounds, in_threads, rounds
from waiting import until

LOOPS = {"uvloop or asyncio": new_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture
def two():
    return Sites(nx.path_graph(2))


@contextmanager
def logged(name="eigenmesh.sites.relay"):
    """The lines that a relay logs; the list grows."""
    found, handler, logger = [], logging.Handler(), logging.getLogger(name)
    handler.emit = lambda record: found.append(record.getMessage())
    level, logger.level = logger.level, logging.INFO
    logger.addHandler(handler)
    try:
        yield found
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@pytest.mark.parametrize("at_sites", LOOPS)
@pytest.mark.parametrize("at_relay", LOOPS)
def test_sites_that_only_call_out_exchange_over_a_relay(tmp_path, monkeypatch, at_sites, at_relay):
    monkeypatch.setattr("eigenmesh.transports.tls.connection.new_loop", LOOPS[at_sites])
    sites = Sites(nx.cycle_graph(4))
    with RelayThread(relay_file(sites, tmp_path), loop=LOOPS[at_relay]) as relay:
        sites.relay = relay.address
        sites.run(all_rounds(sites, 30))
        until(lambda: not +relay.relay.held, lambda: f"{relay.relay.held} are still held")
        assert relay.relay.joined >= 4
        assert not relay.relay._waiting
        numbers = {gauge.name: sum(number for _, number in gauge.values) for gauge in relay.relay.gauges()}
        assert numbers["relay_joined"] == relay.relay.joined
        assert numbers["relay_passed_bytes"] > 30 * 8
        assert (numbers["relay_connections"], numbers["relay_pairs"], numbers["relay_refused"]) == (0, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("at_relay", LOOPS)
def test_messages_of_tens_of_megabytes_pass_a_relay_that_keeps_almost_nothing(tmp_path, at_relay, two):
    most = 0

    class Measured(Relay):
        def _end(self, connection):
            end = super()._end(connection)
            passed_on = end.data_received

            def measured(data):
                nonlocal most
                passed_on(data)
                most = max(most, end.other.transport.get_write_buffer_size())

            end.data_received = measured
            return end

    with RelayThread(relay_file(two, tmp_path), made=Measured, loop=LOOPS[at_relay]) as relay:
        two.relay = relay.address
        two.run(all_rounds(two, 3, shape=(1, 200_000, 20)))
        assert relay.relay.joined == 1
    assert 0 < most < 2 << 20


@pytest.mark.parametrize("seed", range(4))
def test_links_over_a_relay_outlive_connections_that_close_or_stall_at_any_byte(tmp_path, monkeypatch, seed):
    if seed % 2:
        monkeypatch.setattr("eigenmesh.transports.tls.connection.new_loop", asyncio.new_event_loop)
    run = FaultyRun(seed, 12, parks=seed == 3)
    with RelayThread(relay_file(run.sites, tmp_path)) as relay:
        run.sites.relay = relay.address
        run.play()


@pytest.mark.parametrize("kind", ["change", "duplicate", "drop", "reorder", "insert"])
@pytest.mark.parametrize("after", [0, 5_000])
def test_a_relay_that_lies_only_breaks_links(tmp_path, monkeypatch, two, kind, after):
    """Every number is checked; what the relay did ends a connection, and the next one is honest."""
    # After a part is left out, both ends wait for it.
    for module in (connections, dialling):
        monkeypatch.setattr(module, "CONNECT_S", 2.0)
    monkeypatch.setattr(connections, "SILENT_S", 2.0)
    kinds = [(kind, after), ("honest", 0), ("honest", 0), (kind, after)]
    with RelayThread(relay_file(two, tmp_path), made=lambda file: LyingRelay(file, kinds)) as relay:
        two.relay = relay.address
        two.run(all_rounds(two, 60, pause_s=0.002))
        assert relay.relay.joined >= 3
        assert not kinds


def test_a_relay_that_stalls_is_left(tmp_path, monkeypatch, two):
    monkeypatch.setattr(connections, "SILENT_S", 2.0)
    kinds = [("stall", 5_000), ("honest", 0)]
    with RelayThread(relay_file(two, tmp_path), made=lambda file: LyingRelay(file, kinds)) as relay:
        two.relay = relay.address
        two.run(all_rounds(two, 60, pause_s=0.002))
        assert relay.relay.joined == 2


def test_a_relay_that_joins_the_wrong_sites_is_seen_through(tmp_path):
    """Whoever is at the other end must have the certificate of the neighbour that was asked for."""
    sites, wrong = Sites(nx.complete_graph(3)), []

    class Mixed(Relay):
        async def _call(self, talk, meeting):
            others = [found for found in self._waiting if found.caller == meeting.caller and found != meeting]
            if others and len(wrong) < 3:
                wrong.append(meeting)
                meeting = others[0]
            await super()._call(talk, meeting)

    with RelayThread(relay_file(sites, tmp_path), made=Mixed) as relay, logged("eigenmesh.transports.tls") as lines:
        sites.relay = relay.address
        sites.run(all_rounds(sites, 30))
    assert len(wrong) == 3
    assert any("refused a TLS handshake over the relay" in line for line in lines)


def test_a_relay_that_is_killed_and_started_again_during_a_run(tmp_path, two):
    with RelayThread(relay_file(two, tmp_path)) as relay:
        two.relay = relay.address
        done, over = [0, 0], threading.Event()

        def work(rank):
            with two.transport(rank) as transport:
                links, round_ = transport.links([1 - rank], [1 - rank]), 0
                ends = 0.0
                while not ends:
                    mine = float(over.is_set() and rank == 0)
                    numbers = np.random.default_rng([rank, round_]).standard_normal(20)
                    (theirs, word) = transport.exchange((numbers, np.array([mine])), links)[1 - rank]
                    assert np.array_equal(theirs, np.random.default_rng([1 - rank, round_]).standard_normal(20))
                    ends = max(mine, float(word[0]))
                    round_ = done[rank] = round_ + 1

        def disturb():
            for _ in range(3):
                goal = min(done) + 20
                until(lambda goal=goal: min(done) >= goal, lambda: f"stuck at {done}")
                relay.restart()
            goal = min(done) + 20
            until(lambda: min(done) >= goal, lambda: f"stuck at {done}")
            over.set()

        assert in_threads(lambda rank: disturb() if rank == 2 else work(rank), 3) == {}
        assert done[0] == done[1]


# Callers that have no business at a relay.


class Caller:
    """A caller of a relay that says what it likes."""

    opened: ClassVar[list] = []

    def __init__(self, relay, credentials, root=None):
        self.secure = connected(relay.address, "relay", credentials, root)
        self.opened.append(self)
        self._incoming, self._got = MessageReader(1 << 20), []

    def say(self, *lines):
        self.secure.sendall(prefixed("\n".join(lines).encode()))

    def hear(self):
        """The next message, or empty at the end."""
        while not self._got:
            try:
                data = self.secure.recv(1 << 16)
            except OSError:
                data = b""
            if not data:
                return ""
            self._got = self._incoming.add(data)
        return self._got.pop(0).decode()

    def close(self):
        self.secure.close()


@pytest.fixture(autouse=True)
def closed():
    yield
    while Caller.opened:
        Caller.opened.pop().close()


@pytest.fixture
def besieged(tmp_path, two):
    """A relay that carries a link which goes on whatever else happens; and its log."""
    over, done = threading.Event(), [0, 0]

    def work(rank):
        with two.transport(rank) as transport:
            ends = False
            while not ends:
                links = transport.links([1 - rank], [1 - rank])
                mine = float(over.is_set() and rank == 0)
                (word,) = transport.exchange((np.array([mine]),), links)[1 - rank]
                ends = bool(mine or word[0])
                done[rank] += 1
                time.sleep(0.002)

    with RelayThread(relay_file(two, tmp_path)) as relay, logged() as lines, ExitStack() as stack:
        two.relay, relay.lines, relay.sites, relay.folder = relay.address, lines, two, tmp_path
        errors = []
        worker = threading.Thread(target=lambda: errors.append(in_threads(work, 2)))
        worker.start()
        stack.callback(worker.join, 60.0)
        stack.callback(over.set)
        until(lambda: min(done) > 5, "the link does not begin")
        yield relay
        goal = min(done) + 20
        until(lambda: min(done) >= goal, lambda: f"stuck at {done}")
        assert not any("run test: parted" in line for line in lines), "the link was disturbed"
        stack.close()
        assert errors == [{}]


def test_no_certificate_and_a_foreign_one(besieged):
    with logged("eigenmesh.transports.tls") as refused:
        for credentials in (None, Authority().issue("site0")):
            caller = Caller(besieged, credentials, besieged.sites.authority.pem)
            assert caller.hear() == ""
            caller.close()
        until(lambda: len(refused) == 2, "no handshake is refused")
    assert "peer did not return a certificate" in refused[0]
    assert "certificate" in refused[1]


@pytest.mark.parametrize("name", ["mallory", "relay"])
def test_a_certificate_of_the_authority_for_a_name_without_a_link(besieged, name):
    caller = Caller(besieged, besieged.sites.authority.issue(name))
    assert caller.hear() == ""
    until(lambda: besieged.lines[-1].startswith("refused"), "nobody is refused")
    assert f"refused {name} at 127.0.0.1:" in besieged.lines[-1]
    assert "does not name one site of the links" in besieged.lines[-1]
    caller.close()


def test_an_expired_certificate(besieged):
    with logged("eigenmesh.transports.tls") as refused:
        caller = Caller(besieged, besieged.sites.authority.issue("site0", timedelta(days=-1)))
        assert caller.hear() == ""
        until(lambda: refused, "no handshake is refused")
        caller.close()
    assert "certificate has expired" in refused[0]


def test_a_key_that_is_not_pinned_and_one_that_is_revoked(tmp_path, two):
    from cryptography import x509

    pins = {
        name: key_fingerprint(x509.load_pem_x509_certificate(own.certificate))
        for name, own in zip(two.names, two.credentials, strict=True)
    }
    with RelayThread(relay_file(two, tmp_path, fingerprints=pins)) as relay, logged() as lines:
        caller = Caller(relay, two.authority.issue("site0"))
        assert caller.hear() == ""
        until(lambda: lines, "nobody is refused")
        assert "its key is not the one that is pinned" in lines[-1]
        caller.close()
        relay.relay._revoked.is_revoked = lambda certificate: True
        caller = Caller(relay, two.credentials[0])
        assert caller.hear() == ""
        until(lambda: len(lines) == 2, "nobody is refused")
        assert "its certificate is revoked" in lines[-1]
        caller.close()


@pytest.mark.parametrize(
    ("lines", "answer"),
    [
        (("wait", "test", "site0"), "does not carry the link site0 - site0"),
        (("call", "test", "mallory"), "does not carry the link site0 - mallory; all sites must name the same relay"),
        (("call", "../test", "site1"), "does not speak as a site"),
        (("open", "test", "site1"), "does not speak as a site"),
        (("GET / HTTP/1.1", ""), "does not speak as a site"),
    ],
)
def test_what_a_site_may_not_ask(besieged, lines, answer):
    caller = Caller(besieged, besieged.sites.credentials[0])
    assert caller.hear() == "eigenmesh relay 1"
    caller.say(*lines)
    word, reason = caller.hear().split("\n")
    assert word == "refused"
    assert answer in reason
    assert caller.hear() == ""
    assert answer in besieged.lines[-1]
    caller.close()


def test_a_caller_that_sends_before_it_is_asked_or_too_much(besieged):
    for data in (bytes(range(256)) * 1_000, prefixed(b"x") * 1_000, prefixed(b"call\ntest\nsite1") * 50):
        caller = Caller(besieged, besieged.sites.credentials[0])
        with suppress(OSError):
            for _ in range(100):
                caller.secure.sendall(data)
        with suppress(OSError):
            while caller.hear():
                pass
        caller.close()
    until(lambda: +besieged.relay.held == {"site0": 1, "site1": 2}, lambda: str(besieged.relay.held))


def test_one_that_is_absent_and_one_that_waits_in_another_run(besieged):
    """Runs of the same sites do not mix."""
    waits, calls = (Caller(besieged, own) for own in reversed(besieged.sites.credentials))
    for caller in (waits, calls):
        assert caller.hear() == "eigenmesh relay 1"
    waits.say("wait", "autumn", "site0")
    assert waits.hear() == "waiting"
    calls.say("call", "spring", "site1")
    assert calls.hear() == "absent"
    again = Caller(besieged, besieged.sites.credentials[0])
    assert again.hear() == "eigenmesh relay 1"
    again.say("call", "autumn", "site1")
    assert waits.hear() == "called"
    waits.say("ready")
    assert again.hear() == "joined"
    again.secure.sendall(b"anything at all")
    assert waits.secure.recv(100) == b"anything at all"
    again.close()
    assert waits.hear() == ""


def test_one_that_does_not_answer_a_call_is_absent(besieged, monkeypatch):
    monkeypatch.setattr(relays, "READY_S", 0.2)
    waits, calls = (Caller(besieged, own) for own in reversed(besieged.sites.credentials))
    for caller in (waits, calls):
        assert caller.hear() == "eigenmesh relay 1"
    waits.say("wait", "autumn", "site0")
    assert waits.hear() == "waiting"
    calls.say("call", "autumn", "site1")
    assert calls.hear() == "absent"
    assert waits.hear() == "called"
    assert waits.hear() == ""
    assert Meeting("autumn", "site0", "site1") not in besieged.relay._waiting


def test_every_wait_at_a_relay_has_an_end(besieged, monkeypatch):
    monkeypatch.setattr(relays, "CONNECT_S", 0.2)
    monkeypatch.setattr(relays, "RELAY_WAIT_S", 0.2)
    monkeypatch.setattr(relays, "IDLE_S", 0.4)
    silent, waits = (Caller(besieged, besieged.sites.credentials[1]) for _ in range(2))
    for caller in (silent, waits):
        assert caller.hear() == "eigenmesh relay 1"
    waits.say("wait", "autumn", "site0")
    assert [waits.hear() for _ in range(3)] == ["waiting", "again", ""]
    assert silent.hear() == ""
    # A pair that is joined and never says anything.
    pair = [Caller(besieged, own) for own in reversed(besieged.sites.credentials)]
    for caller, line in zip(pair, (("wait", "autumn", "site0"), ("call", "autumn", "site1")), strict=True):
        assert caller.hear() == "eigenmesh relay 1"
        monkeypatch.setattr(relays, "RELAY_WAIT_S", 60.0)
        caller.say(*line)
        if caller is pair[0]:
            assert caller.hear() == "waiting"
    assert pair[0].hear() == "called"
    pair[0].say("ready")
    assert pair[1].hear() == "joined"
    assert [caller.hear() for caller in pair] == ["", ""]
    until(lambda: any("nothing was sent for 0.4 s" in line for line in besieged.lines), "the reason is not logged")


def test_a_flood_of_connections_does_not_end_a_link(besieged):
    """Of strangers that say nothing, and of a site that opens more than it may."""
    address = ("127.0.0.1", besieged.described.listen.port)
    with ExitStack() as stack:
        own = []
        for _ in range(relays.MOST_PER_LINK + 3):
            caller = Caller(besieged, besieged.sites.credentials[1])
            stack.callback(caller.close)
            assert caller.hear() == "eigenmesh relay 1"
            own.append(caller)
        # The link itself, and the call that is waited for, are connections of the site, too.
        assert own[-1].hear() == f"refused\nit has {relays.MOST_PER_LINK} connections already"
        strangers = [stack.enter_context(socket.create_connection(address, timeout=60.0)) for _ in range(400)]
        most = 4 * len(besieged.described.links) + 16
        until(lambda: sum(_is_closed(one) for one in strangers) >= 400 - most, "they are not turned away")
        # A site is refused meanwhile only while the port is full.
        with pytest.raises((OSError, ssl.SSLError)):
            connected(besieged.address, "relay", besieged.sites.credentials[0], wait_s=60.0)


def _is_closed(one):
    one.setblocking(False)
    try:
        return one.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_a_relay_that_is_not_one_is_named(tmp_path, two):
    """A site at the address of the relay, with the certificate of a relay."""
    two.relay = two.address(1)
    other = Sites(nx.path_graph(2), join_s=1.0, patience_s=1.0)
    other.authority, other.ports = two.authority, two.ports
    other.credentials = [two.authority.issue("site0"), two.authority.issue("relay")]
    with other.transport(1), two.transport(0, join_s=2.0) as transport:
        with pytest.raises(LostNeighbourError):
            rounds(transport, [1], 1)
        (link,) = transport.status().links
        assert "the relay relay at 127.0.0.1" in link.refusal
        assert "it is not a relay of this version of eigenmesh" in link.refusal


def test_a_site_says_what_it_waits_for_at_a_relay(tmp_path, two):
    """Before the relay is there, once it is there, and if it does not carry the link."""
    two.settings |= {"join_s": 1.0, "patience_s": 1.0}
    file = relay_file(two, tmp_path)
    two.relay = str(file.listen)
    with two.transport(1) as waits, two.transport(0) as calls:
        until(lambda: "connection refused" in waits.status().links[0].refusal, waits.status)
        until(lambda: "the relay relay at 127.0.0.1" in calls.status().links[0].refusal, calls.status)
        links = frozenset({frozenset({"site0", "site7"}), frozenset({"site1", "site7"})})
        with RelayThread(relay_file(two, tmp_path, listen=file.listen, links=links)):
            for transport in (waits, calls):
                until(lambda t=transport: "does not carry the link" in t.status().links[0].refusal, "no reason")
    with two.transport(1) as waits, RelayThread(file):
        until(lambda: waits.status().links[0].refusal == "it has not called at the relay relay yet", "no reason")
    with two.transport(0) as calls, RelayThread(file):
        until(lambda: calls.status().links[0].refusal == "it is not at the relay relay yet", "no reason")


def test_dialling_words_fit_a_message():
    """The longest names and runs that are allowed."""
    assert len("\n".join((dialling.CALL, "r" * 64, "s" * 63))) < dialling.MAX_WORDS_BYTES


# HTTP proxies that refuse, or are none.


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "refuses a connection to 127.0.0.1:{}: 403 Forbidden"),
        (b"HTTP/1.1 407 \x1b[31mNo\r\n\r\n", "write http://user:password@host:port"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "does not answer as an HTTP proxy"),
        (b"HTTP/1.1 200 " + b"a" * 100_000, "does not answer as an HTTP proxy"),
        (b"HTTP/1.1 200 OK\r\n\r\neigenmesh", "sends bytes before this site does"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "in the handshake"),
        (b"", "no answer within 1 s"),
    ],
)
def test_a_proxy_that_refuses_or_is_none_is_named(monkeypatch, two, answer, said):
    for module in (connections, dialling):
        monkeypatch.setattr(module, "CONNECT_S", 1.0)
    two.settings |= {"join_s": 1.0, "patience_s": 1.0}
    with FalseProxy(answer) as proxy:
        two.http_proxy = HttpProxy(proxy.address, "Basic secret")
        with two.transport(0) as transport:
            until(lambda: transport.status().links[0].refusal, "no reason")
            refusal = transport.status().links[0].refusal
        assert said.format(two.ports[1]) in refusal
        assert "\x1b" not in refusal
        assert "secret" not in refusal
        assert proxy.heard.startswith(f"CONNECT 127.0.0.1:{two.ports[1]} HTTP/1.1\r\n".encode())
        assert b"\r\nProxy-Authorization: Basic secret\r\n" in proxy.heard


@pytest.mark.skipif(TINYPROXY is None, reason="tinyproxy is not installed (apt install tinyproxy)")
@pytest.mark.parametrize("loop", LOOPS)
def test_links_and_relays_through_tinyproxy(tmp_path, monkeypatch, loop):
    monkeypatch.setattr("eigenmesh.transports.tls.connection.new_loop", LOOPS[loop])
    sites = Sites(nx.cycle_graph(3))
    with Tinyproxy(tmp_path) as proxy, RelayThread(relay_file(sites, tmp_path)) as relay:
        sites.http_proxy = HttpProxy(proxy.address)
        sites.run(all_rounds(sites, 20))
        assert set(proxy.requests) == {f"127.0.0.1:{port}" for port in sites.ports[1:]}
        sites.relay = relay.address
        sites.run(all_rounds(sites, 20))
        assert relay.relay.joined >= 3
