"""A federation of Flower on this machine: a superlink and a supernode for each site."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil

from ports import free_ports
from waiting import until

# Flower asks for other versions than the rest of the tests: `make flower` gives it an environment of its own.
PLACES = (Path(__file__).parents[1] / ".venv-flower" / "bin", Path(sys.executable).parent)
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
    """A superlink and its supernodes, with their logs in a folder. Some sites may have weights of their rows."""

    def __init__(
        self,
        folder: Path,
        programs: Path,
        parts: Mapping[str, np.ndarray],
        weights: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        self.folder, self.bin, self.sites = folder, programs, dict[str, subprocess.Popen]()
        home, app = folder / "home", folder / "app"
        home.mkdir()
        app.mkdir()
        (app / "pyproject.toml").write_text(APP, encoding="utf-8")
        port, *ports = free_ports(1 + len(parts))
        here = f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
        (home / "config.toml").write_text(here, encoding="utf-8")
        own = {"FLWR_HOME": str(home), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
        self.environment = {**os.environ, **own, "FLWR_TELEMETRY_ENABLED": "0"}
        listens = ("--insecure", "--host", "127.0.0.1", "--port")
        self.link = self._start("link", "superlink", *listens, str(port), "--disable-runtime-dependency-installation")
        for (name, rows), own_port in zip(parts.items(), ports, strict=True):
            np.save(folder / f"{name}.npy", rows)
            config = f'data="{folder / name}.npy" name="{name}"'
            if weights is not None and name in weights:
                np.save(folder / f"{name}-weights.npy", weights[name])
                config += f' weights="{folder / name}-weights.npy"'
            to = ("--superlink", f"127.0.0.1:{port}", "--node-config", config)
            self.sites[name] = self._start(name, "supernode", *listens, str(own_port), *to)
        until(lambda: self.log("link").count("Activated node_id") == len(parts), lambda: self.log("link"))

    def _start(self, name: str, what: str, *options: str) -> subprocess.Popen:
        with open(self.folder / f"{name}.log", "wb") as log:
            command = [self.bin / f"flower-{what}", *options]
            return subprocess.Popen(command, stdout=log, stderr=log, env=self.environment, cwd=self.folder)

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
        # What it has started, some of it in groups of their own.
        whole = psutil.Process(process.pid)
        for one in (*whole.children(recursive=True), whole):
            with suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait(300)

    def close(self) -> None:
        for process in (*self.sites.values(), self.link):
            if process.poll() is None:
                self.kill(process)


def programs() -> Path | None:
    """Where Flower's commands are, if it is installed."""
    return next((place for place in PLACES if shutil.which("flower-superlink", path=place)), None)
