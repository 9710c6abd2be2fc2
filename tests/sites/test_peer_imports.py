"""What a peer does not need is not imported: many of them may share one machine."""

import json
import subprocess
import sys

import pytest
from sklearn.datasets import load_digits

from mesh import Mesh

pytest.importorskip("cryptography")

# What the other commands and the other kinds of data need.
UNNEEDED = (
    *("sklearn", "pandas", "pyarrow", "matplotlib", "dask", "torch", "mpi4py", "joblib", "prometheus_client"),
    *("scipy.stats", "scipy.optimize", "scipy.sparse.linalg", "scipy.sparse.csgraph", "scipy.special"),
    *("eigenmesh.experiments", "eigenmesh.estimator", "eigenmesh.coordinators", "eigenmesh.theory"),
    *("eigenmesh.report.page", "http.client", "urllib.request"),
)
PEER = """
import json, sys
from eigenmesh.cli import main
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
        imported = json.loads(text)
        assert "eigenmesh.transports.tls" in imported
        assert [module for module in UNNEEDED if module in imported] == [], name
