"""What the rehearsal has found in the machine, one by one."""

import numpy as np

from eigenmesh import protocol as ep
from eigenmesh.errors import CannotResumeError, ParkedError
from eigenmesh.protocol import effects as ev
from eigenmesh.protocol import wire
from eigenmesh.protocol.setup import make_statement, read_statement
from eigenmesh.protocol.wire import Kind, array_body
from eigenmesh.rehearsal.world import SecretKeyring

BODY = array_body((np.array([1]),), 64)


def of_kind(effects, kind):
    return [one for one in effects if isinstance(one, kind)]


def test_a_solver_that_parts_is_answered_even_if_the_answer_was_dropped_with_a_failed_write(driven):
    site = driven("C")
    stream = site.met("B")
    site.step(ev.Finish())
    site.step(ev.Durable(100))
    answered = of_kind(site.hears(stream, Kind.ACK, tag=1), ev.Deliver)
    assert answered == [ev.Deliver(ev.Parted(()))]
    assert of_kind(site.step(ev.DiskFailed("journal", "full")), ev.Deliver) == answered


def test_a_failed_journal_gets_nothing_more(driven):
    site = driven("B")
    failed = site.step(ev.DiskFailed("journal", "full"))
    assert isinstance(of_kind(failed, ev.Fail)[0].error, ParkedError)
    stream = site.met("A")
    site.hears(stream, Kind.DONE)
    assert of_kind(site.effects, ev.Append) == []


def test_once_the_audit_has_failed_only_the_reason_leaves(driven):
    site = driven("B")
    site.met("A")
    made = site.step(ev.DiskFailed("audit", "full")) + site.step(ev.Tick())
    assert [one for one in of_kind(made, ev.Write) if one.data[5] != Kind.PARK] == []
    assert len(of_kind(made, ev.Write)) == 1
    assert [one.sent for one in of_kind(made, ev.Write)] == [None]


def test_a_journal_and_then_the_audit_that_fail_still_let_the_reason_leave(driven):
    site = driven("B")
    site.met("A")
    # A driver does nothing that follows a message which it cannot record, so these warnings are lost.
    lost = site.step(ev.DiskFailed("journal", "full"))
    assert lost[1].sent is not None
    again = site.step(ev.DiskFailed("audit", "full"))
    assert [one.sent for one in of_kind(again, ev.Write)] == [None]
    told = [frame.text for frame in site.written(again, Kind.PARK)]
    assert told == ["B parked the run: the journal cannot be written: full. Start all sites again once that is fixed."]


def test_a_word_of_an_earlier_process_does_not_put_the_run_off_again(driven):
    site = driven("B")
    site.met("A", start=2)
    # Site A is the first one, and its first process parked.
    assert of_kind(site.hears(1, Kind.PARK, "A parked the run: it was stopped.", 0, tag=1), ev.Fail) == []
    assert of_kind(site.hears(1, Kind.PARK, "A parked the run: it was stopped.", 0, tag=2), ev.Fail) != []


def test_a_site_that_was_started_again_is_not_put_off_by_those_that_leave(driven):
    site = driven("B")
    site.met("A", start=1)
    site.step(ev.Stop("stopped", parks=True))
    before = len(site.effects)
    site.met("A", start=2)
    assert site.written(site.effects[before:], Kind.WELCOME)
    assert not site.written(site.effects[before:], Kind.PARK)


def test_a_reason_is_passed_on_with_one_name_of_who_passes_it_on(driven):
    site = driven("B")
    site.met("A")
    fail, *_ = of_kind(site.hears(1, Kind.ABORT, "C ended the run: it was stopped."), ev.Fail)
    assert str(fail.error) == "A says: C ended the run: it was stopped."
    assert [frame.text for frame in site.written(site.effects, Kind.ABORT)] == ["C ended the run: it was stopped."]


def test_a_greeting_that_was_overtaken_is_refused_for_now_and_not_for_ever(driven):
    site = driven("B")
    site.met("A")
    site.step(ev.Exchange(BODY, 0, ("A",), ("A",)))
    site.hears(1, Kind.HEARTBEAT, acknowledged=1)
    site.step(ev.Opened(7, ("A",)))
    (refusal,) = site.written(site.hears(7, Kind.HELLO, site.greeting_of("A"), round_=0), Kind.REFUSE)
    assert refusal.tag == 0
    assert "since" in refusal.text


def test_a_later_process_that_has_lost_rounds_is_refused_for_ever(driven):
    site = driven("B")
    site.met("A")
    site.step(ev.Exchange(BODY, 0, ("A",), ("A",)))
    site.hears(1, Kind.HEARTBEAT, acknowledged=1)
    site.step(ev.Opened(7, ("A",)))
    (refusal,) = site.written(site.hears(7, Kind.HELLO, site.greeting_of("A", start=2), round_=0), Kind.REFUSE)
    assert refusal.tag == 2


def test_a_manifest_is_shown_to_neighbours_alone_and_nobody_is_met_by_that(driven):
    site = driven("B")
    site.step(ev.Opened(1, ("A",)))
    effects = site.hears(1, Kind.MANIFEST)
    assert [frame.text for frame in site.written(effects, Kind.MANIFEST)] == ["sum"]
    assert effects[-1] == ev.Cut(1)
    assert of_kind(effects, ev.Append) == []
    assert not site.machine.epoch.links["A"].joined
    site.step(ev.Opened(2, ("D",)))
    effects = site.hears(2, Kind.MANIFEST)
    assert of_kind(effects, ev.Write) == []
    assert effects[-1] == ev.Cut(2)


def hears_from_run(site, name, number):
    """A neighbour calls that is in another run of a series, and says which."""
    site.streams += 1
    site.step(ev.Opened(site.streams, (name,)))
    greeting = f"{name}\n{number:064x}\nof another run"
    (refusal,) = site.written(site.hears(site.streams, Kind.HELLO, greeting), Kind.REFUSE)
    assert (refusal.tag, refusal.text) == (1, site.run.manifest)
    return site.hears(site.streams, Kind.MANIFEST, str(number))


def in_series(driven):
    return driven("C", run=ep.Run(bytes(16), "4", 64, runs_to=lambda ours, theirs: int(theirs) - int(ours)))


def test_a_neighbour_in_an_earlier_run_of_a_series_is_waited_for(driven):
    site = in_series(driven)
    site.now = 50.0
    assert of_kind(hears_from_run(site, "B", 3), ev.Fail) == []
    link = site.machine.epoch.links["B"]
    assert (link.heard, link.finished) == (50.0, False)
    # One of another series ends the run, as any other that is set up otherwise.
    site = driven("C")
    assert of_kind(hears_from_run(site, "B", 3), ev.Fail) != []


def test_a_neighbour_in_a_later_run_of_a_series_needs_nothing_more_of_this_one(driven):
    site = in_series(driven)
    site.step(ev.Finish())
    assert of_kind(site.step(ev.Durable(100)), ev.Deliver) == []
    assert of_kind(hears_from_run(site, "B", 5), ev.Deliver) == [ev.Deliver(ev.Parted(()))]


def test_one_call_at_a_time(driven):
    site = driven("B")
    assert of_kind(site.step(ev.SiteStarted()), ev.Dial) == [ev.Dial("C", 0.0)]
    site.step(ev.Opened(1, ("C",), "C"))
    assert of_kind(site.step(ev.SiteStarted()), ev.Dial) == []
    assert len(of_kind(site.step(ev.Closed(1)), ev.Dial)) == 1
    assert of_kind(site.step(ev.SiteStarted()), ev.Dial) == []


def test_a_farewell_waits_until_all_is_on_the_disk(driven):
    site = driven("B")
    site.met("A")
    made = site.step(ev.Finish())
    assert site.written(made, Kind.DONE) == []
    records = len(of_kind(site.effects, ev.Append))
    assert site.written(site.step(ev.Durable(records - 1)), Kind.DONE) == []
    assert len(site.written(site.step(ev.Durable(records)), Kind.DONE)) == 1


def test_what_another_process_of_this_site_has_said_ends_this_one_and_is_not_passed_on(driven):
    site = driven("B")
    site.met("A")
    text = make_statement(SecretKeyring("B"), bytes(16), "result", "B", [0, "0" * 64, ""]).text
    (fail,) = of_kind(site.hears(1, Kind.STATEMENT, text), ev.Fail)
    assert isinstance(fail.error, CannotResumeError)
    before = len(site.effects)
    site.met("A")
    assert text not in [frame.text for frame in site.written(site.effects[before:], Kind.STATEMENT)]


def two_views_of(site, name):
    for digest in ("0" * 32, "1" * 32):
        text = make_statement(SecretKeyring(name), bytes(16), "view", name, [1, digest, ""]).text
        made = site.hears(1, Kind.STATEMENT, text)
    return made


def test_two_views_of_a_site_that_do_not_follow_from_each_other_end_the_run(driven):
    site = driven("B")
    site.met("A")
    (fail,) = of_kind(two_views_of(site, "C"), ev.Fail)
    assert "C has signed two views" in str(fail.error)


def test_a_neighbour_that_says_two_views_is_refused(driven):
    site = driven("B")
    site.met("A")
    (refusal,) = site.written(two_views_of(site, "A"), Kind.REFUSE)
    assert refusal.text.startswith("A has signed two views")
    assert refusal.tag == 2


def test_numbers_of_a_journal_that_is_gone_are_not_used_with_those_of_the_next(driven):
    """A site that crashed before it had anything may begin anew, with other data: what it sent before is void."""
    site = driven("B")
    first = site.met("A")
    machine = site.machine
    old = array_body((np.array([7]),), 64)
    site.step(ev.Bytes(first, wire.encode(Kind.DATA, machine.epoch.run_id, 0, 0, 0, old, 0)))
    site.step(ev.Opened(7, ("A",)))
    (welcome,) = site.written(site.hears(7, Kind.HELLO, site.greeting_of("A", identity="AAAB")), Kind.WELCOME)
    assert welcome.round == 0
    assert of_kind(site.step(ev.Exchange(BODY, 0, (), ("A",))), ev.Deliver) == []
    new = array_body((np.array([8]),), 64)
    answered = of_kind(
        site.step(ev.Bytes(7, wire.encode(Kind.DATA, machine.epoch.run_id, 0, 0, 0, new, 0))), ev.Deliver
    )
    assert answered[0].answer["A"].arrays[0].tolist() == [8]


def test_the_time_to_agree_on_who_continues_begins_with_the_loss(driven):
    """However long the run has lasted before it."""
    site = driven("B", on_loss="continue")
    stream, site.now = site.met("A"), 1e6
    site.step(ev.Tick())
    site.step(ev.Exchange(BODY, 0, (), ("C",)))
    while not site.machine.membership.lost:
        site.now += 3.0
        site.hears(stream, Kind.HEARTBEAT)
        site.step(ev.Tick())
    assert site.machine.membership.lost == (("B", "C"),)
    assert site.machine.waiting_for == ("A",)
    assert of_kind(site.effects, ev.Fail) == []


def test_a_neighbour_that_only_others_have_met_is_waited_for_as_if_it_had_been_met(driven):
    """It has started, so the long wait for a site that is still to start is over."""
    site = driven("B", on_loss="continue")
    stream = site.met("A")
    site.step(ev.Exchange(BODY, 0, (), ("C",)))
    site.hears(stream, Kind.STATEMENT, driven("C").machine.outbox.make_instance().text)
    while site.now <= site.machine.setup.patience_s:
        assert site.machine.membership.lost == ()
        site.now += 3.0
        site.hears(stream, Kind.HEARTBEAT)
        site.step(ev.Tick())
    assert site.machine.membership.lost == (("B", "C"),)


# The last word of a site that has left for good.


def last_word(driven, name, how, start=1, identity=""):
    """What a process of this site says that has left."""
    leaving = driven(name, start, identity).machine
    leaving.peering.leave(how)
    return leaving.peering.last_word.text


def test_a_site_that_has_finished_is_not_waited_for_at_the_end(driven):
    one = driven("B", has_result=True)
    one.step(ev.SiteStarted())
    one.step(ev.Finish())
    for name in ("A", "C"):
        one.streams += 1
        one.step(ev.Opened(one.streams, (name,), name if name == "C" else ""))
        one.hears(one.streams, wire.Kind.STATEMENT, last_word(driven, name, "finished"))
    assert one.effects[-1] == ev.Deliver(ev.Parted(()))
    # It says that it has heard them once that is on its disk.
    assert one.written(one.effects, wire.Kind.ACK) == []
    made = one.step(ev.Durable(10))
    assert [frame.tag for frame in one.written(made, wire.Kind.ACK)] == [2, 2]


def test_the_last_word_of_a_second_process_is_not_believed_while_the_first_is_linked(driven):
    one = driven("B")
    one.met("A")
    word = last_word(driven, "A", "refused", 2, "later")
    one.streams += 1
    one.step(ev.Opened(one.streams, ("A",)))
    refused = one.hears(one.streams, wire.Kind.STATEMENT, word)
    assert "another process of A" in one.written(refused, wire.Kind.REFUSE)[0].text
    assert one.machine.outbox.failure is None
    # The link goes, and nothing is heard for long.
    one.step(ev.Closed(1))
    one.now += 20.0
    one.streams += 1
    one.step(ev.Opened(one.streams, ("A",)))
    one.hears(one.streams, wire.Kind.STATEMENT, word)
    assert "A cannot resume the run: its journal is gone" in str(one.machine.outbox.failure)


def test_a_last_word_in_the_name_of_another_site_is_refused(driven):
    one = driven("B")
    one.now += 100.0
    one.step(ev.Opened(1, ("A",)))
    one.hears(1, wire.Kind.STATEMENT, last_word(driven, "C", "damaged"))
    assert one.machine.outbox.failure is None
    assert one.machine.membership.how_it_left("C") == ("", 0)


def test_a_site_that_remembers_a_last_word_tells_the_one_that_is_back_why_the_run_ends(driven):
    """Where all are started again, it would wait in vain for the others, which end at once."""
    one, word = driven("B"), last_word(driven, "A", "refused")
    one.machine.membership.add(read_statement(word, None, bytes(16)))
    one.step(ev.SiteStarted())
    assert "A cannot resume the run: its journal is gone" in str(one.machine.outbox.failure)
    one.streams += 1
    one.step(ev.Opened(one.streams, ("C",), "C"))
    one.hears(one.streams, Kind.WELCOME, one.greeting_of("C"))
    one.step(ev.Finish())
    assert not any(isinstance(effect, ev.Deliver) for effect in one.effects)
    one.met("A")
    _, to_a = one.written(one.effects, Kind.ABORT)
    assert "A cannot resume the run" in to_a.text
    assert one.effects[-1] == ev.Deliver(ev.Parted(("A", "C")))
