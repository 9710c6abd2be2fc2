"""A site that shares no code with eigenmesh takes part in masked runs with peers that do."""

import ast
import hashlib
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cryptography")

import independent_site as other
from mesh import Mesh, pooled_components
from problems import angles

PAGES = Path(__file__).parents[2] / "docs" / "sites"
NAMES = ("oslo", "bergen", "tromso", "bodo", "voss")
NETWORKS = {
    "star": ("voss", [("bergen", "oslo"), ("bergen", "tromso"), ("bergen", "bodo"), ("bergen", "voss")]),
    "path": ("oslo", list(itertools.pairwise(NAMES))),
}


def test_it_imports_nothing_of_eigenmesh():
    modules = set()
    for node in ast.walk(ast.parse(Path(other.__file__).read_text())):
        if isinstance(node, ast.Import):
            modules |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(node.module.split(".")[0])
    assert modules - set(sys.stdlib_module_names) == {"numpy", "cryptography"}


def vectors(page):
    """The rows of the tables of a page that have a value in hexadecimal."""
    rows = re.findall(r"^\| ([^|]+) \| `([0-9a-f ]+)` \|$", (PAGES / page).read_text(encoding="utf-8"), re.MULTILINE)
    return dict(rows)


def test_the_vectors_of_the_page_on_masks():
    due, names = vectors("masks.md"), ["north", "east", "south", "west"]
    secrets = {name: hashlib.sha256(name.encode()).digest() for name in names}
    publics = {name: other.public_key(secret) for name, secret in secrets.items()}
    context = other.mask_context("autumn", 2, hashlib.sha256(b"manifest").digest(), names)
    for name in names:
        assert publics[name].hex() == due[f"public key of {name}"]
    assert other.shared_key(secrets["west"], "west", "north", publics, context).hex() == due["key of north and west"]
    heard = other.first_heard(context, publics)
    assert heard.hex() == due["first hash of the transcript"]
    for name in names:
        words = other.mask(secrets[name], name, publics, context, heard, 0, 2)
        assert " ".join(f"{word:016x}" for word in words) == due[f"{name}, average 0: words 0 and 1, as numbers"]


def test_the_vectors_of_the_page_on_the_wire():
    due = vectors("protocol.md")
    words = other.words_of(np.array([[1.5, -2.0], [0.25, 3.0]]), 3)
    assert " ".join(f"{word:x}" for word in words) == due["words of the two samples"]
    body = other.array_body(words)
    run_id = hashlib.sha256(hashlib.sha256(b"eigenmesh run\n" + b"0" * 64).digest()[:16]).digest()[:16]
    assert run_id.hex() == due["run id"]
    message = other.frame(other.DATA, run_id, body, 0, 0, 1)
    assert hashlib.sha256(message).hexdigest() == due["SHA-256 of the message"]


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
def test_it_takes_part_in_a_masked_run(tmp_path, network):
    """With numbers of its own, and the result is that of all samples."""
    name, edges = NETWORKS[network]
    rng = np.random.default_rng(3)
    parts = {
        one: rng.standard_normal((40 + 7 * place, 6)) * [9, 6, 3, 2, 1, 1] + 100 for place, one in enumerate(NAMES)
    }
    with Mesh(tmp_path, parts, edges, solver="one-sum", privacy="masked", without_port=[name]) as mesh:
        mesh.start(*[one for one in NAMES if one != name])
        words = [sys.executable, other.__file__, str(mesh.folder(name) / "site.toml")]
        done = subprocess.run(words, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr + "".join(mesh.said(one) for one in mesh.running)
        assert set(mesh.wait().values()) == {0}
        found, ours = json.loads(done.stdout), mesh.numbers("bergen")
        assert ours["whole"] is True
        assert set(ours["signatures"]) == set(NAMES)
        assert found["result_sha256"] == ours["result_sha256"]
        assert found["n_samples"] == ours["n_samples"] == sum(map(len, parts.values()))
        truth = pooled_components(np.vstack(list(parts.values())))
        for components in (np.array(found["components"]), mesh.result("bergen")["components"]):
            assert angles(components, truth).max() < 1e-8
