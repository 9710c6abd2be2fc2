"""What goes wrong between and below real peers: links, disks, intruders, crashes at bad moments, late returns."""

import json
import re
import socket
import time
from contextlib import closing, suppress
from datetime import timedelta
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
from sklearn.datasets import load_digits

pytest.importorskip("cryptography")

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from deaf import deaf_command
from disks import SmallDisk
from eigenmesh.data import load
from eigenmesh.errors import EigenmeshError
from eigenmesh.protocol import Run
from eigenmesh.transports.tls import Credentials
from eigenmesh.transports.tls.journal import _HEAD, MAGIC
from mesh import Mesh, ring
from transports.authority import Authority
from transports.proxy import Proxy
from transports.sites import hello, intrude
from waiting import until

pytestmark = pytest.mark.slow

NAMES = ("oslo", "bergen", "tromso")
PARKED, ENDED, CANNOT_RESUME = 75, 4, 5
# FAST-PCA with this step goes on for a thousand rounds: time enough to disturb it.
SLOW = {"solver": "fast-pca", "solver_parameters": {"step_size": 0.002}, "max_rounds": 20000, "n_components": 2}
# A restart takes long where many processes share few cores.
PATIENT = {**SLOW, "patience_s": 100}
OUTSIDE, INSIDE = ([], False), ([], True)


class Undisturbed(NamedTuple):
    """What a run comes to that nothing happens to."""

    components: np.ndarray
    rounds: int
    sent: int


@pytest.fixture(scope="module")
def alike():
    """Digits at random, in unequal numbers: FAST-PCA converges on these."""
    X = load_digits().data
    return {name: X[site::3][: 590 - 90 * site] for site, name in enumerate(NAMES)}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, alike):
    with Mesh(tmp_path_factory.mktemp("undisturbed"), alike, ring(NAMES), **PATIENT) as mesh:
        mesh.start()
        assert set(mesh.wait().values()) == {0}
        mesh.assert_exact()
        return Undisturbed(mesh.result("oslo")["components"], mesh.numbers("oslo")["rounds"], sent_first(mesh))


def sent_first(mesh):
    """Bytes of all DATA that left all sites, what was sent again not counted."""
    lines = [json.loads(line) for name in mesh.parts for line in audit_lines(mesh, name)]
    return sum(line["bytes"] for line in lines if line["kind"] == "DATA" and not line["again"])


def assert_as_undisturbed(mesh, undisturbed):
    """Every site has the exact answer, in as many rounds as if nothing had happened."""
    mesh.assert_exact()
    for name in mesh.parts:
        assert mesh.numbers(name)["rounds"] == undisturbed.rounds
        assert np.allclose(mesh.result(name)["components"], undisturbed.components, rtol=0, atol=1e-12)


def assert_no_result(mesh, *names):
    for name in names or mesh.parts:
        assert not [path for path in mesh.out(name).iterdir() if "result" in path.name], name


def test_a_link_that_is_cut_delayed_and_garbled_loses_no_round(tmp_path, alike, undisturbed):
    with Mesh(tmp_path, alike, ring(NAMES), **PATIENT) as mesh, Proxy("127.0.0.1", mesh.ports["bergen"]) as proxy:
        mesh.reroute("oslo", "bergen", proxy.address)
        mesh.start()
        underway(mesh, "oslo")
        faults = [
            proxy.cut,
            lambda: proxy.spoil("double"),
            lambda: proxy.truncate_after(1000),
            lambda: proxy.spoil("garble"),
            lambda: proxy.spoil("drop"),
            lambda: proxy.cut(restore=False),
        ]
        for number, fault in enumerate(faults):
            # A fault may take a link down more than once: what was under way when it came up may be spoiled too.
            before = ups(mesh)
            fault()
            if number == len(faults) - 1:
                time.sleep(1)
                proxy.restore()
            until(lambda before=before: ups(mesh) > before, f"fault {number} did no harm, or for ever")
        proxy.delay_s = 0.05
        time.sleep(1)
        proxy.delay_s = 0.0
        assert mesh.running["oslo"].poll() is None, "the run was over before the last fault"
        assert set(mesh.wait().values()) == {0}
        assert_as_undisturbed(mesh, undisturbed)
        assert sent_first(mesh) == undisturbed.sent


def underway(mesh, name, n_bytes=100_000):
    """Wait until so much has come in at a site, of some six MB in all; its status is said too seldom for that."""
    journal = mesh.resume(name) / "journal"
    until(lambda: journal.exists() and journal.stat().st_size > n_bytes, f"{name} does not begin")


def flushed(journal):
    """So many bytes of a journal are on the disk, as its head says."""
    return int(_HEAD.unpack_from(journal.read_bytes(), len(MAGIC))[0])


def ups(mesh):
    """How often the link from oslo to bergen has come up."""
    return mesh.log("oslo").count("link to bergen is up")


@pytest.mark.parametrize("what", ["out", "journal", "audit"])
def test_a_full_disk_parks_the_run_and_room_lets_it_go_on(tmp_path, alike, undisturbed, what):
    """All that a site writes is on the disk, or only what it must not lose, or only what it must tell."""
    small = SmallDisk(tmp_path / "disk", "size=256k")
    with closing(small) as disk, Mesh(tmp_path, alike, ring(NAMES), **PATIENT) as mesh:
        out = mesh.out("bergen")
        place = {"out": out, "journal": mesh.resume("bergen"), "audit": out / "audit.jsonl"}[what]
        place.parent.mkdir(exist_ok=True)
        place.symlink_to(disk.folder / ("audit.jsonl" if what == "audit" else ""))
        mesh.start()
        assert set(mesh.wait().values()) == {PARKED}
        full = "the (journal|audit)" if what == "out" else f"the {what}"
        for name in NAMES:
            told = mesh.said(name).replace("\n", " ")
            assert re.search(f"bergen parked the run: {full}.*No space left on device", told), name
        assert str(mesh.folder("bergen")) not in mesh.said("oslo")
        assert_no_result(mesh)
        disk.make_room()
        mesh.start()
        assert set(mesh.wait().values()) == {0}
        assert_as_undisturbed(mesh, undisturbed)
        # It went on, and did not begin anew.
        assert mesh.log("oslo").count("link to bergen is up; it needs round 0.") == 1


def test_a_result_that_cannot_be_written_parks_the_run(tmp_path, alike, undisturbed):
    """The others may have theirs by then, but are there for it when all are started again."""
    with Mesh(tmp_path, alike, ring(NAMES), **PATIENT) as mesh:
        mesh.start()
        underway(mesh, "bergen")
        in_the_way = mesh.out("bergen") / "result.npz"
        in_the_way.mkdir()
        codes = mesh.wait()
        assert codes["bergen"] == PARKED
        assert set(codes.values()) <= {0, PARKED}
        assert "bergen parked the run: its result cannot be written: Is a directory" in mesh.said("bergen")
        for name in ("oslo", "tromso"):
            assert codes[name] == PARKED or re.search("bergen.* may not have everything yet", mesh.said(name)), name
        assert not (mesh.out("bergen") / "result.json").exists()
        in_the_way.rmdir()
        mesh.start()
        assert set(mesh.wait().values()) == {0}
        assert_as_undisturbed(mesh, undisturbed)


@pytest.fixture(scope="module")
def populations():
    """HapMap by population where the file is there; else digits by label, one label in two, all unequal."""
    try:
        table = load("hapmap3")
    except EigenmeshError:
        X, y = load_digits(return_X_y=True)
        parts = {f"site{label}": X[y == label][label:] for label in range(9)}
        nines = X[y == 9]
        return {**parts, "site9": nines[:100], "site10": nines[100:]}
    labels = np.asarray(table.labels)
    return {str(label).lower(): table.X[labels == label] for label in np.unique(labels)}


@pytest.mark.parametrize("count", [5, 11])
def test_many_sites_that_are_unlike(tmp_path, populations, count):
    assert len(populations) == 11
    parts = dict(list(populations.items())[:count])
    with Mesh(tmp_path, parts, ring(list(parts)), n_components=5) as mesh:
        mesh.start()
        assert set(mesh.wait().values()) == {0}
        mesh.assert_exact()


class MeshAuthority(Authority):
    """The authority of a mesh, in the hands of whoever has its key."""

    def __init__(self, folder):
        self._key = load_pem_private_key((folder / "ca.key").read_bytes(), None)
        self._certificate = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
        self._name = self._certificate.subject


def test_intruders_are_refused_and_logged_and_the_run_goes_on(tmp_path, alike, undisturbed):
    with Mesh(tmp_path, alike, ring(NAMES), **PATIENT) as mesh:
        ours = MeshAuthority(tmp_path / "mesh" / "ca")
        files = [(mesh.folder("oslo") / file).read_bytes() for file in ("key.pem", "cert.pem", "ca.pem")]
        greeting = hello("oslo", Run(b"an earlier run .", "manifest", 1 << 20), Credentials(*files))
        door = f"127.0.0.1:{mesh.ports['bergen']}"
        mesh.start()
        underway(mesh, "bergen")

        def knock(credentials, wait_s=2.0):
            return intrude(door, "bergen", credentials, [greeting], wait_s, root=ours.pem)

        assert knock(None) == OUTSIDE
        assert knock(Authority().issue("oslo")) == OUTSIDE
        assert knock(ours.issue("oslo", timedelta(days=-1))) == OUTSIDE
        # The authority may certify the sites of this network and nobody else.
        assert knock(ours.issue("mallory")) == OUTSIDE
        assert knock(ours.issue("tromso")) == INSIDE
        with socket.create_connection(("127.0.0.1", mesh.ports["bergen"]), timeout=60.0) as plain:
            plain.sendall(np.random.default_rng(0).bytes(1000))
            with suppress(ConnectionResetError):
                assert plain.recv(100) == b""
        # The true key, but not this run.
        assert [answer.kind.name for answer in knock(Credentials(*files), 0.2)[0]] == ["REFUSE"]
        assert mesh.running["bergen"].poll() is None, "the run was over before the last intruder"
        assert set(mesh.wait().values()) == {0}
        assert_as_undisturbed(mesh, undisturbed)
        refusals = [line for line in mesh.log("bergen").splitlines() if '"message": "refused' in line]
        wanted = [
            "did not return a certificate",
            "certificate verify failed",
            "certificate has expired",
            "tromso at .*greets as 'oslo', which is not the name in its certificate",
            "oslo: .*manifest differs",
            "wrong version number|unsupported protocol|record|http request",
        ]
        for pattern in wanted:
            assert any(re.search(pattern, line) for line in refusals), (pattern, refusals)


PATH = (("oslo", "bergen"), ("bergen", "tromso"))
IN_A_ROW = {"solver": "one-sum", "patience_s": 100}


@pytest.fixture
def deafness(tmp_path):
    """Keeps sites from the end of a run: what their neighbours sign does not get there while the file is there."""
    sign = tmp_path / "deaf"
    sign.touch()
    return partial(deaf_command, sign)


def done(mesh):
    """Sites that have written their result."""
    return [name for name in mesh.parts if (mesh.out(name) / "result.json").exists()]


def test_a_site_killed_with_its_result_written_and_others_waiting(tmp_path, alike, deafness):
    """What is still under way on the links is lost with the site; the others have it from its journal."""
    with Mesh(tmp_path, alike, PATH, **IN_A_ROW) as mesh:
        mesh.start("bergen")
        mesh.start("oslo", "tromso", work=deafness)
        until(lambda: done(mesh), "nobody is done")
        assert done(mesh) == ["bergen"]
        mesh.kill("bergen")
        (tmp_path / "deaf").unlink()
        mesh.start("bergen")
        assert set(mesh.wait().values()) == {0}
        mesh.assert_exact()
        assert not [path for name in NAMES for path in mesh.out(name).glob("resume*")]


def test_a_site_lost_at_the_very_end_can_still_finish_later(tmp_path, alike, deafness):
    """The others are done by then and have left; started again with it, they help it to its result."""
    with Mesh(tmp_path, alike, PATH, **IN_A_ROW) as mesh:
        mesh.edit("bergen", "patience_s = .*", "patience_s = 5")
        mesh.start("bergen", "tromso")
        mesh.start("oslo", work=deafness)
        until(lambda: "bergen" in done(mesh), "bergen is not done")
        mesh.kill("oslo")
        assert "oslo" not in done(mesh)
        assert mesh.wait("bergen", "tromso") == {"bergen": 0, "tromso": 0}
        assert "oslo may not have everything yet" in mesh.said("bergen")
        mesh.start()
        assert set(mesh.wait().values()) == {0}
        mesh.assert_exact()


def test_a_site_killed_in_its_farewell_does_not_wait_for_those_that_have_gone(tmp_path, alike, deafness):
    """bergen has the whole, signed result; the others are killed before they hear its farewell, and stay away."""
    with Mesh(tmp_path, alike, PATH, **IN_A_ROW) as mesh:
        mesh.start("bergen")
        mesh.start("oslo", "tromso", work=deafness)
        until(lambda: done(mesh), "nobody is done")
        for name in NAMES:
            mesh.kill(name)
        began = time.monotonic()
        mesh.start("bergen")
        assert mesh.wait("bergen") == {"bergen": 0}
        assert time.monotonic() - began < 100
        assert "oslo, tromso may not have everything yet" in mesh.said("bergen")
        # They need it, so its journal is still there.
        (tmp_path / "deaf").unlink()
        mesh.start()
        assert set(mesh.wait().values()) == {0}
        mesh.assert_exact()
        assert not [path for name in NAMES for path in mesh.out(name).glob("resume*")]


def test_a_site_whose_journal_is_damaged_says_so_and_all_end_by_its_name(tmp_path, alike):
    with Mesh(tmp_path, alike, ring(NAMES), **PATIENT) as mesh:
        mesh.start()
        underway(mesh, "bergen")
        journal = mesh.resume("bergen") / "journal"
        # What is damaged beyond the part that was flushed would be cut off, and asked for again.
        until(lambda: flushed(journal) > 100_000, "bergen flushes nothing")
        mesh.kill("bergen")
        data = bytearray(journal.read_bytes())
        data[flushed(journal) // 2] ^= 1
        journal.write_bytes(data)
        # oslo is away when bergen is back.
        mesh.kill("oslo")
        mesh.start("bergen")
        until(lambda: "bergen has left" in mesh.log("tromso"), "tromso does not hear it")
        mesh.start("oslo")
        assert mesh.wait() == dict.fromkeys(NAMES, CANNOT_RESUME)
        assert "is damaged: only" in mesh.said("bergen")
        for name in ("oslo", "tromso"):
            assert "bergen cannot resume the run: its journal is damaged." in mesh.said(name)
        # Started again, they remember it.
        mesh.start("oslo")
        assert mesh.wait("oslo") == {"oslo": CANNOT_RESUME}
        mesh.start(options=["--fresh"])
        assert set(mesh.wait().values()) == {0}
        mesh.assert_exact()


def test_a_site_killed_while_it_replays_twice_in_a_row(tmp_path, alike, undisturbed):
    with Mesh(tmp_path, alike, ring(NAMES), **PATIENT) as mesh:
        mesh.start()
        underway(mesh, "tromso", 2_000_000)
        mesh.kill("tromso")
        for pause_s in (0.02, 0.1):
            begun = starts(mesh, "tromso")
            mesh.start("tromso")
            # The rounds of the journal follow.
            until(lambda begun=begun: starts(mesh, "tromso") > begun, "tromso does not start")
            time.sleep(pause_s)
            mesh.kill("tromso")
        mesh.start("tromso")
        assert set(mesh.wait().values()) == {0}
        assert_as_undisturbed(mesh, undisturbed)


def starts(mesh, name):
    return sum('"kind":"START"' in line for line in audit_lines(mesh, name))


def audit_lines(mesh, name):
    return (mesh.out(name) / "audit.jsonl").read_text().splitlines()


def test_all_sites_killed_at_once(tmp_path, alike, undisturbed):
    with Mesh(tmp_path, alike, ring(NAMES), **PATIENT) as mesh:
        mesh.start()
        underway(mesh, "oslo", 1_000_000)
        for name in NAMES:
            mesh.running[name].kill()
        for name in NAMES:
            mesh.running[name].wait(60)
        assert_no_result(mesh)
        mesh.start()
        assert set(mesh.wait().values()) == {0}
        assert_as_undisturbed(mesh, undisturbed)
        assert mesh.log("oslo").count("link to bergen is up; it needs round 0.") == 1


def test_a_site_that_comes_back_too_late_is_told_so(tmp_path, alike):
    left = ["oslo", "bergen"]
    with Mesh(tmp_path, alike, ring(NAMES), **SLOW, on_loss="continue", patience_s=6) as mesh:
        mesh.start()
        underway(mesh, "tromso")
        mesh.kill("tromso")
        until(lambda: mesh.status("oslo").get("epoch") == 2, "oslo does not go on")
        # The others may have finished and gone before it is back.
        mesh.edit("tromso", "join_s = .*", "join_s = 3")
        mesh.start("tromso")
        codes = mesh.wait()
        assert codes == {"oslo": 0, "bergen": 0, "tromso": ENDED}
        mesh.assert_exact(left)
        assert_no_result(mesh, "tromso")
        told = mesh.said("tromso").replace("\n", " ")
        assert "only 1 of 3 sites can still reach each other" in told
        assert "there is no majority, so there is no result here" in told
