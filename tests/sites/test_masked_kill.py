"""A real peer of a masked run is killed again and again: no mask is used twice, and the result is the same bits."""

import json
import signal
from collections import defaultdict
from functools import partial

import numpy as np
import pytest
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

pytest.importorskip("cryptography")

from eigenmesh import DecentralizedPCA
from eigenmesh.sites.audit import read_audit
from killed import masking_command
from mesh import LIMIT_S, Mesh, ring

pytestmark = pytest.mark.slow

NAMES = ("oslo", "bergen", "voss")
# Averages at which the site is killed, one after the other; the first has the moments.
KILLS = (0, 2, 5)


@pytest.fixture(scope="module")
def parts():
    X, labels = load_digits(return_X_y=True)
    return {name: X[labels % 3 == site][: 600 - 40 * site] for site, name in enumerate(NAMES)}


def test_a_masked_site_that_is_killed_uses_no_mask_twice_and_all_have_the_bits_of_a_run_in_peace(tmp_path, parts):
    notes, before = tmp_path / "masked.jsonl", 0
    with Mesh(tmp_path, parts, ring(NAMES), patience_s=120) as mesh:
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
        found = [mesh.result(name) for name in NAMES]
    with threadpool_limits(1):
        peace = DecentralizedPCA(n_components=3, tol=1e-9, random_state=0, topology="cycle", privacy="masked")
        peace.fit(list(parts.values()))
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
    for name in NAMES:
        sent = defaultdict(set)
        for line in read_audit(mesh.out(name) / "audit.jsonl"):
            if line is not None and line["kind"] == "DATA":
                sent[line["to"], line["epoch"], line["round"]].add(line["sha256"])
        assert len(sent) > 10
        assert {len(digests) for digests in sent.values()} == {1}
