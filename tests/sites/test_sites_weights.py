"""Peers whose rows have weights: the answer is that of repeated rows."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from eigenmesh.metrics import largest_angle
from eigenmesh.model import read_model
from mesh import Mesh, ring

pytest.importorskip("cryptography")


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
