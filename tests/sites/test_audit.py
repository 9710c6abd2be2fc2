"""The audit: every message on record, in order, also after a crash; and what the sum of it says."""

import datetime as dt
import hashlib
import json
import os
import sys
import threading
from dataclasses import asdict

import pytest

from eigenmesh.errors import InputError, UnreadableFileError
from eigenmesh.protocol.effects import Sent
from eigenmesh.sites.audit import AuditWriter, is_covariance_shaped, is_sample_shaped, read_audit, summary

D, N = 64, 500


def _sent(neighbour="oslo", kind="DATA", round_=0, shapes=((1, D, 10),), again=False):
    size = sum(8 * shape[0] * shape[1] * shape[-1] for shape in shapes)
    digest = hashlib.sha256(str(round_).encode()).hexdigest()
    return Sent(neighbour, kind, 0, round_, shapes, ("float64",) * len(shapes), size, size + 80, digest, again)


def _writer(path):
    return AuditWriter(path, "bergen", "cohort-1", n_features=D, n_samples=N)


def _run(path):
    (run,) = summary(path).runs
    return run


def test_lines_are_in_order_and_hold_what_was_sent(tmp_path):
    path = tmp_path / "out" / "audit.jsonl"
    before = dt.datetime.now(dt.UTC)
    with _writer(path) as audit:
        for round_ in range(1000):
            audit.record(_sent(("oslo", "bodo")[round_ % 2], round_=round_))
    start, *lines = read_audit(path)
    assert (start["kind"], start["site"], start["n_samples"]) == ("START", "bergen", N)
    assert [line["round"] for line in lines] == list(range(1000))
    assert lines[3]["to"] == "bodo"
    assert lines[3]["shapes"] == [[1, D, 10]]
    assert lines[3]["dtypes"] == ["float64"]
    assert lines[3]["bytes"] == 8 * D * 10
    assert lines[3]["sha256"] == hashlib.sha256(b"3").hexdigest()
    times = [dt.datetime.fromisoformat(line["at"]) for line in lines]
    assert times == sorted(times)
    assert before - dt.timedelta(milliseconds=1) <= times[0] <= dt.datetime.now(dt.UTC)
    assert audit.messages == 1000


def test_the_sum_is_that_of_what_was_sent(tmp_path):
    path = tmp_path / "audit.jsonl"
    with _writer(path) as audit:
        audit.record(_sent(kind="HELLO", shapes=()))
        for round_ in range(5):
            for neighbour in ("oslo", "bodo"):
                audit.record(_sent(neighbour, round_=round_))
        audit.record(_sent("oslo", round_=4, again=True))
        audit.record(_sent("bodo", round_=5, shapes=((1, D, 12), (1, 1, 3))))
    found = _run(path)
    assert (found.site, found.run, found.starts) == ("bergen", "cohort-1", 1)
    assert found.total.messages == 13
    assert (found.data.messages, found.data.bytes) == (11, 8 * (10 * D * 10 + D * 12 + 3))
    assert (found.again.messages, found.again.bytes) == (1, 8 * D * 10)
    assert found.by_neighbour["oslo"].messages == 7
    assert found.by_neighbour["oslo"].columns == 50
    assert found.by_neighbour["bodo"].columns == 62
    assert found.by_kind["HELLO"].messages == 1
    assert found.shapes == {"1 x 64 x 10 float64": 11, "1 x 64 x 12 float64": 1, "1 x 1 x 3 float64": 1}
    assert (found.largest["to"], found.largest["round"]) == ("bodo", 5)
    assert (found.covariance_shaped, found.sample_shaped) == (0, 0)
    whole = summary(path)
    assert (whole.damaged, whole.chain.broken, whole.chain.lines) == ([], [], 14)
    assert json.loads(json.dumps(asdict(whole)))["runs"][0]["data"]["bytes"] == found.data.bytes


def test_a_torn_line_costs_nothing_but_itself_also_after_a_restart(tmp_path):
    path = tmp_path / "audit.jsonl"
    with _writer(path) as audit:
        for round_ in range(3):
            audit.record(_sent(round_=round_))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    found = summary(path)
    assert (found.runs[0].data.messages, found.damaged, found.chain.broken) == (2, [4], [])
    with _writer(path) as audit:
        audit.record(_sent(round_=2))
    found = summary(path)
    assert (found.runs[0].data.messages, found.runs[0].starts) == (3, 2)
    # The torn line is covered by the hash in the next one.
    assert (found.damaged, found.chain.broken, found.chain.lines) == ([4], [], 6)


def test_any_cut_leaves_a_file_that_can_be_read(tmp_path):
    path = tmp_path / "audit.jsonl"
    with _writer(path) as audit:
        for round_ in range(2):
            audit.record(_sent(round_=round_))
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        lines = list(read_audit(path))
        assert all(line is not None for line in lines[:-1])


def test_a_line_is_in_the_file_before_the_message_leaves(tmp_path):
    path = tmp_path / "audit.jsonl"
    with _writer(path) as audit:
        for round_ in range(3):
            audit.record(_sent(round_=round_))
            assert _run(path).data.messages == round_ + 1
    audit.close()


def test_a_message_that_leaves_after_the_end_is_not_passed_over(tmp_path):
    audit = _writer(tmp_path / "audit.jsonl")
    audit.close()
    assert not audit.failure
    with pytest.raises(UnreadableFileError, match="closed"):
        audit.record(_sent())


def test_many_threads_may_record(tmp_path):
    path = tmp_path / "audit.jsonl"
    with _writer(path) as audit:
        threads = [
            threading.Thread(target=lambda: [audit.record(_sent(round_=round_)) for round_ in range(200)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert _run(path).data.messages == 800


@pytest.mark.skipif(sys.platform == "win32", reason="files are not locked there")
def test_a_site_that_is_started_twice_leaves_the_chain_of_the_first_whole(tmp_path):
    path = tmp_path / "audit.jsonl"
    with _writer(path) as audit:
        with pytest.raises(InputError, match=r"audit.jsonl is in use by another process; is this site running already"):
            _writer(path)
        audit.record(_sent())
    assert (summary(path).chain.broken, summary(path).chain.lines) == ([], 2)
    _writer(path).close()


@pytest.mark.skipif(sys.platform == "win32", reason="files are not locked there")
def test_an_audit_that_cannot_be_read_is_closed_again(tmp_path, monkeypatch):
    path = tmp_path / "audit.jsonl"
    _writer(path).close()

    def broken(path):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("eigenmesh.sites.audit.last_line", broken)
        with pytest.raises(UnreadableFileError, match="Input/output error"):
            _writer(path)
    # Otherwise the file would still be locked.
    _writer(path).close()


def test_a_full_disk_is_told_at_once_and_logged_once(tmp_path, caplog):
    path = tmp_path / "audit.jsonl"
    with _writer(path) as audit:
        audit.record(_sent())
        # The same file, on a device that takes no more.
        os.dup2(os.open("/dev/full", os.O_WRONLY), audit._file)
        for _ in range(2):
            with pytest.raises(UnreadableFileError, match="No space left on device") as caught:
                audit.record(_sent())
    assert str(tmp_path) not in str(caught.value)
    assert len(caplog.records) == 1
    assert (audit.messages, _run(path).data.messages) == (1, 1)


def test_a_disk_that_is_full_from_the_start(tmp_path):
    full = tmp_path / "audit.jsonl"
    full.symlink_to("/dev/full")
    with pytest.raises(UnreadableFileError, match="No space left on device"):
        _writer(full)


@pytest.mark.parametrize(
    ("shape", "covariance", "samples"),
    [
        ((1, D, D), True, False),
        ((1, D * (D + 1) // 2), True, False),
        ((1, D * (D + 1) // 2, 1), True, False),
        ((1, D * D), True, False),
        ((1, N, D), False, True),
        ((1, D, N), False, True),
        ((1, D, 10), False, False),
        ((1, D), False, False),
        ((1, N), False, False),
        ((), False, False),
    ],
)
def test_shapes_that_give_data_away(tmp_path, shape, covariance, samples):
    assert is_covariance_shaped(shape, D) == covariance
    assert is_sample_shaped(shape, N, D) == samples
    with _writer(tmp_path / "audit.jsonl") as audit:
        audit.record(_sent()._replace(shapes=(shape,)))
    found = _run(tmp_path / "audit.jsonl")
    assert (found.covariance_shaped, found.sample_shaped) == (covariance, samples)


def test_the_sum_of_a_single_sample_is_that_sample():
    assert is_sample_shaped((1, D), 1, D)


def test_a_file_that_is_no_audit_is_refused(tmp_path):
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UnreadableFileError, match="not an audit file"):
        summary(tmp_path / "other.csv")
    with pytest.raises(UnreadableFileError, match="cannot be read"):
        summary(tmp_path / "none.jsonl")
    with pytest.raises(UnreadableFileError, match=r"out\.folder"):
        _writer(tmp_path / "other.csv" / "audit.jsonl")


@pytest.fixture
def lines(tmp_path):
    with _writer(tmp_path / "audit.jsonl") as audit:
        for round_ in range(4):
            audit.record(_sent(round_=round_))
    return (tmp_path / "audit.jsonl").read_bytes().splitlines()


# What is done to five lines -> the lines at which the chain is broken then.
FORGERIES = {
    "untouched": (lambda lines: lines, []),
    "changed": (lambda lines: [lines[0], lines[1].replace(b"oslo", b"bodo"), *lines[2:]], [3]),
    "taken out": (lambda lines: [*lines[:2], *lines[3:]], [3]),
    "put in twice": (lambda lines: [*lines[:3], *lines[2:]], [4]),
    "in another order": (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], [2, 3, 4]),
    "without its start": (lambda lines: lines[1:], [1]),
    "with its hash removed": (lambda lines: [*lines[:2], lines[2].split(b',"before"')[0] + b"}", *lines[3:]], [3, 4]),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_line_that_is_not_as_it_was_written_breaks_the_chain(tmp_path, lines, forgery):
    change, broken = FORGERIES[forgery]
    forged = change(lines)
    # A start, so that what is left counts as an audit.
    path = tmp_path / "forged.jsonl"
    path.write_bytes(b"\n".join(forged) + b"\n")
    if forgery == "without its start":
        _writer(path).close()
    assert summary(path).chain.broken == broken


def test_runs_and_memberships_are_told_apart_and_calls_are_counted(tmp_path):
    path = tmp_path / "audit.jsonl"
    with AuditWriter(path, "bergen", "pilot", n_features=D, n_samples=N) as audit:
        for _ in range(3):
            audit.record(_sent(kind="HELLO", shapes=()))
    for _ in range(2):
        with _writer(path) as audit:
            for kind in ("HELLO", "HELLO", "DATA"):
                audit.record(_sent(kind=kind))
            audit.record(_sent("bodo", kind="HELLO"))
            audit.record(_sent(round_=1)._replace(epoch=2))
    pilot, cohort = summary(path).runs
    assert (pilot.run, pilot.starts, pilot.total.messages, pilot.data.messages) == ("pilot", 1, 3, 0)
    assert (cohort.run, cohort.starts, cohort.data.messages) == ("cohort-1", 2, 4)
    assert cohort.by_kind["HELLO"].messages == 6
    assert {epoch: count.messages for epoch, count in cohort.by_epoch.items()} == {0: 2, 2: 2}
    assert set(cohort.by_neighbour) == {"oslo", "bodo"}


def test_lines_come_to_the_disk_while_the_run_goes_on(tmp_path, monkeypatch):
    synced = threading.Semaphore(0)
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (fsync(file), synced.release()))
    with _writer(tmp_path / "audit.jsonl") as audit:
        audit.sync()
        assert synced.acquire(timeout=0)
        audit.record(_sent())
        audit.sync()
        assert synced.acquire(timeout=0)
        # There is nothing new.
        audit.sync()
        assert not synced.acquire(timeout=0)


def test_only_its_owner_can_read_the_audit(tmp_path):
    before = os.umask(0)
    try:
        _writer(tmp_path / "out" / "audit.jsonl").close()
    finally:
        os.umask(before)
    modes = [(tmp_path / "out" / name).stat().st_mode & 0o777 for name in ("", "audit.jsonl")]
    assert modes == [0o700, 0o600]


def test_a_full_file_is_set_aside_and_the_chain_goes_on_in_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr("eigenmesh.sites.audit.KEPT_FILES", 3)
    path = tmp_path / "audit.jsonl"
    for _ in range(2):
        with AuditWriter(path, "bergen", "cohort-1", n_features=D, n_samples=N, max_bytes=5_000) as audit:
            for round_ in range(60):
                audit.record(_sent(round_=round_))
    older = sorted(tmp_path.glob("audit-*.jsonl"))
    assert 1 < len(older) == 3
    assert max(one.stat().st_size for one in (*older, path)) < 6_000
    found = [summary(one) for one in (*older, path)]
    for before, after, name in zip(found, found[1:], older, strict=False):
        assert (after.chain.follows, after.chain.after) == (name.name, before.chain.head)
    assert not any(one.chain.broken or one.damaged for one in found)
    # That the first ones were deleted is on record, and nothing else is missing.
    (record,) = [line for line in read_audit(older[-1]) if line["kind"] == "ROTATED"]
    assert record["deleted"]
    kept = [line["round"] for one in (*older, path) for line in read_audit(one) if line["kind"] == "DATA"]
    assert kept == [round_ % 60 for round_ in range(120)][-len(kept) :]


def test_a_crash_while_a_file_is_set_aside_loses_no_link(tmp_path):
    path, full = tmp_path / "audit.jsonl", tmp_path / "audit-000001.jsonl"
    with _writer(path) as audit:
        audit.record(_sent())
    path.rename(full)
    path.touch()
    with _writer(path) as audit:
        audit.record(_sent(round_=1))
    chain = summary(path).chain
    assert (chain.follows, chain.after, chain.broken) == (full.name, summary(full).chain.head, [])
