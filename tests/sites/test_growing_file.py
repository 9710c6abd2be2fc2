"""Text that grows: only whole lines count, each once, and what was read may not change."""

import os
import threading
from dataclasses import replace

import numpy as np
import pytest

from eigenmesh.data import TableOptions
from eigenmesh.errors import DataError, DataWarning, InputError, UnreadableFileError
from eigenmesh.sites import DataFile, read_network_file
from eigenmesh.sites._follow import Follower
from eigenmesh.sites._growing_file import GrowingFile
from eigenmesh.sites._inbox import Inbox
from eigenmesh.sites._ledger import CountedFile
from eigenmesh.sites._network_file import site_toml
from eigenmesh.sites._standard_input import StandardInput
from waiting import until


@pytest.fixture
def follow(tmp_path):
    """A file as a process that has just been started sees it."""

    def make(kind=GrowingFile, **settings):
        path = tmp_path / "sensor.csv"
        return kind(path, DataFile(tmp_path / "none"), scratch=tmp_path / "new.csv", **settings)

    return make


def add(path, text):
    with path.open("a") as file:
        file.write(text)


def test_whole_lines_count_once_and_a_restart_finds_them(follow):
    growing = follow()
    growing.place.write_text("age,bmi\n")
    assert growing.new((), 0) == ()
    add(growing.place, "30,21\n40,2")
    first = growing.new((), 0)
    assert [(one.rows, one.end) for one in first] == [(1, len("age,bmi\n30,21\n"))]
    add(growing.place, "2\n\n50,23.5\n")
    # All that came before the batch began is in it.
    (counted,) = growing.new((), 0)
    assert counted.rows == 3
    assert growing.new((counted,), 1) == ()
    add(growing.place, "60,24\r\n70,")
    (second,) = growing.new((counted,), 1)
    assert (second.rows, second.batch) == (1, 1)
    again = follow()
    for each in (growing, again):
        np.testing.assert_array_equal(each.stacked((counted,)), [[30, 21], [40, 22], [50, 23.5]])
        assert each.new((counted,), 1) == (second,)
        np.testing.assert_array_equal(each.stacked((counted, second))[3:], [[60, 24]])
    assert again.columns == (2, ("age", "bmi"))
    assert not again.scratch.exists()


def test_equal_lines_are_samples_of_their_own_and_a_header_is_not_needed(follow):
    growing = follow()
    growing.place.write_text("1;2,5\n")
    (first,) = growing.new((), 0)
    add(growing.place, "1;2,5\n3;4\n")
    (second,) = growing.new((first,), 1)
    np.testing.assert_array_equal(growing.stacked((first, second)), [[1, 2.5], [1, 2.5], [3, 4]])


def test_a_later_line_with_a_word_is_not_taken_for_a_header(follow):
    growing = follow()
    growing.place.write_text("30,21\n40,22\n")
    (first,) = growing.new((), 0)
    add(growing.place, "n.a.,23\n50,24\n")
    with pytest.raises(DataError, match=r"column 0 of .*sensor\.csv after line 2 is not numeric: 'n\.a\.' in line 1"):
        growing.new((first,), 1)


def test_a_header_of_numbers_is_a_header_where_the_settings_say_so(follow):
    unsure = follow()
    unsure.place.write_text("2001,2002,2003\n1.5,2.5,1\n")
    with pytest.warns(DataWarning, match=r'line 1 of .*sensor\.csv has the numbers .*give header="yes"'):
        assert unsure.new((), 0)[0].rows == 2
    growing = follow()
    growing.data = replace(growing.data, table=TableOptions(header="yes"))
    (first,) = growing.new((), 0)
    add(growing.place, "2,3.5,4\n")
    (second,) = growing.new((first,), 1)
    np.testing.assert_array_equal(growing.stacked((first, second)), [[1.5, 2.5, 1], [2, 3.5, 4]])
    assert growing.columns == (3, ("2001", "2002", "2003"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[:-4], "it had 20 bytes or more"),
        (lambda text: text.replace("40", "41"), "byte"),
        (lambda text: "age,bmi\n9,9\n8,8\n7,7\n6,6\n", "byte"),
    ],
    ids=["cut", "a number", "another file"],
)
def test_what_was_counted_may_not_change(follow, change, said):
    growing = follow()
    growing.place.write_text("age,bmi\n30,21\n40,22\n")
    (counted,) = growing.new((), 0)
    growing.place.write_text(change(growing.place.read_text()))
    for each in (growing, follow()):
        with pytest.raises(DataError, match=r"sensor\.csv was cut or rewritten: .*" + said):
            each.new((counted,), 1)
    growing.place.unlink()
    with pytest.raises(UnreadableFileError, match="cannot be read: No such file"):
        growing.new((counted,), 1)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("50\n", r"line 2 of .*sensor\.csv after line 2 has 1 fields, expected 2"),
        ("50,x\n", r"column 'bmi' of .*sensor\.csv after line 2 is not numeric: 'x'"),
        ("50,\n", r"sensor\.csv after line 2: row 0, column 1 \('bmi'\) is nan.*No row of this file was counted"),
    ],
)
def test_a_bad_line_is_named_and_can_be_repaired(follow, line, said):
    growing = follow()
    growing.place.write_text("age,bmi\n30,21\n40,22\n")
    (counted,) = growing.new((), 0)
    add(growing.place, line)
    for _ in range(2):
        with pytest.raises(DataError, match=said):
            growing.new((counted,), 1)
    growing.place.write_text(growing.place.read_text().replace(line, "50,23\n"))
    assert [one.rows for one in growing.new((counted,), 1)] == [1]


def test_another_source_than_the_ledger_says_is_refused(follow, tmp_path):
    growing = follow()
    growing.place.write_text("1,2\n3,4\n")
    with pytest.raises(DataError, match=r"batch 0 has counted monday\.npy, not lines of"):
        growing.load((CountedFile("monday.npy", "0" * 64, 5, 0),))
    (counted,) = growing.new((), 0)
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match=r"sensor\.csv, which was counted in batch 0, is gone"):
        Inbox(tmp_path / "folder", growing.data).load((counted,))


def test_lines_from_standard_input_are_on_the_disk_before_they_count(follow):
    read, write = os.pipe()
    taken = follow(StandardInput, descriptor=read)
    os.write(write, b"age,bmi\n30,21\n40,2")
    until(lambda: taken.new((), 0), "nothing came")
    (counted,) = taken.new((), 0)
    assert taken.place.read_text() == "age,bmi\n30,21\n"
    os.write(write, b"2\n")
    until(lambda: taken.new((counted,), 1), "nothing came")
    os.close(write)
    # A crash may leave half a line; a sender that begins anew says again what the columns are.
    add(taken.place, "50,")
    read, write = os.pipe()
    again = follow(StandardInput, descriptor=read)
    os.write(write, b"age,bmi\n")
    os.write(write, b"60,24\n")
    until(lambda: sum(one.rows for one in again.new((counted,), 1)) == 2, "nothing came")
    (second,) = again.new((counted,), 1)
    np.testing.assert_array_equal(again.stacked((counted, second)), [[30, 21], [40, 22], [60, 24]])
    os.close(write)


def test_lines_that_are_being_flushed_do_not_count_yet(follow, monkeypatch):
    read, write = os.pipe()
    flushing, flushed, fsync = threading.Event(), threading.Event(), os.fsync

    def slow(descriptor):
        flushing.set()
        assert flushed.wait(60)
        fsync(descriptor)

    taken, found = follow(StandardInput, descriptor=read), []
    monkeypatch.setattr("eigenmesh.sites._standard_input.os.fsync", slow)
    os.write(write, b"30,21\n")
    assert flushing.wait(60)
    reader = threading.Thread(target=lambda: found.append(taken.new((), 0)))
    reader.start()
    # The line is in the file already, but the reader waits for the disk, however long that takes.
    assert taken.place.read_text() == "30,21\n"
    reader.join(0.5)
    assert not found
    flushed.set()
    reader.join(60)
    ((counted,),) = found
    assert counted.rows == 1
    os.close(write)


def test_a_disk_that_keeps_nothing_ends_the_peer(follow, monkeypatch):
    read, write = os.pipe()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("eigenmesh.sites._standard_input.os.fsync", full)
    taken = follow(StandardInput, descriptor=read)
    os.write(write, b"1,2\n")
    until(lambda: taken._failure, "nothing was said")
    with pytest.raises(UnreadableFileError, match=r"cannot be saved to .*No space left"):
        taken.new((), 0)
    os.close(write)


def test_what_cannot_be_followed_is_refused(write_network, tmp_path):
    network = read_network_file(write_network(("[settings]\n", '[settings]\nprivacy = "open"\n')))
    path = tmp_path / "oslo.toml"
    path.write_text(site_toml(network, "oslo"))
    (tmp_path / "rows.npy").write_bytes(b"")
    for name in ("rows.npy", "none.csv"):
        with pytest.raises(UnreadableFileError, match=f"{name} cannot be followed; give an existing folder"):
            Follower(path, tmp_path / name)
    (tmp_path / "rows.csv").write_text("1,2\n")
    add(path, '\n[leaves]\nbergen = 3\n[heirs]\nbergen = "oslo"\n')
    heir = Follower(path, tmp_path / "rows.csv")
    with pytest.raises(InputError, match="oslo is an heir, and must follow a folder"):
        heir.run()
