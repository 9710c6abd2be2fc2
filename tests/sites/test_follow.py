"""Runs that are followed: files, batches and ledgers, by parts and by real peers."""

import itertools
import json
import shutil
import signal
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("cryptography")

from eigenmesh import graphs
from eigenmesh.data import Shards
from eigenmesh.errors import DataError, InputError, UnreadableFileError
from eigenmesh.fitting import Request, prepare
from eigenmesh.protocol import wire
from eigenmesh.protocol.wire import Mark, record
from eigenmesh.sites import read_network_file, read_site
from eigenmesh.sites.audit import summary
from eigenmesh.sites.follow import BatchData, CountedFile, Follower, Inbox, Ledger, PutOffError, same_moments
from eigenmesh.sites.network_file import Manifest, differences, site_toml
from eigenmesh.sites.results import RunFolder
from eigenmesh.sites.site import DataFile, OutFolder, Schedule
from eigenmesh.transports import run_threads
from eigenmesh.transports.tls.connection import Supervisor
from eigenmesh.transports.tls.journal import Journal
from following import Following
from mesh import ring
from waiting import LIMIT_S, until

# What a peer that stays goes by: the schedule, the folder, the ledger, and whether a batch counts.


@pytest.fixture
def site(write_network, tmp_path):
    """A site.toml of oslo in a network with a fourth site, which joins later, after these changes of the network."""

    def make(*changes, schedule="[joins]\nbodo = 5\n"):
        more = f'[[site]]\nname = "bodo"\naddress = "127.0.0.1:7402"\n\n{schedule}\n[settings]\n'
        links = ('["trondheim", "oslo"]]', '["trondheim", "oslo"], ["bodo", "oslo"], ["bodo", "bergen"]]')
        path = tmp_path / "oslo.toml"
        path.write_text(site_toml(read_network_file(write_network(links, ("[settings]\n", more), *changes)), "oslo"))
        return path

    return make


def test_a_batch_has_the_sites_that_have_joined_and_not_left(site):
    oslo = read_site(site(schedule='[joins]\nbodo = 5\n[leaves]\ntrondheim = 7\n[heirs]\ntrondheim = "oslo"\n'))
    assert oslo.in_batch(4).sites == ("oslo", "bergen", "trondheim")
    assert oslo.in_batch(5).sites == ("oslo", "bergen", "trondheim", "bodo")
    last = oslo.in_batch(7)
    assert last.sites == ("oslo", "bergen", "bodo")
    assert last.edges == (("oslo", "bergen"), ("oslo", "bodo"), ("bergen", "bodo"))
    # Trondheim was the one that calls.
    assert oslo.in_batch(6).listen is not None
    assert last.listen is None
    assert oslo.schedule.handed_over("oslo", 6) == ()
    assert oslo.schedule.handed_over("oslo", 7) == ("trondheim",)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('[leaves]\ntrondheim = 7\n[heirs]\ntrondheim = "bod"\n', "'bod' is not a site"),
        ('[heirs]\ntrondheim = "oslo"\n', "oslo cannot be the heir of trondheim"),
        ("[joins]\nbodo = 5\n[leaves]\ntrondheim = 3\n", "with two sites each finds"),
        ("[joins]\ntrondheim = 8\n[leaves]\ntrondheim = 8\n", "leaves in batch 8, before it joins"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused_by_name(site, lines, said):
    with pytest.raises(InputError, match=said):
        read_site(site(schedule=lines))


def test_members_that_are_not_linked_are_refused(site):
    # Trondheim is linked to bodo alone, which comes later.
    change = '["bergen", "trondheim"], ["trondheim", "oslo"]', '["bodo", "trondheim"]'
    with pytest.raises(InputError, match=r"no links lead from .* to trondheim"):
        read_site(site(change))


def test_batches_of_one_run_wait_for_each_other_and_other_settings_are_named(site):
    oslo = read_site(site())
    now, later = (Manifest.of(oslo.in_batch(batch), 3, None) for batch in (4, 5))
    assert now.run_id != later.run_id
    assert [first.batches_to(second) for first, second in ((now, later), (later, now), (now, now))] == [1, -1, 0]
    other = Manifest.of(
        replace(oslo, settings=replace(oslo.settings, asked=replace(oslo.settings.asked, tol=1e-3))).in_batch(4),
        3,
        None,
    )
    assert differences(now, other) == ["tol: 1e-07 here, 0.001 there"]
    once, elsewhere = Manifest.of(oslo, 3, None), Manifest.of(replace(oslo, run="else").in_batch(5), 3, None)
    odd = Manifest.parse(later.text.replace('"batch":5', '"batch":"5"'))
    assert [now.batches_to(one) for one in (other, once, elsewhere, odd)] == [0, 0, 0, 0]


def test_following_needs_sites_that_wait(site, tmp_path):
    path = site(("[settings]\n", '[settings]\non_loss = "abort"\n'))
    path.write_text(path.read_text().replace("[fingerprints]", ""))
    with pytest.raises(InputError, match="fingerprints"):
        Follower(path, tmp_path)
    path.write_text(path.read_text().replace('privacy = "masked"', 'privacy = "open"'))
    with pytest.raises(InputError, match='--follow needs on_loss = "wait"'):
        Follower(path, tmp_path)


def test_a_ledger_says_the_same_after_a_restart(tmp_path):
    path = tmp_path / "ledger.json"
    empty = Ledger.read(path, 3)
    assert (empty.batch, empty.settled, empty.n_new) == (3, False, 0)
    first = empty.settle((CountedFile("a.npy", "1" * 64, 20, 3),))
    assert Ledger.read(path, 0) == first
    # What identifies the data of a batch is what was there before it, and stays the same when it is settled.
    assert first.fingerprint == empty.fingerprint
    put_off = first.done(released=False)
    assert (put_off.batch, put_off.settled, put_off.n_new) == (4, False, 20)
    assert put_off.fingerprint != first.fingerprint
    second = put_off.settle((CountedFile("b.npy", "2" * 64, 5, 4),)).done(released=True)
    assert (second.batch, second.n_new, second.released) == (5, 0, 4)
    assert Ledger.read(path, 0) == second
    path.write_text(path.read_text()[:-20])
    with pytest.raises(UnreadableFileError, match=r"ledger\.json, the list of counted files, is damaged"):
        Ledger.read(path, 0)


def test_a_crash_while_a_journal_is_deleted_leaves_none_to_resume_from(tmp_path, monkeypatch):
    folder = RunFolder(OutFolder(tmp_path, "run"), "own")
    folder.open()
    (folder.path / "journal").write_bytes(bytes(100))

    def killed(path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("eigenmesh.sites.results.wipe", killed)
        with pytest.raises(KeyboardInterrupt):
            folder.remove()
    assert not folder.has_journal
    folder.remove()
    assert not folder.path.exists()


def with_journal(path, *marks):
    journal = Journal(path, {"site": "oslo"}, lambda records: None, lambda reason: None, Supervisor())
    for mark in marks:
        journal.append(record(mark, b"content"))
    assert journal.flush(LIMIT_S)
    journal.close()
    return journal.past.instance.identity


def test_data_may_change_until_a_number_is_sent_and_the_identity_stays(tmp_path):
    def folder(data):
        return RunFolder(OutFolder(tmp_path, "run"), data)

    first = folder("bad")
    first.open()
    identity = with_journal(first.path / "journal", Mark.STATEMENT)
    first.close(was_heard=True)
    mended = folder("mended")
    mended.open()
    # The second process may not delete what neighbours know from the first.
    mended.close(was_heard=False)
    assert with_journal(mended.path / "journal") == identity
    mended.note_sent()
    folder("mended").open()
    with pytest.raises(InputError, match="data have changed"):
        folder("other").open()


def test_a_masked_number_that_was_not_sent_is_forgotten_when_the_data_change(tmp_path):
    folder = RunFolder(OutFolder(tmp_path, "run"), "first")
    folder.open()
    journal = folder.path / "journal"
    identity = with_journal(journal, Mark.STATEMENT, Mark.MASKED)
    size = journal.stat().st_size
    RunFolder(OutFolder(tmp_path, "run"), "other").open()
    assert journal.stat().st_size < size
    # What neighbours know of this site stays.
    assert with_journal(journal) == identity
    folder.note_sent()
    with pytest.raises(InputError, match="data have changed"):
        folder.open()


def test_a_journal_that_nobody_has_heard_of_is_removed(tmp_path):
    folder = RunFolder(OutFolder(tmp_path, "run"), "own")
    folder.open()
    with_journal(folder.path / "journal")
    folder.close(was_heard=False)
    assert not folder.path.exists()


@pytest.fixture
def inbox(tmp_path):
    return Inbox(tmp_path, DataFile(tmp_path / "none"))


def test_a_file_counts_once_whatever_it_is_called(tmp_path, inbox):
    first, second = np.eye(3), np.ones((2, 3))
    np.save(tmp_path / "b.npy", first)
    for name in ("half.npy.tmp", ".hidden.npy", "half.part"):
        (tmp_path / name).write_bytes(b"not yet whole")
    counted = inbox.new((), 0)
    assert [(file.name, file.rows) for file in counted] == [("b.npy", 3)]
    np.save(tmp_path / "copy.npy", first)
    (tmp_path / "b.npy").rename(tmp_path / "c.npy")
    np.save(tmp_path / "a.npy", second)
    more = inbox.new(counted, 1)
    assert [file.name for file in more] == ["a.npy"]
    # In the order in which they were counted, by another process too.
    anew = Inbox(tmp_path, inbox.data)
    for each in (inbox, anew):
        np.testing.assert_array_equal(each.stacked((*counted, *more)), np.vstack([first, second]))


def test_columns_are_put_in_the_order_of_the_first_file(tmp_path, inbox):
    (tmp_path / "1.csv").write_text("age,bmi\n30,21\n40,22\n")
    (tmp_path / "2.csv").write_text("bmi,age\n23,50\n")
    np.testing.assert_array_equal(inbox.stacked(inbox.new((), 0)), [[30, 21], [40, 22], [50, 23]])
    (tmp_path / "3.csv").write_text("age,dose\n1,2\n")
    with pytest.raises(DataError, match=r"3\.csv lacks .*bmi"):
        inbox.new((), 1)


def test_a_file_with_a_missing_entry_or_one_that_has_changed_is_named(tmp_path, inbox):
    np.save(tmp_path / "a.npy", np.array([[1.0, np.nan]]))
    with pytest.raises(DataError, match=r"a\.npy: row 0, column 1 is nan.*No row of this file was counted"):
        inbox.new((), 0)
    np.save(tmp_path / "a.npy", np.eye(2))
    counted = inbox.new((), 0)
    np.save(tmp_path / "a.npy", np.eye(2) + 1)
    with pytest.raises(DataError, match=r"a\.npy, which was counted in batch 0, is gone or has changed"):
        Inbox(tmp_path, inbox.data).stacked(counted)
    # Nor may its rows be counted a second time.
    with pytest.raises(DataError, match="is gone or has changed"):
        inbox.new(counted, 1)


def test_only_a_folder_can_be_followed(site, tmp_path):
    path = site(("[settings]\n", '[settings]\nprivacy = "open"\n'))
    (tmp_path / "rows.csv").write_text("1,2\n")
    for name in ("rows.csv", "none"):
        with pytest.raises(UnreadableFileError, match=f"{name} cannot be followed: .*; give an existing folder"):
            Follower(path, tmp_path / name)


@pytest.mark.parametrize("shape", [(50, 4), (3, 6), (1, 2)])
def test_rows_for_an_heir_have_the_moments_and_nothing_else(shape):
    rows = np.random.default_rng(0).standard_normal(shape) + 5
    made = same_moments(rows)
    assert made.shape == shape
    np.testing.assert_allclose(made.mean(axis=0), rows.mean(axis=0), atol=1e-12)
    centred, other = rows - rows.mean(axis=0), made - made.mean(axis=0)
    np.testing.assert_allclose(other.T @ other, centred.T @ centred, atol=1e-11)
    if shape[0] > 1:
        assert np.abs(made - rows).max() > 1e-3


@pytest.mark.parametrize(
    ("privacy", "new", "least", "said"),
    [
        ("masked", (10, 10, 9, 0), 2, "2 sites have 10 new samples; at least 3 must"),
        ("masked", (10, 11, 12, 0), 2, "80"),
        ("masked", (0, 10, 10, 10), 81, "all sites have 80 samples together; 81 are needed"),
        ("open", (1, 0, 0, 0), 2, "80"),
    ],
)
def test_a_batch_counts_if_there_are_enough_samples_and_under_masks_enough_new_ones(privacy, new, least, said):
    parts = [np.random.default_rng(node).standard_normal((20, 3)) for node in range(4)]
    weights = graphs.metropolis(graphs.topologies.cycle(4))
    request = Request.parse(n_components=1, privacy=privacy, min_samples=1)

    def node(transport):
        own = Shards.from_list([parts[transport.rank]], ids=[transport.rank], n_nodes=4)
        data = BatchData(own, weights, transport, new[transport.rank], 10, least)
        try:
            return prepare(request, data).moments.n_samples
        except PutOffError as error:
            return str(error)

    found = set(map(str, run_threads(4, node)))
    assert len(found) == 1
    assert found.pop().startswith(said)


def test_the_example_settings_are_read_by_all_sites(site):
    text = site(("[settings]\n", "[settings]\nevery_s = 5\nbatch_rows = 100\nmin_new_samples = 7\n"))
    settings = read_site(text).settings
    assert (settings.every_s, settings.batch_rows, settings.min_new_samples) == (5, 100, 7)
    assert json.loads(Manifest.of(read_site(text).in_batch(0), 3, None).text)["min_new_samples"] == 7


# Peers that stay: files arrive, a site is killed, one joins, one leaves, and every result is that of what is in.


NAMES = ("oslo", "bergen", "bodo", "voss", "narvik")
# Time alone begins nothing here: a batch begins with the first site that has ten new rows.
SETTINGS = {"n_components": 2, "every_s": 1e6, "batch_rows": 10, "min_new_samples": 10}
SCALE = np.array([4, 2.5, 1, 1, 1, 1])
BATCHES = 6


@pytest.mark.slow
def test_every_batch_is_exact_through_a_kill_a_join_and_a_leave(tmp_path):
    rng = np.random.default_rng(0)
    schedule = Schedule(joins={"narvik": 2}, leaves={"voss": 4}, heirs={"voss": "oslo"})
    sites = Following(tmp_path, NAMES, ring(NAMES), schedule, **SETTINGS)
    # So that who joins has something to bring.
    sites.drop({"narvik": rng.standard_normal((12, len(SCALE))) * SCALE})
    batch, killed = 0, False
    with sites.mesh:
        sites.tend()
        while batch < BATCHES:
            sizes = {name: int(rng.integers(10, 30)) for name in sites.members}
            sites.drop({name: rng.standard_normal((size, len(SCALE))) * SCALE for name, size in sizes.items()})
            if batch and not killed:
                sites.mesh.kill("bodo")
                sites.start("bodo")
                killed = True
            batch = sites.wait()
        counted = sites.counted(0, batch)
        assert len(counted) >= 3
        assert max(map(sites.off_by, counted)) < 1e-8
    # The heir has the number, mean and scatter of who left, and none of its rows.
    handed, own = np.load(sites.folder("oslo") / "handover-voss.npy"), sites.rows_in("voss", 3)
    np.testing.assert_allclose(np.cov(handed.T), np.cov(own.T), atol=1e-12)
    np.testing.assert_allclose(handed.mean(axis=0), own.mean(axis=0), atol=1e-12)
    assert np.abs(handed[:, np.newaxis] - own).max(axis=2).min() > 1e-6
    assert not list(sites.mesh.out("voss").glob("resume-*"))
    for name in NAMES:
        assert not summary(sites.mesh.out(name) / "audit.jsonl").chain.broken


@pytest.mark.slow
def test_a_site_with_a_bad_file_is_taken_back_by_those_who_have_begun_the_batch(tmp_path):
    """The others have used numbers, with the key of this site, when it ends; it has sent none, and keeps its key."""
    rng, names = np.random.default_rng(2), NAMES[:3]
    sites = Following(tmp_path, names, list(itertools.pairwise(names)), Schedule(), **SETTINGS)

    def arrive(*where):
        sites.drop({name: rng.standard_normal((12, len(SCALE))) * SCALE for name in where})

    def journal_of(name):
        return next(sites.mesh.out(name).glob("resume-test-*/journal"), None)

    def begun(name):
        with suppress(OSError):
            # A frame, which begins so, of a neighbour.
            return journal_of(name) is not None and wire.MAGIC in journal_of(name).read_bytes()[len("EGNMJRN5") :]

    def greeted():
        return all(sum(link["connected"] for link in sites.mesh.status(name)["neighbours"]) for name in names)

    arrive(*names)
    first, middle, last = names
    with sites.mesh:
        sites.tend()
        batch = sites.wait()
        until(lambda: all(sites.mesh.status(name)["phase"] == "connecting" for name in names) and greeted(), sites.told)
        sites.mesh.kill(last, signal.SIGSTOP)
        bad = sites.folder(last) / "bad.npy"
        np.save(bad, np.full((12, len(SCALE)), np.nan))
        arrive(first, middle)
        until(lambda: begun(middle), sites.told)
        sites.mesh.kill(last, signal.SIGCONT)
        assert sites.mesh.wait(last) == {last: 2}
        assert "bad.npy" in sites.mesh.said(last)
        bad.unlink()
        arrive(last)
        sites.start(last)
        assert sites.wait() > batch
        assert max(map(sites.off_by, sites.counted(0, sites.batch))) < 1e-8


@pytest.mark.slow
def test_files_count_once_through_kills_and_a_site_that_lost_everything_joins_anew(tmp_path):
    rng, names = np.random.default_rng(1), NAMES[:4]
    sites = Following(tmp_path, names, ring(names), Schedule(), **SETTINGS)

    def arrive():
        sites.drop({name: rng.standard_normal((12, len(SCALE))) * SCALE for name in sites.members})

    with sites.mesh:
        sites.tend()
        for _ in range(3):
            arrive()
            for name in ("bergen", "bodo"):
                sites.mesh.kill(name)
                sites.start(name)
            batch = sites.wait()
        for name in names:
            sites.mesh.kill(name)
        assert max(map(sites.off_by, sites.counted(0, batch))) < 1e-8
        # The disk of one site is gone, with all that it knew of the run.
        shutil.rmtree(sites.mesh.out("voss"))
        first, join, lost = batch, batch + 1, sites.n_dropped("voss")
        sites.schedule = Schedule(joins={"voss": join})
        for name in names:
            path = sites.mesh.folder(name) / "site.toml"
            path.write_text("\n".join([path.read_text(), *sites.schedule.lines()]))
            sites.mesh.running.pop(name)
        # The others go on, and then all of its samples count again.
        while not sites.counted(join, batch):
            arrive()
            batch = sites.wait()
        counted = sites.counted(first, batch)
        assert max(map(sites.off_by, counted)) < 1e-8
        assert len(sites.rows_in("voss", counted[-1])) >= lost
