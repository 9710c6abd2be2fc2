"""A disk without room: said before a run, and no reason to end one."""

from contextlib import closing

import pytest

pytest.importorskip("cryptography")

from sklearn.datasets import load_digits

from disks import SmallDisk
from eigenmesh.errors import ParkedError
from eigenmesh.sites import read_site
from eigenmesh.sites.check import check
from eigenmesh.sites.peer import Peer
from mesh import Mesh

PARKED = 75


@pytest.fixture
def two(tmp_path):
    X = load_digits().data[:, 1:21]
    with Mesh(tmp_path, {"oslo": X[:900], "bergen": X[900:]}, [("oslo", "bergen")]) as mesh:
        yield mesh


# One takes no byte, the other no file.
@pytest.mark.parametrize("options", ["size=8k", "nr_inodes=1"])
def test_a_disk_that_is_full_at_the_start_parks_the_run_and_room_lets_it_go_on(two, tmp_path, options):
    with closing(SmallDisk(tmp_path / "disk", options)) as disk:
        disk.fill()
        two.out("oslo").symlink_to(disk.folder)
        two.start("oslo")
        assert two.wait("oslo") == {"oslo": PARKED}
        said = " ".join(two.said("oslo").split())
        assert "oslo parked the run" in said
        assert "No space left on device" in said
        assert "Free some space, and start it again" in said
        disk.make_room()
        two.start()
        assert set(two.wait().values()) == {0}
        two.assert_exact()


@pytest.mark.parametrize("what", ["journal", "audit"])
def test_so_does_a_disk_that_has_no_room_for_one_file_alone(two, tmp_path, what):
    out = two.out("oslo")
    out.mkdir()
    place = two.resume("oslo") / "journal" if what == "journal" else out / "audit.jsonl"
    with closing(SmallDisk(tmp_path / "disk", "size=8k")) as disk:
        disk.fill()
        peer = Peer(read_site(two.folder("oslo") / "site.toml"))
        place.parent.mkdir(exist_ok=True)
        (place.parent / "own-data").write_text(peer.own.fingerprint)
        place.symlink_to(disk.folder / "file")
        with pytest.raises(ParkedError, match=f"{what}.*cannot be written: No space left on device"):
            peer.run()


def test_a_check_says_how_much_room_there_is_and_how_much_a_run_needs(two, tmp_path):
    def found():
        return next(one for one in check(read_site(two.folder("oslo") / "site.toml")) if one.about == "out")

    with closing(SmallDisk(tmp_path / "disk", "size=4k")) as disk:
        two.out("oslo").symlink_to(disk.folder)
        assert found().verdict == "problem"
        assert "has 4.1 kB free; a run like this writes" in found().text
        assert found().text.endswith("or more: free some space")
        disk.make_room()
        assert found().verdict == "ok"
        two.start()
        assert set(two.wait().values()) == {0}
        files = ("result.npz", "result.json", "scores.csv")
        written = sum((two.out("oslo") / file).stat().st_size for file in files) + two.numbers("oslo")["bytes"] / 2
        needed = found().text.split("writes ")[1].split(" kB")[0]
        assert written < 1000 * float(needed)
