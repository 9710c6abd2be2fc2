"""Intruders are turned away and logged, and the run that they came for goes on undisturbed."""

import logging
import math
import random
import re
import socket
import struct
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta

import networkx as nx
import numpy as np
import pytest

from eigenmesh.errors import LostNeighbourError
from eigenmesh.protocol import wire
from eigenmesh.protocol.setup import Instance, make_statement
from eigenmesh.protocol.wire import Kind
from eigenmesh.transports.tls import CertificateKeyring
from eigenmesh.transports.tls.connection import WELCOME, prefixed
from transports.authority import Authority
from transports.sites import Sites, connected, data_frame, hello, intrude, messages_of
from waiting import LIMIT_S, until

OUTSIDE, INSIDE = ([], False), ([], True)
PAUSE_S = 0.002
SPARE = Authority().issue("site0")
# In the name of the third site, with the key of another authority.
FORGED = make_statement(CertificateKeyring(SPARE), bytes(range(16)), "lost", "site2", ["site1", "site2"]).text
LOGGER = logging.getLogger("eigenmesh.transports.tls")


@contextmanager
def refusals(prefix="refused "):
    """What is logged about refused strangers, without the prefix; the list grows."""
    found, handler = [], logging.Handler()

    def emit(record):
        message = record.getMessage()
        if message.startswith(prefix):
            found.append(message.removeprefix(prefix))

    handler.emit = emit
    LOGGER.addHandler(handler)
    try:
        yield found
    finally:
        LOGGER.removeHandler(handler)


class Besieged:
    """Sites in a row that exchange without end while somebody else knocks at the door of the second.

    Attributes
    ----------
    last : no site goes beyond so many rounds.
    """

    def __init__(self, refused):
        self.last = math.inf
        self.sites = Sites(nx.path_graph(3))
        self.refused = refused
        self.stop = threading.Event()
        self.rounds = [0, 0, 0]
        self.transports = [self.sites.transport(rank) for rank in range(3)]
        self.errors = []
        self.threads = [threading.Thread(target=self._work, args=(rank,)) for rank in range(3)]
        for thread in self.threads:
            thread.start()
        self.progress()

    def hello(self, needs=0, **changes):
        """A greeting as only the first site can make it: with its key, and what only it and its neighbour know."""
        about = {"instance": self.transports[0].endpoint.machine.past.instance, **changes}
        return hello("site0", self.sites.run_of(), self.sites.credentials[0], needs, **about)

    @property
    def door(self):
        return self.sites.address(1)

    def _work(self, rank):
        neighbours = sorted(self.sites.graph.neighbors(rank))
        try:
            with self.transports[rank] as transport:
                links = transport.links(neighbours, neighbours)
                stopping = 0.0
                while not stopping:
                    until(lambda: self.rounds[rank] < self.last, "the rounds do not go on")
                    round_ = self.rounds[rank]
                    matrix = np.random.default_rng([rank, round_]).standard_normal((1, 12, 2))
                    # The maximum over neighbours tells all of them, two rounds later at most, that it is time to stop.
                    mine = np.array([float(self.stop.is_set() and rank == 1)])
                    received = transport.exchange((matrix, mine), links)
                    for sender, (theirs, word) in received.items():
                        expected = np.random.default_rng([sender, round_]).standard_normal((1, 12, 2))
                        assert np.array_equal(theirs, expected)
                        stopping = max(stopping, word[0])
                    stopping = max(stopping, mine[0])
                    self.rounds[rank] += 1
                    time.sleep(PAUSE_S)
        except BaseException as error:
            self.errors.append(error)

    def progress(self):
        """Wait until all sites have done some more rounds."""
        goal = max(self.rounds) + 20
        until(lambda: self.errors or min(self.rounds) >= goal, lambda: f"stuck at {self.rounds}")
        assert not self.errors, self.errors

    @contextmanager
    def silent(self, rank):
        """Keep a site from saying anything, so that it does not come back before an intruder is heard."""
        begun, over = threading.Event(), threading.Event()
        loop = self.transports[rank].endpoint._streams._loop
        loop.call_soon_threadsafe(lambda: (begun.set(), over.wait(LIMIT_S)))
        assert begun.wait(LIMIT_S)
        try:
            yield
        finally:
            over.set()

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join(60.0)
        assert not any(thread.is_alive() for thread in self.threads)
        assert self.errors == []
        assert len(set(self.rounds)) == 1


@pytest.fixture
def besieged():
    with refusals() as refused:
        run = Besieged(refused)
        try:
            yield run
            run.progress()
        finally:
            run.end()


@contextmanager
def one_refused_handshake():
    """Wait for a refused TLS handshake; its reason comes into the list."""
    with refusals("refused a TLS handshake from 127.0.0.1: ") as reasons:
        yield reasons
        until(lambda: reasons, "no handshake is refused")


def knock(besieged, credentials, frames=(), **settings):
    return intrude(besieged.door, "site1", credentials, frames, **settings)


def test_no_certificate(besieged):
    with one_refused_handshake() as handshakes:
        assert knock(besieged, None, root=besieged.sites.authority.pem) == OUTSIDE
    assert handshakes == ["peer did not return a certificate"]


def test_another_authority(besieged):
    stranger = Authority().issue("site0")
    with one_refused_handshake() as handshakes:
        assert knock(besieged, stranger, root=besieged.sites.authority.pem) == OUTSIDE
    assert "certificate" in handshakes[0]


def test_an_expired_certificate(besieged):
    expired = besieged.sites.authority.issue("site0", timedelta(days=-1))
    with one_refused_handshake() as handshakes:
        assert knock(besieged, expired) == OUTSIDE
    assert handshakes == ["certificate verify failed: certificate has expired"]


def test_plain_tcp(besieged):
    door = ("127.0.0.1", besieged.sites.ports[1])
    with one_refused_handshake() as handshakes, socket.create_connection(door, timeout=60.0) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: site1\r\n\r\n")
        assert plain.recv(100) == b""
    assert handshakes == ["http request"]


@pytest.mark.parametrize("claims", ["site0", "site2", "mallory"])
def test_right_authority_but_a_name_that_is_not_its_own(besieged, claims):
    """Whoever dials is held to the name in its certificate, and that name must be a neighbour's that dials."""
    mallory = besieged.sites.authority.issue("mallory")
    run = besieged.sites.run_of()
    assert knock(besieged, mallory, [hello(claims, run, mallory)]) == INSIDE
    reason = "not a neighbour that calls" if claims == "mallory" else "not the name in its certificate"
    assert len(besieged.refused) == 1
    assert reason in besieged.refused[0]
    assert "mallory at 127.0.0.1:" in besieged.refused[0]


def test_a_neighbour_that_should_be_dialled_does_not_dial(besieged):
    theirs = besieged.sites.credentials[2]
    assert knock(besieged, theirs, [hello("site2", besieged.sites.run_of(), theirs)]) == INSIDE
    assert "not a neighbour that calls" in besieged.refused[0]


def test_an_old_run_replayed(besieged):
    old = besieged.sites.run_of(run_id=b"an earlier run .")
    frames = [hello("site0", old, besieged.sites.credentials[0]), data_frame(old, 0, np.ones((1, 12, 2)))]
    answers, _ = knock(besieged, besieged.sites.credentials[0], frames)
    assert [answer.kind for answer in answers if answer.kind is not Kind.STATEMENT] == [Kind.REFUSE]
    assert "is not the current one" in answers[-1].text
    assert "is not the current one" in besieged.refused[0]


def test_an_old_epoch_replayed(besieged):
    answers, _ = knock(besieged, besieged.sites.credentials[0], [besieged.hello(epoch=7)])
    assert "epoch 7 is not the current one, 0" in answers[-1].text


def test_another_manifest_in_the_middle_of_a_run(besieged):
    other = besieged.sites.run_of(manifest="other")
    frames = [
        hello("site0", other, besieged.sites.credentials[0]),
        wire.encode(Kind.MANIFEST, other.run_id, 0, 0, 0, wire.text_body("other")),
    ]
    answers, _ = knock(besieged, besieged.sites.credentials[0], frames)
    assert [(answer.kind, answer.text) for answer in answers] == [(Kind.REFUSE, "manifest")]


@pytest.mark.parametrize("needs", [0, 10**12])
def test_rounds_that_cannot_be(besieged, needs):
    link = besieged.transports[1].endpoint.machine.epoch.links["site0"]
    until(lambda: link.safe_there, "nothing is acknowledged")
    answers, _ = knock(besieged, besieged.sites.credentials[0], [besieged.hello(needs)])
    assert [answer.kind for answer in answers if answer.kind is not Kind.STATEMENT] == [Kind.REFUSE]
    assert ("has acknowledged all below" if needs == 0 else "never sent") in besieged.refused[0]


def bad_frames(run, round_):
    good = data_frame(run, round_, np.ones((1, 12, 2)), np.zeros(1))
    nan = bytearray(good)
    nan[-16 - 8 : -16] = struct.pack("<d", float("nan"))
    ten_gigabytes = bytearray(good)
    ten_gigabytes[66:90] = struct.pack("<QQQ", 1, 10 * 2**30 // 16, 2)
    old = besieged_old(run)
    return {
        "wrong shape": data_frame(run, round_, np.ones((1, 12, 3)), np.zeros(1)),
        "wrong dtype": data_frame(run, round_, np.ones((1, 12, 2), np.float32), np.zeros(1)),
        "wrong kind of round": data_frame(run, round_, np.ones((1, 12, 2)), np.zeros(1), tag=99),
        "a round left out": data_frame(run, round_ + 1000, np.ones((1, 12, 2)), np.zeros(1)),
        "NaN": bytes(nan),
        "10 GB announced": bytes(ten_gigabytes),
        "another run": data_frame(old, round_, np.ones((1, 12, 2)), np.zeros(1)),
        "truncated": good[:-1],
        "random": random.Random(1).randbytes(300),
        "HELLO again": hello("site0", run, SPARE),
        "a hash of other numbers": good[:56] + bytes(8) + good[64:],
        "a statement of another site": wire.encode(Kind.STATEMENT, run.id_of(()), 0, 0, 0, wire.text_body(FORGED)),
        "acknowledged what was never sent": wire.encode(Kind.ACK, run.id_of(()), 0, 0, 10**12, wire.text_body("")),
    }


def besieged_old(run):
    return replace(run, run_id=b"an earlier run .")


def test_a_stolen_key_without_the_journal_is_no_more_than_a_site_begun_anew(besieged):
    """A site that comes back with another journal would mix two runs, whoever it is."""
    round_ = besieged.transports[1].status().round
    anew = besieged.hello(round_, instance=Instance("f" * 32, 1, "0"))
    answers, _ = knock(besieged, besieged.sites.credentials[0], [anew])
    assert answers[0].kind is Kind.REFUSE
    assert "site0 has started the run over" in answers[0].text
    besieged.progress()


@pytest.mark.parametrize("name", bad_frames(Sites(nx.path_graph(1)).run_of(), 0))
def test_a_stolen_key_and_a_bad_frame(besieged, name):
    """Even with a neighbour's own key: the stream is closed, and the true neighbour comes back and loses no round."""
    run = besieged.sites.run_of()

    def bad(welcome):
        besieged.last = math.inf
        return bad_frames(run, welcome.round)[name]

    # The round that is claimed must still be the last one when the greeting comes.
    besieged.last = max(besieged.rounds) + 20
    until(lambda: min(besieged.rounds) == besieged.last, "the sites do not come to rest")
    greeting = besieged.hello(besieged.transports[1].status().round)
    with besieged.silent(0):
        answers, _ = knock(besieged, besieged.sites.credentials[0], [greeting, bad], wait_s=1.0)
        assert answers[0].kind is Kind.WELCOME
        until(lambda: besieged.refused, "nothing is refused")
    assert besieged.refused[0].startswith("site0")
    besieged.progress()


def test_random_strings_on_real_streams(besieged):
    generator = random.Random(3)
    for _ in range(100):
        frame = generator.randbytes(generator.randrange(2000))
        assert knock(besieged, besieged.sites.credentials[0], [frame], wait_s=60.0) == INSIDE
    assert len(besieged.refused) == 100


@pytest.mark.parametrize("length", [2**40, 2**64 - 1])
def test_a_length_beyond_what_was_agreed_ends_the_connection(besieged, length):
    """With almost nothing behind it: neither is it waited for, nor is room made for it."""
    with connected(besieged.door, "site1", besieged.sites.credentials[0]) as secure:
        answers = messages_of(secure)
        assert next(answers) == WELCOME
        secure.sendall(struct.pack("<Q", length) + bytes(1000))
        with suppress(OSError):
            assert list(answers) == []
    until(lambda: besieged.refused, "nothing is refused")
    assert "the stream ended before a greeting" in besieged.refused[0]


def test_one_that_speaks_before_it_is_asked(besieged):
    with connected(besieged.door, "site1", besieged.sites.credentials[0]) as secure, suppress(OSError):
        # With the last words of the handshake.
        secure.sendall(prefixed(besieged.hello()) * 100)
        for answer in messages_of(secure):
            assert answer == WELCOME or wire.decode(answer, 0).kind in (Kind.STATEMENT, Kind.REFUSE)
    besieged.progress()


def test_callers_that_say_nothing_do_not_keep_others_out(besieged):
    """More of them than may be in a handshake; those beyond are turned away at once, and the run goes on."""
    door, limit = ("127.0.0.1", besieged.sites.ports[1]), besieged.transports[1].endpoint._streams._max_streams
    with ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(door, timeout=60.0)) for _ in range(limit + 5)]
        assert [caller.recv(1) for caller in silent[limit:]] == [b""] * 5
        besieged.progress()
    assert knock(besieged, besieged.sites.authority.issue("mallory"), [b""], wait_s=60.0) == INSIDE


def test_a_listener_with_a_certificate_of_another_name_is_not_talked_to():
    sites = Sites(nx.path_graph(2), join_s=2.0)
    sent = []
    sites.credentials[1] = sites.authority.issue("mallory")
    with sites.transport(1), sites.transport(0, on_sent=sent.append) as transport:
        until(lambda: transport.status().links[0].refusal, "nobody is called")
        problem = transport.status().links[0].refusal
        with pytest.raises(LostNeighbourError, match="site1"):
            transport.exchange((np.ones(3),), transport.links([1], [1]))
    assert not [message for message in sent if message.kind == "DATA"]
    assert re.search(r"(?i)(verif|name|certificate|peer)", problem)
