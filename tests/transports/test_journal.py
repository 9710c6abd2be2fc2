"""The journal gives back what was written, whatever the moment at which the process died."""

import os
import subprocess
import threading
from pathlib import Path

import pytest

from eigenmesh.errors import InputError, UnreadableFileError
from eigenmesh.transports.grpc import _wire as wire
from eigenmesh.transports.grpc._journal import DONE, FRAME, Journal
from eigenmesh.transports.grpc._wire import Kind

HEAD = {"run id": "00", "own data": "abc"}


def frame(text):
    return wire.encode(Kind.VIEW, bytes(16), 0, 0, 0, wire.text_body(text))


FRAMES = [(1, 0, frame("first")), (2, 0, frame("")), (1, 1, frame("x" * 256)), (2, 3, frame("last"))]


def opened(path, head=HEAD, safe=None, failures=None):
    return Journal(
        path, head, (safe if safe is not None else []).append, (failures if failures is not None else []).append
    )


def written(path, frames=FRAMES):
    safe = []
    journal = opened(path, safe=safe)
    for frame in frames:
        journal.append(*frame)
    assert journal.flush(10.0)
    journal.close()
    return safe


def contents(journal):
    return [(entry.sender, entry.round, journal.read(entry)) for entry in journal.entries]


def test_frames_come_back_in_order_and_more_can_follow(tmp_path):
    path = tmp_path / "journal"
    written(path)
    journal = opened(path)
    assert contents(journal) == FRAMES
    journal.append(1, 2, frame("more"))
    journal.append(2, 4, frame("done"), DONE)
    journal.close()
    journal.close()
    journal = opened(path)
    assert contents(journal) == [*FRAMES, (1, 2, frame("more")), (2, 4, frame("done"))]
    assert [entry.mark for entry in journal.entries] == [FRAME] * 5 + [DONE]
    journal.close()


def test_rounds_are_called_safe_only_once_they_are_in_the_file(tmp_path):
    path, seen = tmp_path / "journal", []

    def safe(rounds):
        seen.append((dict(rounds), path.read_bytes()))

    journal = Journal(path, HEAD, safe, lambda reason: None)
    for number in range(50):
        journal.append(1, number, frame(f"frame {number}."))
    assert journal.flush(10.0)
    journal.close()
    assert seen[-1][0] == {1: 50}
    for rounds, content in seen:
        assert b"frame %d." % (rounds[1] - 1) in content


def test_much_that_waits_is_flushed_before_its_time(tmp_path, monkeypatch):
    monkeypatch.setattr("eigenmesh.transports.grpc._journal.FLUSH_EVERY_S", 600.0)
    monkeypatch.setattr("eigenmesh.transports.grpc._journal.FLUSH_BYTES", 1000)
    safe, flushed = [], threading.Event()
    journal = Journal(tmp_path / "journal", HEAD, lambda rounds: (safe.append(rounds), flushed.set()), lambda _: None)
    journal.append(1, 0, frame("little"))
    assert not flushed.wait(0.3)
    journal.append(1, 1, frame("x" * 2000))
    assert flushed.wait(10.0)
    assert safe == [[(1, 2)]]
    journal.close()


@pytest.mark.slow
def test_a_tail_torn_at_any_byte_is_cut_off(tmp_path):
    path = tmp_path / "journal"
    written(path, [])
    empty = path.stat().st_size
    written(path)
    whole = path.read_bytes()
    ends = [empty]
    for _, _, data in FRAMES:
        ends.append(ends[-1] + 21 + len(data))
    assert ends[-1] == len(whole)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        journal = opened(path)
        known = sum(end <= length for end in ends[1:])
        assert contents(journal) == FRAMES[:known]
        journal.append(3, 9, frame("after"))
        journal.close()
        journal = opened(path)
        assert contents(journal) == [*FRAMES[:known], (3, 9, frame("after"))]
        journal.close()


@pytest.mark.parametrize("place", ["length", "checksum", "mark", "sender", "round", "head", "hash", "body"])
def test_a_changed_byte_ends_what_is_believed(tmp_path, place):
    path = tmp_path / "journal"
    written(path)
    data = bytearray(path.read_bytes())
    record = len(data) - (21 + 64 + 4) - (21 + 64 + 256)
    places = {"length": 1, "checksum": 4, "mark": 8, "sender": 9, "round": 13, "head": 21, "hash": 80, "body": 200}
    data[record + places[place]] ^= 1
    path.write_bytes(data)
    journal = opened(path)
    assert contents(journal) == FRAMES[:2]
    journal.close()


def test_a_journal_of_another_run_or_other_data_is_refused(tmp_path):
    path = tmp_path / "journal"
    written(path)
    before = path.read_bytes()
    with pytest.raises(InputError, match="own data differ"):
        opened(path, {**HEAD, "own data": "other"})
    with pytest.raises(InputError, match="epoch, run id differ"):
        opened(path, {**HEAD, "run id": "01", "epoch": "1"})
    assert path.read_bytes() == before


def test_other_files_and_damaged_heads_are_refused_untouched(tmp_path):
    path = tmp_path / "journal"
    path.write_bytes(b"name,age\nx,3\n")
    with pytest.raises(UnreadableFileError, match="no journal"):
        opened(path)
    assert path.read_bytes() == b"name,age\nx,3\n"
    path.unlink()
    written(path)
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    with pytest.raises(UnreadableFileError, match="damaged"):
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
    """A file system of 64 kB, where that is allowed."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True)
    if made.returncode:
        pytest.skip("mounting a small file system is not allowed here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def full_disk(path, frames):
    safe, failures = [], []
    journal = opened(path, safe=safe, failures=failures)
    for number in range(frames):
        journal.append(1, number, frame("x" * 4096))
        assert journal.flush(10.0)
    journal.append(1, frames, frame("later"))
    assert journal.flush(10.0)
    journal.close()
    assert failures == ["the journal cannot be written: No space left on device"]
    assert journal.failed == failures[0]
    return dict(safe[-1])[1]


def test_a_full_disk_is_told_once_and_nothing_is_called_safe_after_that(small_disk):
    safe = full_disk(small_disk / "journal", 40)
    journal = opened(small_disk / "journal")
    assert journal.found
    assert 0 < safe < 40
    # What was called safe is there, and a record that was cut short is not.
    assert [entry.round for entry in journal.entries] == list(range(safe))
    journal.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_disk_that_takes_nothing_is_refused_at_once():
    with pytest.raises(UnreadableFileError, match="No space left"):
        opened(Path("/dev/full"))
