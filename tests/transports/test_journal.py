"""The journal gives back what was written, whatever the moment at which the process died."""

import os
import struct
import threading
from contextlib import closing
from pathlib import Path

import pytest

from disks import SmallDisk
from eigenmesh.errors import CannotResumeError, InputError, UnreadableFileError
from eigenmesh.protocol import wire
from eigenmesh.protocol.wire import Kind, Mark, record
from eigenmesh.transports.tls import journal as journal_module
from eigenmesh.transports.tls.connection import Supervisor
from eigenmesh.transports.tls.journal import Journal, forget_masked

HEAD = {"run id": "00", "site": "oslo"}
# Length, checksum, mark, sender, epoch and round of a record.
FIELDS = 25


def frame(text):
    """A frame whose body is this text."""
    return wire.encode(Kind.HEARTBEAT, bytes(16), 0, 0, 0, wire.text_body(text))


CONTENTS = [
    (Mark.FRAME, 1, 0, frame("first")),
    (Mark.DONE, 2, 0, b""),
    (Mark.FRAME, 1, 1, frame("x" * 192)),
    (Mark.EPOCH, 2, 3, b"z"),
]


def made(mark, sender, round_, content):
    return record(mark, content, sender, 0, round_)


def opened(path, head=HEAD, safe=None, failures=None):
    told = [(calls if calls is not None else []).append for calls in (safe, failures)]
    return Journal(path, head, *told, Supervisor())


def written(path, contents=CONTENTS):
    safe = []
    journal = opened(path, safe=safe)
    for content in contents:
        journal.append(made(*content))
    assert journal.flush(10.0)
    journal.close()
    return safe


def contents(journal):
    """All records but the starts."""
    entries = [entry for entry in journal.past.entries if entry.mark is not Mark.START]
    return [(entry.mark, entry.sender, entry.round, journal.read(entry)) for entry in entries]


def test_records_come_back_in_order_and_more_can_follow(tmp_path):
    path = tmp_path / "journal"
    written(path)
    journal = opened(path)
    assert contents(journal) == CONTENTS
    assert journal.past.instance.start == 2
    journal.append(made(Mark.FRAME, 1, 2, frame("more")))
    journal.close()
    journal.close()
    journal = opened(path)
    assert contents(journal) == [*CONTENTS, (Mark.FRAME, 1, 2, frame("more"))]
    journal.close()


def test_every_start_is_counted_and_newer_journals_have_greater_identities(tmp_path):
    first = opened(tmp_path / "one")
    first.close()
    again = opened(tmp_path / "one")
    again.close()
    other = opened(tmp_path / "two")
    other.close()
    assert first.past.instance.start == 1
    assert (first.past.instance.start, again.past.instance.start, other.past.instance.start) == (1, 2, 1)
    assert again.past.instance.identity == first.past.instance.identity < other.past.instance.identity
    assert again.past.instance.nonce != first.past.instance.nonce


def test_records_are_called_durable_only_once_they_are_in_the_file(tmp_path):
    path, seen = tmp_path / "journal", []
    durable = lambda count: seen.append((count, path.read_bytes()))  # noqa: E731
    journal = Journal(path, HEAD, durable, lambda reason: None, Supervisor())
    for number in range(50):
        journal.append(made(Mark.FRAME, 1, number, frame(f"frame {number}.")))
    assert journal.flush(10.0)
    journal.close()
    # The first record is that of the start.
    assert seen[-1][0] == 51
    for count, content in seen:
        assert b"frame %d." % (count - 2) in content


def test_what_was_masked_is_forgotten_and_the_rest_of_the_journal_stays(tmp_path):
    path = tmp_path / "journal"
    kept = [(Mark.STATEMENT, 0, 0, b"a site is there"), (Mark.FRAME, 1, 0, frame("frame 0."))]
    written(path, [kept[0], (Mark.MASKED, 0, 0, bytes(40)), kept[1]])
    forget_masked(path)
    with closing(opened(path)) as journal:
        assert contents(journal) == kept
        assert journal.past.instance.start == 2
    path.write_bytes(path.read_bytes()[:-9])
    before = path.read_bytes()
    forget_masked(path)
    assert path.read_bytes() == before


def test_much_that_waits_is_flushed_before_its_time(tmp_path, monkeypatch):
    monkeypatch.setattr("eigenmesh.transports.tls.journal.FLUSH_EVERY_S", 600.0)
    monkeypatch.setattr("eigenmesh.transports.tls.journal.FLUSH_BYTES", 1000)
    safe, flushed = [], threading.Event()
    durable = lambda count: (safe.append(count), flushed.set())  # noqa: E731
    journal = Journal(tmp_path / "journal", HEAD, durable, lambda reason: None, Supervisor())
    journal.append(made(Mark.FRAME, 1, 0, frame("little")))
    assert not flushed.wait(0.3)
    journal.append(made(Mark.FRAME, 1, 1, frame("x" * 2000)))
    assert flushed.wait(10.0)
    assert safe == [3]
    journal.close()


@pytest.mark.slow
def test_a_tail_torn_at_any_byte_is_cut_off(tmp_path):
    path = tmp_path / "journal"
    written(path)
    whole, after = path.read_bytes(), (Mark.FRAME, 3, 9, frame("after"))
    ends = [len(whole) - sum(FIELDS + len(content) for *_, content in CONTENTS)]
    for *_, content in CONTENTS:
        ends.append(ends[-1] + FIELDS + len(content))
    # All around the ends of records; inside a body one byte is like the next.
    around = {at for end in ends for at in range(end - 4, end + FIELDS + 4)}
    for length in sorted({*range(0, len(whole), 11), *around} & set(range(len(whole)))):
        # The records were on their way to the disk when the process died.
        noted = min(length, ends[0]) if length >= ends[0] else 0
        path.write_bytes((whole[:8] + struct.pack("<Q", noted) + whole[16:])[:length])
        journal = opened(path)
        known = sum(end <= length for end in ends[1:])
        assert contents(journal) == CONTENTS[:known]
        journal.append(made(*after))
        journal.close()
        journal = opened(path)
        assert contents(journal) == [*CONTENTS[:known], after]
        journal.close()


@pytest.mark.parametrize("place", ["length", "checksum", "mark", "sender", "epoch", "round", "body"])
def test_a_changed_byte_ends_what_is_believed(tmp_path, place):
    path = tmp_path / "journal"
    written(path)
    data = bytearray(path.read_bytes())
    third = len(data) - (FIELDS + 1) - (FIELDS + 256)
    places = {"length": 1, "checksum": 4, "mark": 8, "sender": 9, "epoch": 13, "round": 17, "body": 200}
    data[third + places[place]] ^= 1
    path.write_bytes(data)
    with pytest.raises(CannotResumeError, match="is damaged: only "):
        opened(path)
    assert path.read_bytes() == data
    # Beyond what is known to be on the disk it is a tail.
    path.write_bytes(data[:8] + struct.pack("<Q", third) + data[16:])
    journal = opened(path)
    assert contents(journal) == CONTENTS[:2]
    journal.close()


def test_damage_in_the_last_record_that_was_called_durable_is_refused_after_a_power_loss(tmp_path, monkeypatch):
    """What is left is what the last flush has brought to the disk, with the note of how much that is."""
    path, on_disk, left = tmp_path / "journal", [], []
    for call in ("fsync", "fdatasync"):
        original = getattr(os, call, os.fsync)
        seen = lambda file, original=original: (original(file), on_disk.append(path.read_bytes()))  # noqa: E731
        monkeypatch.setattr(os, call, seen, raising=False)
    journal = Journal(path, HEAD, lambda count: left.append(on_disk[-1]), lambda reason: None, Supervisor())
    journal.append(made(Mark.MASKED, 0, 0, b"masked words"), urgent=True)
    assert journal.flush(10.0)
    journal.close()
    data = bytearray(left[0])
    assert data.endswith(b"masked words")
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CannotResumeError, match="is damaged: only "):
        opened(path)


def test_a_journal_that_has_become_shorter_is_refused(tmp_path):
    path = tmp_path / "journal"
    written(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CannotResumeError, match="another name"):
        opened(path)


def test_a_journal_of_another_run_or_site_is_refused(tmp_path):
    path = tmp_path / "journal"
    written(path)
    before = path.read_bytes()
    with pytest.raises(InputError, match="site differ"):
        opened(path, {**HEAD, "site": "bergen"})
    with pytest.raises(InputError, match="epoch, run id differ"):
        opened(path, {**HEAD, "run id": "01", "epoch": "1"})
    assert path.read_bytes() == before


def test_other_files_and_damaged_heads_are_refused_untouched(tmp_path):
    path = tmp_path / "journal"
    path.write_bytes(b"name,age\nx,3\n")
    with pytest.raises(CannotResumeError, match="not a journal"):
        opened(path)
    assert path.read_bytes() == b"name,age\nx,3\n"
    path.unlink()
    written(path)
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
    with pytest.raises(CannotResumeError, match="damaged"):
        opened(path)


@pytest.mark.skipif(os.name != "posix", reason="files are locked on POSIX only")
def test_two_processes_cannot_share_a_journal(tmp_path):
    journal = opened(tmp_path / "journal")
    with pytest.raises(InputError, match="running already"):
        opened(tmp_path / "journal")
    journal.close()
    opened(tmp_path / "journal").close()


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX")
def test_others_cannot_read_it(tmp_path):
    opened(tmp_path / "journal").close()
    assert (tmp_path / "journal").stat().st_mode & 0o077 == 0


@pytest.fixture
def small_disk(tmp_path):
    with closing(SmallDisk(tmp_path / "disk", "size=64k")) as disk:
        yield disk.folder


def full_disk(path, frames):
    safe, failures = [], []
    journal = opened(path, safe=safe, failures=failures)
    for number in range(frames):
        journal.append(made(Mark.FRAME, 1, number, frame("x" * 4032)))
        assert journal.flush(10.0)
    journal.append(made(Mark.FRAME, 1, frames, frame("later")))
    assert journal.flush(10.0)
    journal.close()
    assert failures == ["No space left on device"]
    assert journal.failed == failures[0]
    # Without the record of the start.
    return safe[-1] - 1


def test_a_full_disk_is_told_once_and_nothing_is_called_safe_after_that(small_disk):
    safe = full_disk(small_disk / "journal", 40)
    journal = opened(small_disk / "journal")
    assert 0 < safe < 40
    # What was called safe is there, and a record that was cut short is not.
    assert [round_ for _, _, round_, _ in contents(journal)] == list(range(safe))
    journal.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_disk_that_takes_nothing_is_refused_at_once():
    with pytest.raises(UnreadableFileError, match="No space left"):
        opened(Path("/dev/full"))


def test_a_received_total_and_the_masked_words_that_follow_wait_for_one_flush(tmp_path, monkeypatch):
    """The total is not urgent; the masked words are, and take it with them to the disk."""
    flushes = []
    flush = journal_module.sync
    monkeypatch.setattr(journal_module, "sync", lambda file: (flushes.append(file), flush(file)))
    monkeypatch.setattr(journal_module, "FLUSH_EVERY_S", 600.0)
    safe, seen = [], threading.Event()
    journal = Journal(tmp_path / "journal", HEAD, lambda n: (safe.append(n), seen.set()), safe.append, Supervisor())
    flushes.clear()
    journal.append(made(Mark.FRAME, 1, 0, frame("the total")))
    journal.append(made(Mark.MASKED, 0, 1, bytes(40)), urgent=True)
    assert seen.wait(60)
    assert (safe, len(flushes)) == ([3], 1)
    journal.close()
