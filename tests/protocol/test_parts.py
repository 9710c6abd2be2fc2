"""The parts of the machine, each alone: constructed with what it needs, without the machine."""

import inspect
import re
from pathlib import Path
from random import Random

import numpy as np
import pytest

from eigenmesh import protocol as ep
from eigenmesh.errors import ParkedError, TransportError
from eigenmesh.protocol import effects as ev
from eigenmesh.protocol import wire
from eigenmesh.protocol.effects import Wait
from eigenmesh.protocol.membership import Agreement, Membership
from eigenmesh.protocol.outbox import Arrived, Outbox
from eigenmesh.protocol.peering import Peering
from eigenmesh.protocol.rounds import Accounts, Rounds
from eigenmesh.protocol.setup import Clock, Instance, Past, make_statement
from eigenmesh.protocol.wire import Kind
from eigenmesh.rehearsal.world import SecretKeyring

PAGES = Path(__file__).parents[2] / "docs"
PARTS = {
    "membership": Membership,
    "outbox": Outbox,
    "peering": Peering,
    "agreement": Agreement,
    "accounts": Accounts,
    "rounds": Rounds,
}
FILES = {part.__module__.removeprefix("eigenmesh.protocol.") for part in PARTS.values()}
BODY = wire.array_body((np.array([1]),), 64)


class Parts:
    """Site B in the middle of a path A - B - C, with a stream 1 to A; parts are made when they are asked for."""

    def __init__(self, on_loss="wait"):
        edges = (("A", "B"), ("B", "C"))
        run = ep.Run(bytes(16), "sum", 64)
        self.setup = ep.Setup("B", ("A", "B", "C"), edges, frozenset("C"), run, SecretKeyring("B"), on_loss=on_loss)
        self.past, self.clock = Past(Instance("BBBB", 1, "B1")), Clock(0.0)
        self.membership = Membership("B", self.setup.sites, edges)
        self.outbox = Outbox(self.setup, self.past, self.membership, (), self.clock)
        self.link = self.outbox.epoch.links["A"]
        self.link.stream = 1
        self.learnt = []

    def peering(self):
        made = Peering(self.membership, self.outbox, Random(0), self.learnt.append)
        made.opened(ev.Opened(1, ("A",)))
        made.streams[1].link = "A"
        return made

    def accounts(self):
        return Accounts(self.membership, self.outbox)

    def rounds(self):
        return Rounds(self.membership, self.outbox, self.peering(), self.accounts())

    def frame(self, kind, body):
        return wire.encode(kind, self.outbox.epoch.run_id, 0, 0, 0, body)


def says(site, kind, content):
    return make_statement(SecretKeyring(site), bytes(16), kind, site, content)


def kinds(effects):
    return [type(one) for one in effects]


@pytest.fixture
def parts():
    return Parts()


def test_a_message_is_audited_before_it_is_written(parts):
    parts.outbox.write(parts.link, parts.outbox.message(Kind.ACK))
    (write,) = parts.outbox.take_effects()
    assert (write.sent.kind, write.sent.frame_bytes) == ("ACK", len(write.data))
    assert parts.outbox.take_effects() == []


def test_a_statement_waits_for_the_disk(parts):
    parts.outbox.state("lost", ["B", "C"])
    assert kinds(parts.outbox.take_effects()) == [ev.Append]
    parts.outbox.durable(0)
    assert parts.outbox.has_unsent
    parts.outbox.durable(1)
    assert not parts.outbox.has_unsent
    assert kinds(parts.outbox.take_effects()) == [ev.Write]


def test_a_frame_is_safe_here_once_it_is_on_the_disk(parts):
    parts.outbox.keep_frame(parts.link, parts.frame(Kind.DATA, BODY), 0)
    assert parts.link.safe_here == 0
    assert not parts.membership.fresh
    parts.outbox.durable(1)
    assert parts.link.safe_here == 1


def test_a_farewell_is_acknowledged_once_it_is_on_the_disk(parts):
    parts.outbox.keep_farewell(parts.link)
    assert kinds(parts.outbox.take_effects()) == [ev.Append]
    assert parts.link.owes_farewell
    parts.outbox.durable(1)
    assert not parts.link.owes_farewell
    assert wire.decode(parts.outbox.take_effects()[-1].data, 64).tag == 1


def test_the_first_failure_is_kept_and_told(parts):
    parts.outbox.end(TransportError("one."))
    parts.outbox.end(TransportError("two."))
    (fail,) = [one for one in parts.outbox.take_effects() if isinstance(one, ev.Fail)]
    assert str(fail.error) == "one."
    assert parts.link.warned


def test_a_statement_that_arrives_is_kept_and_handed_on_once(parts):
    peering, statement = parts.peering(), says("C", "result", [0, "d", ""])
    data = parts.frame(Kind.STATEMENT, wire.text_body(statement.text))
    peering.received(ev.Bytes(1, data))
    peering.received(ev.Bytes(1, data))
    assert parts.learnt == [statement]
    assert parts.membership.results(0) == {"C": statement}
    assert kinds(parts.outbox.take_effects()) == [ev.Append]


def test_a_stream_that_carries_something_else_is_closed(parts):
    parts.peering().received(ev.Bytes(1, b"GET / HTTP/1.1"))
    assert kinds(parts.outbox.take_effects()) == [ev.Log, ev.Cut]
    assert parts.link.stream is None


def test_sites_that_sign_the_same_view_continue():
    parts = Parts("continue")
    agreement = Agreement(parts.membership, parts.outbox, parts.peering())
    assert not agreement.is_needed
    assert agreement.lose(["C"]) == Wait(("A",))
    assert agreement.is_needed
    parts.membership.add(says("A", "view", [*parts.membership.view, ""]))
    # Its own statements are not on the disk yet.
    assert agreement.agree() == Wait(("A",))
    parts.outbox.durable(2)
    assert agreement.agree() == ev.Deliver(ev.MembersChanged((("B", "C"),)))
    assert agreement.lost == (("B", "C"),)


def test_a_lost_neighbour_parks_the_run_unless_the_others_may_continue(parts):
    agreement = Agreement(parts.membership, parts.outbox, parts.peering())
    assert agreement.lose(["C"]) is None
    assert isinstance(parts.outbox.failure, ParkedError)


def test_a_result_is_answered_once_all_have_signed_it(parts):
    accounts = parts.accounts()
    accounts.sign_result("d")
    parts.outbox.durable(1)
    parts.membership.add(says("A", "result", [0, "d", ""]))
    assert accounts.count_signatures("d") == Wait(("C",), "to sign the result")
    parts.membership.add(says("C", "result", [0, "d", ""]))
    assert set(accounts.count_signatures("d").answer) == {"A", "B", "C"}


def test_another_result_ends_the_run(parts):
    parts.membership.add(says("C", "result", [0, "e", ""]))
    assert parts.accounts().count_signatures("d") is None
    assert str(parts.outbox.failure) == "C has signed a different result than B."


def test_a_round_is_answered_once_all_frames_are_here(parts):
    rounds = parts.rounds()
    under_way = rounds.begin(ev.Exchange(BODY, 0, ("A",), ("A",)))
    assert rounds.collect(under_way) == Wait(("A",), "to send round 0")
    assert parts.outbox.epoch.round == 1
    data = parts.frame(Kind.DATA, BODY)
    parts.link.put(Arrived(wire.decode(data, 64), data))
    assert rounds.collect(under_way).answer["A"].arrays[0].tolist() == [1]


def test_a_round_with_masked_numbers_waits_for_the_disk(parts):
    rounds = parts.rounds()
    assert rounds.keep_masked(ev.Mask(0, (b"h" * 32,), b"12345678")) == ev.Deliver(b"12345678")
    under_way = rounds.begin(ev.Exchange(BODY, 0, ("A",), ("A",)))
    assert rounds.collect(under_way) == Wait(())
    assert parts.outbox.epoch.round == 0
    parts.outbox.durable(1)
    assert rounds.collect(under_way) == Wait(("A",), "to send round 0")


def test_the_machine_has_the_parts_that_its_page_and_its_drawing_show(driven):
    types = {name: type(part) for name, part in vars(driven("B").machine).items()}
    rooms = {name: one.__module__.removeprefix("eigenmesh.protocol.") for name, one in types.items()}
    assert {name: types[name] for name, file in rooms.items() if file in FILES} == PARTS
    rows = re.findall(r"^\| `(\w+)` \|(.*?)\|", (PAGES / "sites" / "machine.md").read_text("utf-8"), re.M)
    shown = {part: set(re.findall(r"`(\w+)`", uses)) for part, uses in rows if part in PARTS}
    assert shown == {name: PARTS.keys() & inspect.signature(part).parameters.keys() for name, part in PARTS.items()}
    drawing = (PAGES / "images" / "machine.svg").read_text("utf-8")
    assert [name for name in PARTS if f">{name}</text>" not in drawing] == []
