"""The dry run: what is wrong at a site, or with the neighbours that it calls, is known before a run."""

import hashlib
import json
import socket
import threading

import numpy as np
import pytest
from handshakes import context
from sklearn.datasets import load_digits
from typer.testing import CliRunner

from mesh import Mesh, ring
from waiting import until

pytest.importorskip("cryptography")

from eigenmesh.cli import app
from eigenmesh.sites import read_site
from eigenmesh.sites.check import check


@pytest.fixture
def two(tmp_path):
    X = load_digits().data[:, 1:21]
    with Mesh(tmp_path, {"oslo": X[:900], "bergen": X[900:]}, [("oslo", "bergen")]) as mesh:
        yield mesh


def findings(mesh, name="oslo"):
    return {found.about: found for found in check(read_site(mesh.folder(name) / "site.toml"))}


def verdicts(found):
    return {about: one.verdict for about, one in found.items() if one.verdict != "ok"}


def test_a_site_that_is_ready_and_what_it_would_send(two):
    found = findings(two, "bergen")
    assert verdicts(found) == {"privacy": "note", "neighbour oslo": "note"}
    assert not two.out("bergen").exists()
    assert "897 samples of 20 columns" in found["data"].text
    assert "products of 20 x 8; the largest has 2.6 kB" in found["messages"].text
    assert found["listen"].text.endswith("is free")
    assert "824 days" in found["certificate"].text
    # The forecast is that of the run.
    two.start()
    assert set(two.wait().values()) == {0}
    forecast = int(found["forecast"].text.split(" rounds")[0])
    assert abs(forecast - two.numbers("bergen")["rounds"]) <= 0.2 * forecast
    data = (two.folder("bergen") / "data.npy").read_bytes()
    assert two.numbers("bergen")["own_data"] == {"sha256": [hashlib.sha256(data).hexdigest()], "read_with": {}}


def test_a_neighbour_that_is_not_up_is_a_note_and_one_that_is_up_is_met(two):
    assert "is not up" in findings(two)["neighbour bergen"].text
    assert verdicts(findings(two)) == {"neighbour bergen": "note", "privacy": "note"}
    two.start("bergen")
    until(lambda: findings(two)["neighbour bergen"].verdict == "ok", "bergen is never up")
    assert "accepts this site's certificate" in findings(two)["neighbour bergen"].text
    # And its own port is taken.
    assert findings(two, "bergen")["listen"].verdict == "problem"


def test_manifests_are_compared_with_those_of_neighbours_that_are_up(two):
    two.start("bergen")
    until(lambda: findings(two)["neighbour bergen"].verdict == "ok", "bergen is never up")
    assert findings(two)["manifest of bergen"].text == "the same as here"
    two.edit("oslo", "n_components = 3", "n_components = 2")
    found = findings(two)["manifest of bergen"]
    assert found.verdict == "problem"
    assert "n_components: 2 here, 3 there" in found.text
    two.edit("oslo", "n_components = 2", "n_components = 3")
    # bergen has shown what it is set up for, and still waits for oslo to join.
    assert '"kind":"MANIFEST"' in (two.out("bergen") / "audit.jsonl").read_text()
    two.start("oslo")
    assert set(two.wait().values()) == {0}
    two.assert_exact()


def test_a_neighbour_with_another_certificate_is_a_problem(two):
    """Someone else has the port: oslo's own certificate, which is not for bergen."""
    with socket.create_server(("127.0.0.1", two.ports["bergen"])) as listener:

        def answer():
            plain, _ = listener.accept()
            try:
                context(two.folder("oslo"), server=True).wrap_socket(plain, server_side=True)
            except OSError:
                plain.close()

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        found = findings(two)["neighbour bergen"]
        thread.join(timeout=60)
    assert found.verdict == "problem"
    assert "handshake failed" in found.text


def test_a_wrong_key_is_one_problem_and_neighbours_are_not_blamed_for_it(two):
    (two.folder("oslo") / "key.pem").write_bytes((two.folder("bergen") / "key.pem").read_bytes())
    found = findings(two)
    assert verdicts(found) == {"certificate": "problem", "neighbour bergen": "note", "privacy": "note"}
    assert "was not tried" in found["neighbour bergen"].text


def test_an_out_folder_that_cannot_be_made_is_a_problem(two):
    assert "free; a run like this writes" in findings(two)["out"].text
    two.out("oslo").write_text("a file")
    assert "is a file; choose another out.folder" in findings(two)["out"].text


def test_data_that_cannot_be_read_hide_no_other_problem(tmp_path):
    X, names = load_digits().data[:90, 1:5], ("oslo", "bergen", "tromso")
    with Mesh(tmp_path, {name: X[at::3] for at, name in enumerate(names)}, ring(names)) as mesh:
        (mesh.folder("oslo") / "data.npy").unlink()
        mesh.edit("oslo", r"(?s)\[fingerprints\].*", "")
        found = findings(mesh)
    assert (found["data"].verdict, found["privacy"].verdict) == ("problem", "problem")
    assert "run eigenmesh site pin" in found["privacy"].text


def test_missing_and_constant_columns_and_a_solver_that_is_too_slow(two):
    path = two.folder("bergen") / "data.npy"
    X = np.load(path)
    X[3, 4], X[:, 7] = np.nan, 2.0
    np.save(path, X)
    found = findings(two, "bergen")
    seen = {"privacy": "note", "missing": "problem", "constant": "note", "forecast": "problem"}
    seen["neighbour oslo"] = "note"
    assert verdicts(found) == seen
    assert "1 entries in column 4" in found["missing"].text
    assert "column 7" in found["constant"].text
    two.edit("bergen", 'missing = "error"', 'missing = "mean"')
    two.edit("bergen", "max_rounds = .*", "max_rounds = 3")
    found = findings(two, "bergen")
    assert verdicts(found) == {**seen, "missing": "note"}
    assert "within 3 rounds" in found["forecast"].text


def test_a_warning_about_data_names_what_is_in_the_file_and_no_option(two):
    lines = [f"{row},{row % 7},{row / 7}" for row in range(20)]
    (two.folder("bergen") / "data.csv").write_text("\n".join(["nr,a,b", *lines]))
    two.edit("bergen", "data.npy", "data.csv")
    done = CliRunner().invoke(app, ["site", "check", str(two.folder("bergen") / "site.toml")])
    assert "column 'nr'" in done.stderr
    assert 'leave it out, drop = ["nr"], or say that it is one, id_column = "nr"' in done.stderr.replace("\n", " ")


def test_the_command_prints_a_table_or_values_and_ends_with_2_for_a_problem(two):
    site = two.folder("bergen") / "site.toml"
    done = CliRunner().invoke(app, ["site", "check", str(site)])
    assert done.exit_code == 0, done.output
    assert "bergen is ready" in done.stdout
    (two.folder("bergen") / "key.pem").chmod(0o644)
    done = CliRunner().invoke(app, ["site", "check", str(site), "--json"])
    assert done.exit_code == 2
    (wrong,) = [one for one in json.loads(done.stdout)["findings"] if one["verdict"] == "problem"]
    assert "chmod 600" in wrong["text"]


def test_what_the_run_would_refuse_is_found_by_its_own_code(two):
    """The sums of a run are computed from these samples; one that calls in cannot be tried."""
    found = findings(two)
    assert found["sums"].verdict == "ok"
    calls = findings(two, "bergen")["neighbour oslo"]
    assert calls.verdict == "note"
    assert calls.text.startswith("not tested: it calls this site at 127.0.0.1:")
    path = two.folder("oslo") / "data.npy"
    np.save(path, np.load(path) * 1e170)
    found = findings(two)["sums"]
    assert found.verdict == "problem"
    assert "overflows float64" in found.text
