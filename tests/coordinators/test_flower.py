"""A federation of Flower, started for real: a superlink and three supernodes, each with the file of its site."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from eigenmesh import DecentralizedPCA, load_model
from eigenmesh.data.datasets import gaussian, geometric_spectrum
from ports import free_ports
from waiting import until

pytestmark = pytest.mark.slow

NAMES, K = ("bergen", "oslo", "tromso"), 3
# Flower asks for other versions than the rest of the tests: `make flower` gives it an environment of its own.
PLACES = (Path(__file__).parents[2] / ".venv-flower" / "bin", Path(sys.executable).parent)
APP = """
[project]
name = "pca"
version = "1.0.0"
description = "The principal components of all sites"
license = "Apache-2.0"
dependencies = []

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "hospital"

[tool.flwr.app.components]
serverapp = "eigenmesh.coordinators.flower:server"
clientapp = "eigenmesh.coordinators.flower:client"

[tool.flwr.app.config]
sites = 3
components = 3
random_state = 0
tol = 1e-10
covariance = "formed"
timeout = 120
out = "model.npz"
"""


class Federation:
    """A superlink and its supernodes, with their logs in a folder."""

    def __init__(self, folder: Path, programs: Path, parts: list[np.ndarray]) -> None:
        self.folder, self.bin, self.sites = folder, programs, dict[str, subprocess.Popen]()
        home, app = folder / "home", folder / "app"
        home.mkdir()
        app.mkdir()
        (app / "pyproject.toml").write_text(APP, encoding="utf-8")
        port, *ports = free_ports(1 + len(NAMES))
        here = f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
        (home / "config.toml").write_text(here, encoding="utf-8")
        own = {"FLWR_HOME": str(home), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
        self.environment = {**os.environ, **own, "FLWR_TELEMETRY_ENABLED": "0"}
        listens = ("--insecure", "--host", "127.0.0.1", "--port")
        self.link = self._start("link", "superlink", *listens, str(port), "--disable-runtime-dependency-installation")
        for name, own_port, rows in zip(NAMES, ports, parts, strict=True):
            np.save(folder / f"{name}.npy", rows)
            config = f'data="{folder / name}.npy" name="{name}"'
            to = ("--superlink", f"127.0.0.1:{port}", "--node-config", config)
            self.sites[name] = self._start(name, "supernode", *listens, str(own_port), *to)
        until(lambda: self.log("link").count("Activated node_id") == len(NAMES), lambda: self.log("link"))

    def _start(self, name: str, what: str, *options: str) -> subprocess.Popen:
        with open(self.folder / f"{name}.log", "wb") as log:
            command = [self.bin / f"flower-{what}", *options]
            # A group of its own, so that what it starts ends with it.
            return subprocess.Popen(
                command, stdout=log, stderr=log, env=self.environment, cwd=self.folder, start_new_session=True
            )

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def run(self, **config: object) -> subprocess.Popen:
        words = " ".join(
            f'{name}="{value}"' if isinstance(value, str) else f"{name}={value}" for name, value in config.items()
        )
        with open(self.folder / "run.log", "wb") as log:
            command = [self.bin / "flwr", "run", "app", "here", "--stream", "--run-config", words]
            return subprocess.Popen(command, stdout=log, stderr=log, env=self.environment, cwd=self.folder)

    def kill(self, process: subprocess.Popen) -> None:
        os.killpg(process.pid, 9)
        process.wait(300)


@pytest.fixture(scope="module")
def samples():
    rng = np.random.default_rng(0)
    X = gaussian(geometric_spectrum(20, K, 0.5, ratio=0.8), 400, 0) + rng.normal(scale=5, size=20)
    return np.split(X, [100, 350])


@pytest.fixture(scope="module")
def federation(tmp_path_factory, samples):
    programs = next((place for place in PLACES if shutil.which("flower-superlink", path=place)), None)
    if programs is None:
        pytest.skip("Flower is not installed: make flower")
    started = Federation(tmp_path_factory.mktemp("flower"), programs, samples)
    yield started
    for process in (*started.sites.values(), started.link):
        if process.poll() is None:
            started.kill(process)


def test_the_components_of_the_simulation(federation, samples):
    out = federation.folder / "model.npz"
    assert federation.run(out=str(out)).wait(600) == 0
    assert out.exists(), federation.log("run")
    model = load_model(out)
    pca = DecentralizedPCA(K, tol=1e-10, random_state=0).fit(samples)
    np.testing.assert_allclose(model.components_, pca.components_, rtol=0, atol=1e-12)
    assert model.n_samples_ == 400
    assert "400 samples of 3 sites, 2 requests: converged" in federation.log("run")


def test_a_site_that_is_gone_ends_the_fit_by_name(federation):
    out = federation.folder / "none.npz"
    running, before = federation.run(out=str(out), covariance="matrix-free", timeout=60), len(federation.log("link"))
    # Every site has answered once.
    until(
        lambda: federation.log("link")[before:].count("Push replies from") >= 3 or running.poll() is not None,
        lambda: federation.log("run"),
    )
    federation.kill(federation.sites["oslo"])
    running.wait(600)
    said = " ".join(federation.log("run").split())
    assert re.search(r"site oslo\b[^.]* did not answer within 60 s", said), said
    assert not out.exists()
