"""Events in files: what is written is what is read, now and by later versions."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import pytest

from eigenmesh.errors import UnreadableFileError
from eigenmesh.events import (
    KINDS,
    VERSION,
    BatchChecked,
    BoundCertified,
    CertificateInWords,
    Ended,
    Entry,
    EventLog,
    EventReader,
    JsonlWriter,
    LinkLatency,
    LinkTraffic,
    Lost,
    Members,
    NeighbourStatus,
    Planned,
    Record,
    SiteStatus,
    Started,
    event_log,
    from_json,
    to_json,
)

EVENTS = [
    Started("fast-pca", "tree", ("a", "b"), (("a", "b"),), 8, 2, 1e-6, 5000),
    Started("fast-pca", "tree", ("a",), (), 8, 0.9, 1e-6, 5000),
    Record(1, 2, 3, 4, 5),
    Record(1, 2, 3, 4, 5, 0.5, math.inf, -math.inf, 1e-300),
    BoundCertified(7, math.inf, 0.25, ("components 2 and 3 are a pair",)),
    CertificateInWords(("The sine is at most 1e-6.", "Seed 0, as given.")),
    BatchChecked(3, 100, 0.25, 0.01, 0.5, True, "50.0% of its samples are beyond the limit of SPE"),
    LinkTraffic("a", "b", 3, 800),
    LinkLatency("a", "b", 0.04),
    Members("cohort", "a", 1, ("a", "b"), ("c",)),
    SiteStatus(12, 1e9, "the journal is of other data"),
    NeighbourStatus("b", True, 1e9, True, 11, 1000, 2000, "another run", 0.04),
    Lost(("b", "c"), "silent for 30 s"),
    Planned(54.0, math.inf, 0.6, 0.01),
    Ended("done", True, "converged"),
]


def test_every_kind_is_tried():
    assert {type(event) for event in EVENTS} == set(KINDS.values())


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_what_is_written_is_what_is_read(event):
    line = to_json(Entry(12.5, event))
    # Any reader of JSON must be able to read it.
    json.loads(line, parse_constant=pytest.fail)
    again = from_json(line)
    assert again.time_s == 12.5
    assert type(again.event) is type(event)
    assert repr(again.event) == repr(event)


def test_nan_is_null_in_files():
    assert json.loads(to_json(Entry(0.0, Record(1, 2, 3, 4, 5))))["bound"] is None


def test_unknown_kinds_and_newer_versions_are_passed_over(tmp_path):
    weather = {"version": VERSION, "time_s": 1.0, "kind": "weather", "rain": [1, None]}
    newer = {"version": VERSION + 1, "time_s": 1.0, "kind": "record", "rounds": "many"}
    lines = [json.dumps(weather), json.dumps(newer), to_json(Entry(2.0, Ended("done")))]
    (tmp_path / "e.jsonl").write_text("".join(f"{line}\n" for line in lines))
    assert EventReader(tmp_path / "e.jsonl").new() == [Entry(2.0, Ended("done"))]


def test_fields_of_later_versions_are_left_out():
    line = json.dumps({**json.loads(to_json(Entry(1.0, Ended("done")))), "cause": "rain"})
    assert from_json(line).event == Ended("done")


@pytest.mark.parametrize("line", ["", "{", "[1]", "{}", '{"version": 1, "time_s": 0, "kind": "lost"}'])
def test_what_is_no_event_is_refused(line):
    with pytest.raises(UnreadableFileError, match="is not an event"):
        from_json(line)


def test_a_file_is_read_while_it_is_written(tmp_path):
    reader = EventReader(tmp_path / "events.jsonl")
    assert reader.new() == []
    with JsonlWriter(tmp_path / "events.jsonl") as writer:
        log = EventLog(writer, clock=iter([1.0, 2.0, 3.0]).__next__)
        log.emit(EVENTS[0])
        log.emit(EVENTS[3])
        assert reader.new() == [Entry(1.0, EVENTS[0]), Entry(2.0, EVENTS[3])]
        assert reader.new() == []
        log.emit(EVENTS[-1])
        assert reader.new() == [Entry(3.0, EVENTS[-1])]


def test_a_line_that_a_killed_process_left_is_skipped(tmp_path):
    path = tmp_path / "events.jsonl"
    whole = to_json(Entry(1.0, EVENTS[5]))
    path.write_text(f"{whole}\n{whole[:20]}")
    reader = EventReader(path)
    assert len(reader.new()) == 1
    with JsonlWriter(path, append=True) as writer:
        writer(Entry(2.0, EVENTS[-1]))
    assert reader.new() == [Entry(2.0, EVENTS[-1])]
    with JsonlWriter(path) as writer:
        writer(Entry(3.0, EVENTS[-1]))
    # Also by who had read further in the old file.
    assert EventReader(path).new() == reader.new() == [Entry(3.0, EVENTS[-1])]


def test_a_disk_that_refuses_ends_nothing(tmp_path, caplog):
    with JsonlWriter(tmp_path / "none" / "events.jsonl") as writer:
        for _ in range(2):
            writer(Entry(1.0, EVENTS[-1]))
    assert caplog.text.count("events are no longer written") == 1


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("out of luck"), Ended("failed", message="out of luck")),
        (RuntimeError(), Ended("failed", message="RuntimeError")),
        (KeyboardInterrupt(), Ended("stopped", message="interrupted by Ctrl-C")),
        (KeyboardInterrupt("stopped by signal 15"), Ended("stopped", message="stopped by signal 15")),
    ],
)
def test_the_last_event_says_what_failed_or_that_somebody_stopped_it(tmp_path, error, expected):
    def fail():
        with event_log(tmp_path / "events.jsonl") as log:
            log.emit(EVENTS[0])
            raise error

    with pytest.raises(type(error)):
        fail()
    assert EventReader(tmp_path / "events.jsonl").new()[-1].event == expected


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
def test_a_file_is_abandoned_once_its_writers_have_gone_however_they_went(tmp_path):
    path = tmp_path / "events.jsonl"
    reader = EventReader(path)
    assert not reader.is_abandoned
    with JsonlWriter(path) as writer, JsonlWriter(path, append=True) as other:
        for one in (writer, other):
            one(Entry(1.0, EVENTS[-1]))
            assert not reader.is_abandoned
    assert reader.is_abandoned
    code = """
import sys
from eigenmesh.events import Entry, JsonlWriter, Lost
writer = JsonlWriter(sys.argv[1])
writer(Entry(1.0, Lost((), "")))
print("written", flush=True)
sys.stdin.read()
"""
    words = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "written\n"
        assert not reader.is_abandoned
        process.kill()
        process.wait()
    assert reader.is_abandoned
