"""Real peers for tests: a process a site, real certificates, real sockets on loopback."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from eigenmesh.cli.site_keys import init
from eigenmesh.sites import read_site
from eigenmesh.sites.network_file import Manifest
from ports import free_ports
from problems import angles, truth
from processes import Forked, command
from waiting import until

LIMIT_S = 300.0


RELAY = "relay"


class Mesh:
    """Sites in folders below ``root``, each with its part of the data; a context, which ends what still runs.

    Sites in ``without_port`` have no address. Links between two of them, and those in ``relayed``, go over a relay.
    """

    def __init__(
        self,
        root: Path,
        parts: Mapping[str, np.ndarray],
        edges: Sequence[tuple[str, str]],
        headers: Mapping[str, Sequence[str]] | None = None,
        without_port: Sequence[str] = (),
        relayed: Sequence[tuple[str, str]] = (),
        **settings: Any,
    ) -> None:
        self.root, self.parts = root, dict(parts)
        self.running: dict[str, Forked | subprocess.Popen[bytes]] = {}
        self.ports = ports = dict(zip((*parts, RELAY), free_ports(len(parts) + 1), strict=True))
        self.relay: Forked | None = None
        usual = {"n_components": 3, "tol": 1e-9, "seed": 0, "patience_s": 30, "solver": "block-krylov"}
        settings = {**usual, **settings}
        mixes = settings["solver"] not in {"auto", "block-krylov"}
        settings.setdefault("privacy", "open" if mixes or len(parts) < 3 else "masked")
        lines = ['run = "test"', f"edges = {json.dumps(edges)}"]
        for name in parts:
            lines += ["[[site]]", f'name = "{name}"']
            if name not in without_port:
                lines += [f'address = "127.0.0.1:{ports[name]}"', f'listen = "127.0.0.1:{ports[name]}"']
        between = [edge for edge in edges if set(edge) <= set(without_port) or edge in relayed]
        if between:
            lines += ["[[relay]]", f'name = "{RELAY}"', f'address = "127.0.0.1:{ports[RELAY]}"']
            lines.append(f"links = {json.dumps(between)}")
        lines += ["[settings]", *(f"{key} = {_toml(value)}" for key, value in settings.items() if value is not None)]
        (root / "network.toml").write_text("\n".join(lines))
        init(root / "network.toml", root / "mesh")
        for name, part in parts.items():
            if (settings["privacy"], settings.get("on_loss")) == ("masked", "continue"):
                self.edit(name, "agrees_to_continue = false", "agrees_to_continue = true")
            file = "data.npy" if headers is None else "data.csv"
            self.edit(name, r'file = ".*?"', f'file = "{file}"')
            if headers is None:
                np.save(self.folder(name) / file, part)
            else:
                text = "\n".join([",".join(headers[name]), *(",".join(map(repr, row)) for row in part.tolist())])
                (self.folder(name) / file).write_text(text)

    def folder(self, name: str) -> Path:
        return self.root / "mesh" / name

    def out(self, name: str) -> Path:
        return self.folder(name) / "out"

    def resume(self, name: str) -> Path:
        """What a site resumes its run from, if the settings stay as they are and columns have no names."""
        site = read_site(self.folder(name) / "site.toml")
        run_id = Manifest.of(site, self.parts[name].shape[1], None).run_id
        return self.out(name) / f"resume-{site.run}-{run_id.hex()[:8]}"

    def edit(self, name: str, pattern: str, text: str) -> None:
        """Change a site's settings."""
        path = self.folder(name) / "site.toml"
        changed, count = re.subn(pattern, text, path.read_text())
        assert count, f"{pattern} is not in {path}"
        path.write_text(changed)

    def caller_of(self, first: str, second: str) -> str:
        """The one of two neighbours that calls the other."""
        return first if second in read_site(self.folder(first) / "site.toml").called else second

    def port_towards(self, caller: str, called: str) -> int:
        """The port that a site calls to reach a neighbour: the neighbour's own, or that of the relay."""
        met = read_site(self.folder(caller) / "site.toml").met_at_relays
        return self.ports[RELAY if called in met else called]

    def reroute(self, caller: str, called: str, address: str) -> None:
        """Have a site call a neighbour, or the relay at which they meet, at another address."""
        if self.port_towards(caller, called) == self.ports[RELAY]:
            self.edit(caller, rf'\naddress = "127.0.0.1:{self.ports[RELAY]}"', f'\naddress = "{address}"')
            return
        self.edit(caller, rf'\n{called} = "[^"]*:\d+"', f'\n{called} = "{address}"')

    def start(self, *names: str, work: Callable[..., None] = command, options: Sequence[str] = ()) -> None:
        """Start some sites, or all; ``work`` runs the words of a command."""
        for name in names or self.parts:
            words = "site", "run", *options, str(self.folder(name) / "site.toml")
            said = self.folder(name) / "said.txt"
            self.running[name] = Forked(work, *words, output=said, environment={"COLUMNS": "200"})

    def call_through(self, proxy: str, *names: str) -> None:
        """Have some sites, or all, make their calls through an HTTP proxy."""
        for name in names or self.parts:
            self.edit(name, "# proxy = .*", f'proxy = "{proxy}"')

    def start_relay(self, work: Callable[..., None] = command, *args: Any) -> None:
        """Start the relay; ``work`` gets these arguments and then the words of the command."""
        words = "site", "relay", str(self.folder(RELAY) / "relay.toml")
        self.relay = Forked(work, *args, *words, output=self.folder(RELAY) / "said.txt")

    def kill_relay(self) -> None:
        assert self.relay is not None
        self.relay.kill()
        self.relay.wait(60)

    def start_anew(self) -> None:
        """As operators do: one command per site, each in a Python of its own, which takes some seconds to start."""
        for name in self.parts:
            with open(self.folder(name) / "said.txt", "a", encoding="utf-8") as said:
                self.running[name] = subprocess.Popen(
                    [sys.executable, "-m", "eigenmesh", "site", "run", str(self.folder(name) / "site.toml")],
                    stdout=said,
                    stderr=subprocess.STDOUT,
                )

    def kill(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        self.running[name].send_signal(how)
        if how is signal.SIGKILL:
            self.running[name].wait(60)

    def wait(self, *names: str) -> dict[str, int]:
        """Exit statuses, once all have ended."""
        deadline = time.monotonic() + LIMIT_S
        chosen = names or tuple(self.running)
        for name in chosen:
            try:
                self.running[name].wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise AssertionError(f"{name} still runs: {self.status(name)}\n{self.said(name)}") from None
        return {name: self.running[name].returncode for name in chosen}

    def said(self, name: str) -> str:
        # A process that is killed at once has no time to make it.
        path = self.folder(name) / "said.txt"
        return path.read_text() if path.exists() else ""

    def status(self, name: str) -> dict[str, Any]:
        try:
            return json.loads((self.out(name) / "status.json").read_text())
        except (OSError, ValueError):
            return {"round": 0, "phase": "unknown"}

    def until(self, name: str, round_: int) -> None:
        """Wait until a site is beyond a round."""
        until(
            lambda: self.status(name)["round"] >= round_ or self.running[name].poll() is not None,
            lambda: f"{name} is stuck: {self.status(name)}\n{self.said(name)}",
        )
        assert self.status(name)["round"] >= round_, f"{name} ended early: {self.said(name)}"

    def result(self, name: str) -> dict[str, np.ndarray]:
        with np.load(self.out(name) / "result.npz", allow_pickle=False) as arrays:
            return dict(arrays)

    def numbers(self, name: str) -> dict[str, Any]:
        return json.loads((self.out(name) / "result.json").read_text())

    def log(self, name: str) -> str:
        return (self.out(name) / "peer.log").read_text()

    def assert_exact(self, members: Sequence[str] | None = None, bound: float = 1e-8) -> None:
        """Every member has the components of the members' pooled data, in the same signs and order."""
        members = list(members or self.parts)
        vectors = pooled_components(np.vstack([self.parts[name] for name in members]))
        first = self.result(members[0])["components"]
        for name in members:
            components = self.result(name)["components"]
            assert angles(components, vectors).max() < bound, name
            assert (np.sum(components * first, axis=1) > 0.999).all(), name
            numbers = self.numbers(name)
            assert numbers["sites"] == members
            assert numbers["n_samples"] == sum(len(self.parts[member]) for member in members)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self.running.values(), *([] if self.relay is None else [self.relay])):
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


def pooled_components(X: np.ndarray) -> np.ndarray:
    """Principal components of pooled samples as columns; never by a matrix of d x d where d is above their number."""
    if X.shape[1] <= X.shape[0]:
        return truth(X)[1]
    return np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2].T


def _toml(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)


def ring(names: Sequence[str]) -> list[tuple[str, str]]:
    return [(name, names[(place + 1) % len(names)]) for place, name in enumerate(names)]
