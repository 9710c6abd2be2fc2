"""A peer: what it is told and loads, descriptors in reserve, and runs of split columns and weighted samples."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_digits

pytest.importorskip("cryptography")

from eigenmesh.metrics import largest_angle
from eigenmesh.model import read_model
from eigenmesh.protocol import wire
from eigenmesh.sites import read_site
from eigenmesh.sites.audit import summary
from eigenmesh.solvers import FastPCA
from mesh import Mesh, ring

# What a transport is told about the run.


@pytest.mark.parametrize("n_features", [100, 11_600, 1_000_000])
def test_the_largest_message_is_one_that_tls_takes_at_once(mesh, n_features):
    """A share of the variance may need all components: d x d numbers, more bytes than a C int holds."""
    from eigenmesh.transports.tls.connection import prefixed

    site = read_site(mesh / "bergen" / "site.toml")
    size = replace(
        site.settings, asked=replace(site.settings.asked, n_components=0.9, solver=FastPCA())
    ).largest_message(n_features)
    assert size >= min(8 * n_features**2, 1 << 30)
    assert len(prefixed(b"")) + wire.OVERHEAD_BYTES + size < 1 << 31


# A result can be written even when strangers hold every descriptor that is left.


CODE = """
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 100))
from eigenmesh.sites.peer import SpareDescriptors
spare = SpareDescriptors()
assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 100
taken = []
try:
    while True:
        taken.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
try:
    open(PATH, "w")
    raise SystemExit("nothing was exhausted")
except OSError:
    pass
spare.release()
with open(PATH, "w") as file:
    file.write("the result")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits of descriptors are POSIX")
def test_descriptors_that_were_kept_back_let_a_result_be_written(tmp_path):
    path = tmp_path / "result"
    code = CODE.replace("PATH", repr(str(path)))
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert path.read_text() == "the result"


# What a peer does not need is not imported: many of them may share one machine.


# What the other commands and the other kinds of data need.
UNNEEDED = (
    *("sklearn", "pandas", "pyarrow", "matplotlib", "dask", "torch", "mpi4py", "joblib"),
    *("scipy.stats", "scipy.optimize", "scipy.sparse.linalg", "scipy.sparse.csgraph", "scipy.special"),
    *("eigenmesh.experiments", "eigenmesh.estimator", "eigenmesh.coordinators", "eigenmesh.theory"),
    *("eigenmesh.report.page", "http.client", "urllib.request"),
)
# What only a fit needs, and not a peer that waits until the others are there.
NEEDED_LATER = ("networkx", "scipy.sparse", "scipy.linalg", "array_api_compat.numpy", "numpy.testing")
PEER = """
import json, sys
from eigenmesh.cli import main
from eigenmesh.transports.tls import TlsTransport

waits = TlsTransport.wait_for_members

def noted(transport):
    print(json.dumps(sorted(sys.modules)))
    waits(transport)

TlsTransport.wait_for_members = noted
sys.argv = ["eigenmesh", "site", "run", "--quiet", sys.argv[1]]
try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)))
"""


def test_a_peer_imports_nothing_that_it_does_not_need(tmp_path):
    X = load_digits().data
    with Mesh(tmp_path, {"oslo": X[:900], "bergen": X[900:]}, [("oslo", "bergen")]) as mesh:
        words = [sys.executable, "-c", PEER]
        for name in mesh.parts:
            mesh.running[name] = subprocess.Popen([*words, mesh.folder(name) / "site.toml"], stdout=subprocess.PIPE)
        said = {name: process.communicate(timeout=300)[0] for name, process in mesh.running.items()}
        assert set(mesh.wait().values()) == {0}
        mesh.assert_exact()
    for name, text in said.items():
        waiting, imported = map(json.loads, text.splitlines())
        assert "eigenmesh.transports.tls" in waiting
        assert [module for module in (*UNNEEDED, *NEEDED_LATER) if module in waiting] == [], name
        assert [module for module in UNNEEDED if module in imported] == [], name


# Peers that hold other columns of the same samples: real processes, over mutual TLS.


WIDTHS = {"oslo": 30, "bergen": 9, "bodo": 25}
BAD_INPUT, ENDED = 2, 4


@pytest.fixture
def parts():
    X = load_digits().data[:150]
    return dict(zip(WIDTHS, np.split(X, np.cumsum(list(WIDTHS.values()))[:-1], axis=1), strict=True))


def headers_of(parts):
    return {name: ["patient", *(f"{name}{column}" for column in range(part.shape[1]))] for name, part in parts.items()}


def with_ids(parts):
    return {name: np.hstack([np.arange(len(part))[:, np.newaxis] + 1000, part]) for name, part in parts.items()}


def made(tmp_path, parts):
    mesh = Mesh(tmp_path, with_ids(parts), ring(list(parts)), headers_of(parts), partition="features")
    for name in parts:
        mesh.edit(name, r"# id_column = .*", 'id_column = "patient"')
    return mesh


@pytest.mark.slow
def test_each_site_gets_all_scores_and_the_loadings_of_its_own_columns(tmp_path, parts):
    mesh, X = made(tmp_path, parts), np.hstack(list(parts.values()))
    mesh.start()
    assert set(mesh.wait().values()) == {0}, [mesh.said(name) for name in parts]
    models = {name: read_model(mesh.out(name) / "result.npz") for name in parts}
    V = np.concatenate([model.components for model in models.values()], axis=1).T
    centred = X - X.mean(axis=0)
    assert largest_angle(V[np.newaxis], np.linalg.svd(centred)[2][:3].T) < 1e-8
    for name, model in models.items():
        assert model.components.shape == (3, WIDTHS[name])
        assert (model.scores == models["oslo"].scores).all()
        np.testing.assert_allclose(model.scores, centred @ V, atol=1e-6)
        assert model.warnings
        assert mesh.numbers(name)["manifest"]["n_samples"] == 150
        written = (mesh.out(name) / "scores.csv").read_text().splitlines()
        assert written[1].startswith("1000")
        assert len(written) == 151
        sent = [json.loads(line) for line in (mesh.out(name) / "audit.jsonl").read_text().splitlines()]
        shapes = {tuple(shape) for line in sent for shape in line.get("shapes", ())}
        assert any(149 in shape for shape in shapes)
        assert not [shape for shape in shapes if set(shape) & {30, 9, 25, 64}], "a vector of loadings"
        (run,) = summary(mesh.out(name) / "audit.jsonl").runs
        assert (run.masked, run.loading_shaped, run.sample_shaped) == (True, 0, 0)
        assert mesh.numbers(name)["privacy"]["of_all_samples"].startswith("scores of all samples")


@pytest.mark.slow
def test_other_rows_are_refused_and_only_their_site_learns_where(tmp_path, parts):
    mesh = made(tmp_path, parts)
    path = mesh.folder("bodo") / "data.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:41], lines[42], lines[41], *lines[43:]]))
    mesh.start()
    ended = mesh.wait()
    assert 0 not in ended.values()
    assert "from row 40 on" in mesh.said("bodo")
    assert all("row 40" not in mesh.said(name) for name in ("oslo", "bergen"))


@pytest.mark.slow
def test_another_number_of_rows_is_refused_by_the_manifest(tmp_path, parts):
    parts["bodo"] = parts["bodo"][:-1]
    mesh = made(tmp_path, parts)
    mesh.start()
    assert set(mesh.wait().values()) <= {BAD_INPUT, ENDED}
    assert "n_samples: 149 here, 150 there" in mesh.said("bodo")


# Peers whose rows have weights: the answer is that of repeated rows.


@pytest.mark.slow
def test_weights_of_one_site_count_at_all(tmp_path):
    X = load_digits().data[:120, 2:8]
    counts = np.arange(40) % 3
    own = {"oslo": X[:40], "bergen": X[40:70], "bodo": X[70:]}
    parts = {**own, "oslo": np.column_stack([counts, X[:40]])}
    names = [f"x{column}" for column in range(6)]
    mesh = Mesh(tmp_path, parts, ring(list(parts)), {**dict.fromkeys(parts, names), "oslo": ["count", *names]})
    mesh.edit("oslo", r"# weight_column = .*", 'weight_column = "count"')
    mesh.start()
    assert set(mesh.wait().values()) == {0}, [mesh.said(name) for name in parts]
    model, repeated = (
        read_model(mesh.out("bodo") / "result.npz"),
        np.vstack([np.repeat(X[:40], counts, axis=0), X[40:]]),
    )
    centred = repeated - repeated.mean(axis=0)
    assert largest_angle(model.components.T[np.newaxis], np.linalg.svd(centred)[2][:3].T) < 1e-8
    assert model.n_samples == len(repeated)
