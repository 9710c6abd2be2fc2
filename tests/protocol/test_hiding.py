"""Keys for masks and masked numbers in the machine: shown, kept, sent once, and refused by name."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from eigenmesh import protocol as ep
from eigenmesh.errors import CannotResumeError, FrameError
from eigenmesh.protocol import effects as ev
from eigenmesh.protocol import wire
from eigenmesh.protocol.setup import Past, Stage, make_statement
from eigenmesh.protocol.wire import Kind, array_body
from eigenmesh.rehearsal.world import SecretKeyring

BODY = array_body((np.array([1]),), 64)
KEYS = {name: name.encode() * 32 for name in "ABC"}
# Running hashes of what a site has heard.
START, NEXT, OTHER = b"s" * 32, b"n" * 32, b"o" * 32


def of_kind(effects, kind):
    return [one for one in effects if isinstance(one, kind)]


@pytest.fixture
def masked(driven):
    """Site B, in the middle, in a run with masks; A is met, and C may be heard of through it."""
    site = driven("B")
    setup = replace(site.machine.setup, masked=True)
    site.machine = ep.SiteMachine(setup, site.machine.past, Random(0), 0.0)
    site.met("A")
    return site


def shows(name, key, start=1, identity=""):
    return make_statement(
        SecretKeyring(name), bytes(16), "instance", name, [identity or name * 4, start, "n", key]
    ).text


def heard(name, position, digest, stage=Stage.SET_UP, start=0):
    content = [0, stage, position, digest.hex(), start]
    return make_statement(SecretKeyring(name), bytes(16), "heard", name, content).text


def answers(effects):
    return [one.answer for one in of_kind(effects, ev.Deliver)]


def failures(effects):
    return [str(one.error) for one in of_kind(effects, ev.Fail)]


def own_statements(frames):
    return [frame.text for frame in frames if '"site":"B"' in frame.text]


def on_disk(site):
    return site.step(ev.Durable(len(of_kind(site.effects, ev.Append))))


def test_the_set_up_ends_once_all_members_have_heard_the_same(masked):
    assert answers(masked.step(ev.Compare(Stage.SET_UP, (START, NEXT)))) == []
    assert masked.machine.waiting_for == ("A", "C")
    masked.hears(1, Kind.STATEMENT, heard("C", 1, NEXT))
    masked.hears(1, Kind.STATEMENT, heard("A", 1, NEXT))
    made = on_disk(masked)
    assert answers(made) == [None]
    own = own_statements(masked.written(made, Kind.STATEMENT))
    assert NEXT.hex() in own[0]


@pytest.mark.parametrize("first", [True, False], ids=["known before", "hears later"])
@pytest.mark.parametrize(
    ("position", "digest"), [(1, OTHER), (0, OTHER), (2, NEXT)], ids=["another sum", "earlier", "other rounds"]
)
def test_a_member_that_was_told_something_else_ends_the_run_by_name(masked, first, position, digest):
    steps = [
        lambda: masked.hears(1, Kind.STATEMENT, heard("C", position, digest)),
        lambda: masked.step(ev.Compare(Stage.SET_UP, (START, NEXT))),
    ]
    made = [effect for step in (steps if first else steps[::-1]) for effect in step()]
    (said,) = failures(made)
    assert said.startswith("C was told other numbers than B: a site does not follow the protocol, or")
    assert "B ended the run: C was told other numbers than B" in masked.written(made, Kind.ABORT)[0].text


def test_a_result_counts_only_if_all_have_heard_the_same(masked):
    masked.step(ev.Sign("d" * 64, (START,)))
    text = make_statement(SecretKeyring("C"), bytes(16), "result", "C", [0, "d" * 64, OTHER.hex()]).text
    (said,) = failures(masked.hears(1, Kind.STATEMENT, text))
    assert "C was told other numbers than B" in said


def test_a_site_with_an_error_waits_for_what_the_others_have_heard_up_to_it(masked):
    masked.step(ev.Mask(0, (START,), b"12345678"))
    assert answers(masked.step(ev.Compare(Stage.ENDING, (NEXT,)))) == []
    masked.hears(1, Kind.STATEMENT, heard("C", 1, NEXT, Stage.ENDING, 1))
    masked.hears(1, Kind.STATEMENT, heard("A", 1, NEXT, Stage.ENDING, 1))
    assert answers(on_disk(masked)) == [None]


def test_asked_by_a_site_with_an_error_the_others_say_what_they_have_heard_up_to_it(masked):
    masked.step(ev.Mask(0, (START, NEXT), b"12345678"))
    masked.hears(1, Kind.STATEMENT, heard("C", 0, START, Stage.ENDING, 1))
    (own,) = own_statements(masked.written(on_disk(masked), Kind.STATEMENT))
    assert f'[0,"ending",0,"{START.hex()}",1]' in own
    assert masked.machine.outbox.failure is None
    (said,) = failures(masked.hears(1, Kind.STATEMENT, heard("A", 1, OTHER, Stage.ENDING, 1)))
    assert "A was told other numbers than B" in said


def test_a_site_that_is_asked_before_it_has_heard_anything_answers_as_soon_as_it_has(masked):
    masked.hears(1, Kind.STATEMENT, heard("C", 3, OTHER, Stage.ENDING, 1))
    assert own_statements(masked.written(on_disk(masked), Kind.STATEMENT)) == []
    masked.step(ev.Mask(0, (START,), b"12345678"))
    (own,) = own_statements(masked.written(on_disk(masked), Kind.STATEMENT))
    assert f'[0,"ending",0,"{START.hex()}",1]' in own


def test_a_site_that_says_nothing_does_not_hold_up_an_error(masked):
    masked.step(ev.Mask(0, (START,), b"12345678"))
    masked.step(ev.Compare(Stage.ENDING))
    on_disk(masked)
    masked.hears(1, Kind.STATEMENT, heard("A", 0, START, Stage.ENDING, 1))
    masked.now += masked.machine.setup.patience_s + 1
    masked.hears(1, Kind.HEARTBEAT)
    assert answers(masked.effects)[-1] is None


def test_two_accounts_of_what_was_heard_end_the_run(masked):
    masked.hears(1, Kind.STATEMENT, heard("C", 1, NEXT))
    (said,) = failures(masked.hears(1, Kind.STATEMENT, heard("C", 1, OTHER)))
    assert "C has signed two accounts of what it has heard" in said


def test_keys_are_answered_once_all_members_have_shown_theirs(masked):
    own = masked.machine.past.site_key(()).public
    masked.machine.membership._known.clear()
    masked.machine.membership.add(masked.machine.outbox.make_instance())
    assert of_kind(masked.step(ev.Keys()), ev.Deliver) == []
    assert masked.machine.waiting_for == ("A", "C")
    masked.hears(1, Kind.STATEMENT, shows("C", KEYS["C"].hex()))
    made = masked.hears(1, Kind.STATEMENT, shows("A", KEYS["A"].hex()))
    assert of_kind(made, ev.Deliver) == [ev.Deliver({"A": KEYS["A"], "B": own, "C": KEYS["C"]})]


def test_a_member_without_a_key_ends_the_run_by_name(masked):
    masked.hears(1, Kind.STATEMENT, shows("C", KEYS["C"].hex()))
    (fail,) = of_kind(masked.step(ev.Keys()), ev.Fail)
    assert "A sent no key for masks" in str(fail.error)


def test_a_key_that_its_site_has_not_signed_is_refused(masked):
    forged = shows("C", KEYS["C"].hex()).replace(KEYS["C"].hex(), KEYS["A"].hex())
    made = masked.hears(1, Kind.STATEMENT, forged)
    assert "a statement in the name of C is not signed by it" in of_kind(made, ev.Log)[0].text
    assert of_kind(made, ev.Cut)


def test_another_key_from_the_same_journal_ends_the_run(masked):
    masked.hears(1, Kind.STATEMENT, shows("C", KEYS["C"].hex()))
    (fail,) = of_kind(masked.hears(1, Kind.STATEMENT, shows("C", KEYS["A"].hex(), start=2)), ev.Fail)
    assert isinstance(fail.error, CannotResumeError)
    assert "C has sent two keys for masks" in str(fail.error)


def test_once_something_is_masked_no_site_may_begin_anew_with_another_key(masked):
    masked.hears(1, Kind.STATEMENT, shows("C", KEYS["C"].hex()))
    masked.step(ev.Mask(0, (START,), b"12345678"))
    (fail,) = of_kind(masked.hears(1, Kind.STATEMENT, shows("C", KEYS["A"].hex(), identity="D" * 4)), ev.Fail)
    assert "C has started the run over" in str(fail.error)


def test_nothing_leaves_before_what_is_masked_is_on_the_disk(masked):
    made = masked.step(ev.Mask(0, (START,), b"12345678"))
    assert of_kind(made, ev.Deliver) == [ev.Deliver(b"12345678")]
    (kept,) = of_kind(made, ev.Append)
    assert kept.urgent
    assert START + b"12345678" in kept.record
    sent = masked.step(ev.Exchange(BODY, 0, ("A",), ()))
    assert masked.written(sent, Kind.DATA) == []
    records = len(of_kind(masked.effects, ev.Append))
    assert masked.written(masked.step(ev.Durable(records - 1)), Kind.DATA) == []
    assert len(masked.written(masked.step(ev.Durable(records)), Kind.DATA)) == 1


def test_what_was_masked_before_a_crash_is_given_again(masked):
    entry = wire.JournalRecord(wire.Mark.MASKED, 1, 0, 3, 0, 8)
    past = Past(masked.machine.past.instance, (entry,), lambda one: START + b"as it was", "secret")
    machine = ep.SiteMachine(masked.machine.setup, past, Random(0), 0.0)
    assert machine.step(0.0, ev.Mask(3, (START,), b"other one")) == [ev.Deliver(b"as it was")]
    made = machine.step(0.0, ev.Mask(4, (NEXT,), b"a new one"))
    assert of_kind(made, ev.Deliver) == [ev.Deliver(b"a new one")]


def test_a_journal_with_other_sizes_does_not_fit(masked):
    entry = wire.JournalRecord(wire.Mark.MASKED, 1, 0, 0, 0, 8)
    past = Past(masked.machine.past.instance, (entry,), lambda one: START + b"as it was", "secret")
    machine = ep.SiteMachine(masked.machine.setup, past, Random(0), 0.0)
    (said,) = failures(machine.step(0.0, ev.Mask(0, (START,), b"12345678")))
    assert "the journal of B does not fit this run: average 0 has 9 bytes in it, but this run needs 8" in said


def test_a_journal_of_a_site_that_heard_something_else_does_not_fit(masked):
    entry = wire.JournalRecord(wire.Mark.MASKED, 1, 0, 0, 0, 8)
    past = Past(masked.machine.past.instance, (entry,), lambda one: OTHER + b"12345678", "secret")
    machine = ep.SiteMachine(masked.machine.setup, past, Random(0), 0.0)
    (said,) = failures(machine.step(0.0, ev.Mask(0, (START,), b"12345678")))
    assert "the journal of B does not fit this run: what was heard before average 0 has another hash now" in said


def test_a_counter_that_goes_back_ends_the_run(masked):
    masked.step(ev.Mask(5, (START,), b"12345678"))
    (fail,) = of_kind(masked.step(ev.Mask(5, (), b"87654321")), ev.Fail)
    assert "average 5 would be masked again; the next one is 6" in str(fail.error)


def test_an_epoch_has_keys_and_masks_of_its_own(masked):
    machine, lost = masked.machine, (("B", "C"),)
    assert machine.past.site_key(()).public != machine.past.site_key(lost).public
    before = machine.mask_context
    machine.outbox.enter(lost)
    machine.rounds.enter()
    assert (machine.mask_context.epoch, machine.mask_context.names) == (1, ("A", "B"))
    assert machine.mask_context.run != before.run
    assert machine.rounds.next_masked == 0


def test_an_old_version_is_refused_by_its_number():
    frame = bytearray(wire.encode(Kind.ACK, bytes(16), 0, 0, 0, wire.text_body("")))
    frame[4] = 3
    with pytest.raises(FrameError, match="version 3 of the format is not 4"):
        wire.decode(bytes(frame), 64)
