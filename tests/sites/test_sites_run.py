"""Real peers: runs from start to end, restarts, and masked runs whose peers are killed."""

import functools
import json
import os
import shutil
import signal
import time
from collections import defaultdict
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

pytest.importorskip("cryptography")

from eigenmesh import DecentralizedPCA, StopReason
from eigenmesh.cli.messages import Messages
from eigenmesh.events import Ended, EventReader, LinkTraffic, Members, Record
from eigenmesh.sites.audit import read_audit
from eigenmesh.sites.status import Status, read_status
from killed import masking_command
from mesh import LIMIT_S, Mesh, ring
from processes import command
from waiting import until

# Peers as operators run them: a process a site over mutual TLS, and the pooled answer at every one.


pytestmark = pytest.mark.slow

NAMES = ("oslo", "bergen", "tromso", "bodo", "voss")
PARKED, ENDED, BAD_INPUT, CANNOT_RESUME = 75, 4, 2, 5
# Of tests that wait until it is over; sites that are well must not be silent for so long on a busy machine.
PATIENCE_S = 6
# FAST-PCA with this step goes on for two thousand rounds: time enough to disturb it.
SLOW = {"solver": "fast-pca", "solver_parameters": {"step_size": 0.001}, "max_rounds": 20000, "n_components": 2}
# The same for four thousand.
SLOWER = {**SLOW, "solver_parameters": {"step_size": 0.0005}}


@pytest.fixture(scope="module")
def parts():
    """Digits by label, so that sites are as unlike as can be, in unequal numbers."""
    X, y = load_digits(return_X_y=True)
    return {name: X[(y == 2 * site) | (y == 2 * site + 1)][: 355 - 40 * site] for site, name in enumerate(NAMES)}


@pytest.fixture(scope="module")
def alike():
    """Digits at random, in unequal numbers: FAST-PCA converges on these."""
    X = load_digits().data
    return {name: X[site::5][: 355 - 40 * site] for site, name in enumerate(NAMES)}


def waited_s(status):
    since = status.get("waiting_since", 0.0)
    return status["written"] - since if since else 0.0


def waits_for(status, least_s):
    """Neighbours for which a site has waited that long."""
    return [link["name"] for link in status["neighbours"] if link["waiting"]] if waited_s(status) > least_s else []


def check_events(mesh, name, audited):
    """The log of a site ends as its status does, and has the traffic of its audit and its result."""
    numbers, status = mesh.numbers(name), read_status(mesh.out(name) / "status.json")
    events = [entry.event for entry in EventReader(mesh.out(name) / "events.jsonl").new()]
    assert events[0] == Members("test", name, 0, NAMES)
    assert events[-1] == Ended("done", True, StopReason.CONVERGED.words)
    last = [event for event in events if isinstance(event, Record)][-1]
    assert (last.rounds, last.messages, last.bytes) == (numbers["rounds"], numbers["messages"], numbers["bytes"])
    for link in (event for event in events if isinstance(event, LinkTraffic) and event.sender == name):
        sent = [line["bytes"] for line in audited if line["to"] == link.receiver]
        assert (link.messages, link.bytes) == (len(sent), sum(sent))
    folded = functools.reduce(Status.after, events, Status(name, "test", "connecting"))
    mine = {"max_rounds": status.max_rounds, "pid": status.pid, "started": status.started, "written": status.written}
    assert replace(folded, **mine) == status


def audit(mesh, name):
    return [json.loads(line) for line in (mesh.out(name) / "audit.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("privacy", ["masked", "open"])
def test_every_site_has_the_pooled_components_and_its_audit_adds_up(tmp_path, parts, privacy):
    with Mesh(tmp_path, parts, ring(NAMES), privacy=privacy) as mesh:
        mesh.start_anew()
        assert set(mesh.wait().values()) == {0}
        mesh.assert_exact()
        sent = 0
        for name in NAMES:
            lines = [line for line in audit(mesh, name) if line["kind"] == "DATA"]
            assert not any(line["again"] for line in lines)
            sent += sum(line["bytes"] for line in lines)
            for line in lines:
                assert line["to"] in {a if b == name else b for a, b in ring(NAMES) if name in (a, b)}
                assert all(shape[-2:] != [64, 64] for shape in line["shapes"]), "a covariance"
                assert all(len(parts[name]) not in shape for shape in line["shapes"]), "samples"
            check_events(mesh, name, lines)
            scores = np.loadtxt(mesh.out(name) / "scores.csv", delimiter=",", skiprows=1)
            model = mesh.result(name)
            assert np.allclose(scores, (parts[name] - model["mean"]) @ model["components"].T, atol=1e-9)
            # Nothing to resume, and no key, sample or path in what is left behind.
            assert not list(mesh.out(name).glob("resume*"))
        numbers = mesh.numbers("oslo")
        assert sent == numbers["bytes"]
        assert numbers["whole"] is True
        assert numbers["lost_sites"] == []
        # All have the same bits, and the signatures of all.
        assert len({mesh.numbers(name)["result_sha256"] for name in NAMES}) == 1
        assert all(set(mesh.numbers(name)["signatures"]) == set(NAMES) for name in NAMES)


def test_a_site_that_starts_last_is_waited_for(tmp_path, parts):
    """Even for longer than patience_s, which is for sites that have been there."""
    patience_s = 5
    with Mesh(tmp_path, parts, ring(NAMES), patience_s=patience_s) as mesh:
        mesh.start(*NAMES[1:])
        for name in ("bergen", "voss"):
            until(lambda name=name: waited_s(mesh.status(name)) > patience_s + 2, f"{name} does not wait")
            (oslo,) = [link for link in mesh.status(name)["neighbours"] if link["name"] == "oslo"]
            assert (oslo["waiting"], oslo["last_heard"]) == (True, 0.0)
        mesh.start("oslo")
        assert set(mesh.wait().values()) == {0}
        mesh.assert_exact()


@pytest.mark.parametrize("seed", [0, None])
def test_killed_peers_resume_with_the_same_answer(tmp_path, alike, seed):
    """Ten kills in each of two runs, at moments drawn at random: twenty. A seed that sites draw survives them too."""
    rng = np.random.default_rng(seed or 1)
    with Mesh(tmp_path, alike, ring(NAMES), **SLOWER, seed=seed) as mesh:
        mesh.start()
        mesh.until("oslo", 1)
        for _ in range(10):
            time.sleep(float(rng.uniform(0, 0.5)))
            name = str(rng.choice(NAMES))
            assert mesh.running[name].poll() is None, "the run was over before it could be disturbed"
            mesh.kill(name)
            time.sleep(float(rng.uniform(0, 0.5)))
            mesh.start(name)
        assert set(mesh.wait().values()) == {0}
        mesh.assert_exact()
        used = {(mesh.numbers(name)["seed"], mesh.numbers(name)["seed_drawn"]) for name in NAMES}
        assert len(used) == 1
        assert {drawn for _, drawn in used} == {seed is None}


def test_a_stopped_peer_is_waited_for(tmp_path, alike):
    with Mesh(tmp_path, alike, ring(NAMES), **SLOW) as mesh:
        mesh.start()
        mesh.until("bodo", 50)
        mesh.kill("bodo", signal.SIGSTOP)
        # On a busy machine it may first wait for its other neighbour.
        until(lambda: waits_for(mesh.status("tromso"), 2) == ["bodo"], "tromso does not wait for bodo alone")
        mesh.kill("bodo", signal.SIGCONT)
        assert set(mesh.wait().values()) == {0}
        mesh.assert_exact()


def test_ctrl_c_parks_the_run_everywhere_and_a_restart_goes_on(tmp_path, alike):
    with Mesh(tmp_path, alike, ring(NAMES), **SLOWER) as mesh:
        mesh.start()
        mesh.until("voss", 50)
        mesh.kill("voss", signal.SIGINT)
        assert set(mesh.wait().values()) == {PARKED}
        assert "voss parked the run: stopped by its operator" in mesh.said("tromso")
        for word in ("failed", "parked", "KeyboardInterrupt"):
            assert word not in mesh.said("voss") + json.dumps(mesh.status("voss"))
        assert mesh.status("voss")["phase"] == "stopped"
        assert "stopped by its operator; start all sites again to continue" in mesh.said("voss")
        assert not (mesh.out("oslo") / "result.npz").exists()
        before = mesh.status("oslo")["round"]
        mesh.start()
        assert set(mesh.wait().values()) == {0}
        mesh.assert_exact()
        assert mesh.status("oslo")["round"] > before


def test_a_site_that_begins_anew_is_not_mixed_into_the_run(tmp_path, alike):
    """Other data under the same name, and the journal removed: the rounds that others have are of the old data."""
    three = {name: alike[name] for name in NAMES[:3]}
    with Mesh(tmp_path, three, [("oslo", "bergen"), ("bergen", "tromso")], **SLOWER) as mesh:
        mesh.start()
        mesh.until("oslo", 50)
        mesh.kill("tromso", signal.SIGINT)
        assert set(mesh.wait().values()) == {PARKED}
        np.save(mesh.folder("tromso") / "data.npy", three["tromso"][::-1] * 0.5)
        mesh.start("tromso")
        assert mesh.wait("tromso") == {"tromso": BAD_INPUT}
        assert "site's data have changed" in mesh.said("tromso")
        shutil.rmtree(mesh.out("tromso"))
        for _ in range(2):
            for name in three:
                mesh.edit(name, r"patience_s = .*", "patience_s = 3")
            mesh.start()
            assert 0 not in mesh.wait().values()
            assert mesh.wait("tromso") == {"tromso": CANNOT_RESUME}
        assert "tromso has started the run over" in mesh.said("tromso")
        assert not any((mesh.out(name) / "result.npz").exists() for name in three)


def test_survivors_finish_with_the_data_that_are_left(tmp_path, alike):
    edges = [*ring(NAMES), ("oslo", "bodo")]
    with Mesh(tmp_path, alike, edges, **SLOW, on_loss="continue", patience_s=PATIENCE_S) as mesh:
        mesh.start()
        mesh.until("tromso", 50)
        mesh.kill("tromso")
        left = [name for name in NAMES if name != "tromso"]
        assert set(mesh.wait(*left).values()) == {0}
        mesh.assert_exact(left)
        for name in left:
            assert mesh.numbers(name)["lost_sites"] == ["tromso"]
            assert mesh.numbers(name)["whole"] is False
            assert "lost during the run: tromso" in mesh.said(name)
        # The lost site comes back to a run that went on without it: it is told so, and reports nothing as whole.
        assert not (mesh.out("tromso") / "result.npz").exists()


def test_two_halves_are_never_reported_as_a_whole(tmp_path, alike):
    four = {name: alike[name] for name in NAMES[:4]}
    edges = [("oslo", "bergen"), ("bergen", "tromso"), ("tromso", "bodo")]
    with Mesh(tmp_path, four, edges, **SLOW, on_loss="continue", patience_s=PATIENCE_S) as mesh:
        mesh.start()
        mesh.until("oslo", 50)
        # Without tromso the path falls apart into two sites and one.
        mesh.kill("tromso")
        assert set(mesh.wait("oslo", "bergen", "bodo").values()) == {ENDED}
        assert "only 2 of 4 sites can still reach each other" in mesh.said("oslo") + mesh.said("bergen")
        for name in ("oslo", "bergen", "bodo"):
            assert not (mesh.out(name) / "result.npz").exists()


@pytest.mark.parametrize(("on_loss", "status"), [("wait", PARKED), ("abort", ENDED)])
def test_a_loss_parks_or_ends_the_run_as_asked(tmp_path, alike, on_loss, status):
    with Mesh(tmp_path, alike, ring(NAMES), **SLOW, on_loss=on_loss, patience_s=PATIENCE_S) as mesh:
        mesh.start()
        mesh.until("oslo", 50)
        mesh.kill("bergen")
        left = [name for name in NAMES if name != "bergen"]
        assert set(mesh.wait(*left).values()) == {status}
        for name in left:
            assert f"nothing from bergen for {PATIENCE_S} s" in mesh.said(name).replace("\n", " ")
        if on_loss == "wait":
            mesh.start()
            assert set(mesh.wait().values()) == {0}
            mesh.assert_exact()


def test_columns_in_another_order_are_refused_by_name(tmp_path, parts):
    header = [f"pixel{column}" for column in range(64)]
    swapped = [*header[:5], header[6], header[5], *header[7:]]
    headers = {name: swapped if name == "bodo" else header for name in NAMES}
    with Mesh(tmp_path, parts, ring(NAMES), headers=headers) as mesh:
        mesh.start()
        codes = mesh.wait()
        assert 0 not in codes.values()
        assert codes["bodo"] == BAD_INPUT
        assert 'feature_names: column 5 is "pixel6" here, "pixel5" there' in mesh.said("bodo").replace("\n", " ")
        assert not any((mesh.out(name) / "result.npz").exists() for name in NAMES)


@pytest.mark.parametrize(
    ("pattern", "text", "said"),
    [
        ("scale = false", "scale = true", "scale: true here, false there"),
        ("tol = .*", "tol = 1e-4", "tol: 0.0001 here, 1e-09 there"),
        ("min_samples_per_site = 10", "min_samples_per_site = 3", "min_samples_per_site: 3 here, 10 there"),
    ],
    ids=["scale", "tol", "min_samples_per_site"],
)
def test_a_setting_that_differs_at_one_site_is_refused_by_name(tmp_path, parts, pattern, text, said):
    three = {name: parts[name] for name in NAMES[:3]}
    with Mesh(tmp_path, three, ring(NAMES[:3])) as mesh:
        mesh.edit("bergen", pattern, text)
        mesh.start()
        codes = mesh.wait()
        assert 0 not in codes.values()
        assert codes["bergen"] == BAD_INPUT
        assert said in mesh.said("bergen").replace("\n", " ")
        assert not any((mesh.out(name) / "result.npz").exists() for name in three)


def test_a_finished_run_is_not_done_again(tmp_path, parts):
    three = {name: parts[name] for name in NAMES[:3]}
    with Mesh(tmp_path, three, ring(NAMES[:3])) as mesh:
        mesh.start()
        assert set(mesh.wait().values()) == {0}
        written = (mesh.out("oslo") / "result.npz").stat().st_mtime_ns
        mesh.start("oslo")
        assert mesh.wait("oslo") == {"oslo": 0}
        assert "already has a result" in mesh.said("oslo")
        assert (mesh.out("oslo") / "result.npz").stat().st_mtime_ns == written
        modes = {path.name: path.stat().st_mode & 0o777 for path in mesh.out("oslo").iterdir()}
        assert set(modes.values()) == {0o600}, modes
        assert mesh.out("oslo").stat().st_mode & 0o777 == 0o700


@pytest.fixture
def finished(tmp_path, parts):
    """Two sites with their results written."""
    two = {name: parts[name] for name in NAMES[:2]}
    with Mesh(tmp_path, two, [NAMES[:2]]) as mesh:
        mesh.start()
        assert set(mesh.wait().values()) == {0}
        yield mesh


@pytest.mark.parametrize("file", ["result.npz", "result.json"])
def test_a_damaged_result_is_not_there_already(finished, file):
    path = finished.out("oslo") / file
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    finished.start("oslo")
    assert finished.wait("oslo") == {"oslo": BAD_INPUT}
    assert "is damaged" in finished.said("oslo")
    assert "already has a result" not in finished.said("oslo")
    # And it can be made again.
    for name in finished.parts:
        finished.start(name, options=["--fresh"])
    assert set(finished.wait().values()) == {0}
    finished.assert_exact()
    assert (finished.out("oslo") / f"{file}.old-1").read_bytes() == bytes(content)


def test_a_result_with_a_damaged_signature_is_not_there_already(finished):
    numbers = finished.numbers("oslo")
    signed = numbers["signatures"]["bergen"]
    numbers["signatures"]["bergen"] = signed.replace(numbers["result_sha256"], "0" * 64)
    assert numbers["signatures"]["bergen"] != signed
    (finished.out("oslo") / "result.json").write_text(json.dumps(numbers))
    finished.start("oslo")
    assert finished.wait("oslo") == {"oslo": BAD_INPUT}
    assert "a statement in the name of bergen is not signed by it" in " ".join(finished.said("oslo").split())


def test_a_damaged_result_is_taken_from_another_site(finished):
    """Both files of another site are proved by the signatures of all; its hash of its own data may be left out."""
    (finished.out("oslo") / "result.npz").write_bytes(b"")
    finished.start("oslo")
    assert finished.wait("oslo") == {"oslo": BAD_INPUT}
    assert "Copy result.npz and result.json from any other site of this run" in " ".join(finished.said("oslo").split())
    numbers = finished.numbers("bergen")
    del numbers["own_data"]
    forged = {**numbers, "result_sha256": "0" * 64}
    for given, code in ((forged, BAD_INPUT), (numbers, 0)):
        shutil.copy(finished.out("bergen") / "result.npz", finished.out("oslo"))
        (finished.out("oslo") / "result.json").write_text(json.dumps(given))
        finished.start("oslo")
        assert finished.wait("oslo") == {"oslo": code}
    assert "already has a result" in finished.said("oslo")
    assert finished.result("oslo").keys() == finished.result("bergen").keys()


def test_a_model_without_its_numbers_is_a_damaged_result(finished):
    """Else the site would wait for neighbours that are done, park and be started again, for ever."""
    (finished.out("oslo") / "result.json").unlink()
    finished.start("oslo")
    assert finished.wait("oslo") == {"oslo": BAD_INPUT}
    assert "is damaged" in finished.said("oslo")


def test_data_swapped_with_the_same_size_and_time_are_found(finished):
    path = finished.folder("oslo") / "data.npy"
    facts = path.stat()
    np.save(path, np.load(path)[::-1] * 0.5)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert path.stat().st_size == facts.st_size
    finished.start("oslo")
    assert finished.wait("oslo") == {"oslo": BAD_INPUT}
    assert "have changed" in finished.said("oslo")


def test_a_run_that_never_began_leaves_nothing_in_the_way(tmp_path, parts):
    """Stopped while it waits, killed while it waits, refused: mended data and another name start at once."""
    two = {name: parts[name] for name in NAMES[:2]}
    with Mesh(tmp_path, two, [NAMES[:2]]) as mesh:

        def waits():
            mesh.start("oslo")
            until(lambda: list(mesh.out("oslo").glob("resume*/journal")), "there is no journal")

        np.save(mesh.folder("oslo") / "data.npy", two["oslo"] * 7)
        waits()
        mesh.kill("oslo", signal.SIGINT)
        assert mesh.wait("oslo") == {"oslo": PARKED}
        assert not list(mesh.out("oslo").glob("resume*"))
        waits()
        mesh.kill("oslo")
        np.save(mesh.folder("oslo") / "data.npy", two["oslo"])
        mesh.start()
        assert set(mesh.wait().values()) == {0}
        mesh.assert_exact()


def test_a_site_that_was_only_greeted_may_come_back_with_mended_data(tmp_path, parts):
    """oslo, the root, has sent nothing while it waits for tromso; bergen has met it and must take it back."""
    three = {name: parts[name] for name in NAMES[:3]}
    with Mesh(tmp_path, three, [("oslo", "bergen"), ("oslo", "tromso")]) as mesh:
        np.save(mesh.folder("oslo") / "data.npy", three["oslo"] * 7)
        mesh.start("oslo", "bergen")
        log = mesh.out("bergen") / "peer.log"
        until(lambda: log.exists() and "is up" in log.read_text(), "they do not meet")
        mesh.kill("oslo", signal.SIGINT)
        assert set(mesh.wait().values()) == {PARKED}
        np.save(mesh.folder("oslo") / "data.npy", three["oslo"])
        mesh.start("oslo", options=["--fresh"])
        mesh.start("bergen", "tromso")
        assert set(mesh.wait().values()) == {0}
        mesh.assert_exact()


def test_a_site_whose_data_are_bad_mends_them_and_is_taken_back(tmp_path, parts):
    """Masks with its key are on the disks of the others, so it must come back with the same key."""
    three = {name: parts[name] for name in NAMES[:3]}
    with Mesh(tmp_path, three, [("oslo", "bergen"), ("oslo", "tromso")]) as mesh:
        bad = three["tromso"].copy()
        bad[3, 1] = np.nan
        np.save(mesh.folder("tromso") / "data.npy", bad)
        mesh.start()
        assert mesh.wait()["tromso"] == BAD_INPUT
        assert "row 3" in mesh.said("tromso")
        np.save(mesh.folder("tromso") / "data.npy", three["tromso"])
        mesh.start()
        assert set(mesh.wait().values()) == {0}
        mesh.assert_exact()


def test_data_that_were_others_for_a_moment_leave_nothing_behind(tmp_path, parts):
    """tromso masks numbers of wrong data, and is killed before they leave."""
    three = {name: parts[name] for name in NAMES[:3]}
    with Mesh(tmp_path, three, ring(list(three))) as mesh:
        file = mesh.folder("tromso") / "data.npy"
        mesh.start("oslo", "bergen")
        np.save(file, three["tromso"] * 7)
        mesh.start("tromso", work=partial(masking_command, tmp_path / "masked.jsonl", 0, 0))
        assert mesh.running["tromso"].wait(LIMIT_S) == -signal.SIGKILL
        assert (mesh.resume("tromso") / "journal").exists()
        np.save(file, three["tromso"])
        mesh.start("tromso")
        assert set(mesh.wait().values()) == {0}
        mesh.assert_exact()


def test_other_columns_for_a_moment_leave_no_folder_behind(tmp_path, parts):
    two = {name: parts[name] for name in NAMES[:2]}
    with Mesh(tmp_path, two, [NAMES[:2]]) as mesh:
        np.save(mesh.folder("oslo") / "data.npy", two["oslo"][:, 1:])
        mesh.start()
        assert set(mesh.wait().values()) == {BAD_INPUT}
        assert not [path for name in two for path in mesh.out(name).glob("resume*")]


def test_another_name_or_other_settings_have_other_journals(tmp_path, alike):
    two = {name: alike[name] for name in NAMES[:2]}
    with Mesh(tmp_path, two, [NAMES[:2]], **SLOWER) as mesh:
        mesh.start()
        mesh.until("oslo", 50)
        mesh.kill("oslo", signal.SIGINT)
        assert set(mesh.wait().values()) == {PARKED}
        (journal,) = mesh.out("oslo").glob("resume*/journal")
        for name in two:
            mesh.edit(name, 'run = "test"', 'run = "again"')
            mesh.edit(name, "step_size = .*", "step_size = 0.001")
        mesh.start()
        assert set(mesh.wait().values()) == {0}
        assert journal.exists()


def interrupted_in_print(*words):
    """``command`` in a process that is interrupted where it begins to print its result."""
    original = Messages.print_fit

    def print_fit(*arguments, **options):
        os.kill(os.getpid(), signal.SIGINT)
        original(*arguments, **options)

    Messages.print_fit = print_fit
    command(*words)


def test_an_interrupt_while_the_result_is_printed_changes_neither_result_nor_status(tmp_path, alike):
    two = dict(list(alike.items())[:2])
    with Mesh(tmp_path, two, [tuple(two)]) as mesh:
        mesh.start("oslo", work=interrupted_in_print)
        mesh.start("bergen")
        assert mesh.wait() == {"oslo": 0, "bergen": 0}
        assert "interrupted" not in mesh.said("oslo")
        mesh.assert_exact()


# A real peer of a masked run is killed again and again: no mask is used twice, and the result is the same bits.


MASKED_SITES = ("oslo", "bergen", "voss")
# Averages at which the site is killed, one after the other; the first has the moments.
KILLS = (0, 2, 5)


@pytest.fixture(scope="module")
def three():
    X, labels = load_digits(return_X_y=True)
    return {name: X[labels % 3 == site][: 600 - 40 * site] for site, name in enumerate(MASKED_SITES)}


def test_a_masked_site_that_is_killed_uses_no_mask_twice_and_all_have_the_bits_of_a_run_in_peace(tmp_path, three):
    notes, before = tmp_path / "masked.jsonl", 0
    with Mesh(tmp_path, three, ring(MASKED_SITES), patience_s=120) as mesh:
        mesh.start("oslo", "voss")
        for number in KILLS:
            mesh.start("bergen", work=partial(masking_command, notes, number, before))
            assert mesh.running["bergen"].wait(LIMIT_S) == -signal.SIGKILL
            before = number
        mesh.start("bergen", work=partial(masking_command, notes, -1, before))
        assert set(mesh.wait().values()) == {0}
        mesh.assert_exact()
        assert_masked_once([json.loads(line) for line in notes.read_text().splitlines()])
        assert_sent_once(mesh)
        found = [mesh.result(name) for name in MASKED_SITES]
    with threadpool_limits(1):
        peace = DecentralizedPCA(n_components=3, tol=1e-9, random_state=0, topology="cycle", privacy="masked")
        peace.fit(list(three.values()))
    for model in found:
        assert model["components"].tobytes() == peace.components_.tobytes()
        assert model["explained_variance"].tobytes() == np.asarray(peace.explained_variance_, float).tobytes()


def assert_masked_once(lines):
    """Averages that were over when the site was killed: other numbers went in, and the same words came out."""
    own, left = defaultdict(set), defaultdict(set)
    for number, numbers, masked in lines:
        own[number].add(numbers)
        left[number].add(masked)
    over = range(max(KILLS))
    assert all(len(own[number]) == 2 for number in over)
    assert all(len(left[number]) == 1 for number in over)


def assert_sent_once(mesh):
    """Whatever a site has sent to a neighbour in one round, before a kill or after, is the same bytes."""
    for name in MASKED_SITES:
        sent = defaultdict(set)
        for line in read_audit(mesh.out(name) / "audit.jsonl"):
            if line is not None and line["kind"] == "DATA":
                sent[line["to"], line["epoch"], line["round"]].add(line["sha256"])
        assert len(sent) > max(KILLS)
        assert {len(digests) for digests in sent.values()} == {1}
