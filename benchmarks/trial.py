"""One trial of ``trials.py``: a fault in a run of five real peers, and what must hold at the end."""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from eigenmesh.protocol.setup import read_statement
from eigenmesh.sites import read_site
from eigenmesh.sites.authority import load_credentials
from eigenmesh.transports.tls import CertificateKeyring
from http_proxies import Tinyproxy
from mesh import Mesh, pooled_components, ring
from problems import angles
from processes import Forked

NAMES = ("oslo", "bergen", "tromso", "bodo", "voss")
EDGES = {
    "ring": ring(NAMES),
    "complete": [(a, b) for place, a in enumerate(NAMES) for b in NAMES[place + 1 :]],
    "star": [(NAMES[0], other) for other in NAMES[1:]],
    "path": list(itertools.pairwise(NAMES)),
}
SOLVERS: tuple[dict[str, Any], ...] = ({}, {"privacy": "open"}, {"solver": "tracked-subspace"})
BAD_INPUT, ENDED, CANNOT_RESUME, PARKED = 2, 4, 5, 75
DOCUMENTED = {0, BAD_INPUT, ENDED, CANNOT_RESUME, PARKED}
# Longer than the sum of all waits of a site.
LIMIT_S = 150.0
MAX_RESTARTS = 6
BOUND = 1e-8
TRACEBACK = re.compile("Traceback")
# What the log says when a task or thread of a peer has died.
LOST_TASK = re.compile("the (task|thread|protocol) .* has ended the run|a callback .* has ended the run")


class WrongError(Exception):
    """A result that must never occur."""


def require(condition: bool, words: str) -> None:
    if not condition:
        raise WrongError(words)


class HungError(Exception):
    """A site still waits although it need not."""


class Trial:
    """One mesh with a fault.

    Attributes
    ----------
    truths : the data that the result may be of: those that a site has now, and those that it had before.
    gone : sites that are not restarted.
    others : second processes of a site.
    parks : how often the run was parked and started again.
    repairs : functions that remove the fault before all sites start over; without a link, sites would never agree.
    """

    def __init__(self, seed: int, kind: str, way: str, root: Path, stack: ExitStack, faketime: str) -> None:
        self.rng, self.root, self.stack, self.faketime = np.random.default_rng(seed), root, stack, faketime
        X = self.rng.standard_normal((500, 16)) * np.sqrt(np.linspace(8, 1, 16))
        X[:, 0] *= 1.8
        X[:, 1] *= 1.4
        parts = {name: X[place::5][: 100 - 5 * place] for place, name in enumerate(NAMES)}
        self.edges = EDGES[str(self.rng.choice(list(EDGES)))]
        self.on_loss = "continue" if "continue" in kind else "wait"
        # A site that is stopped before its neighbours have met it is waited for so long.
        join_s = 6 if kind == "park" else 30
        settings = {"n_components": 2, "join_s": join_s, "round_s": 60, **SOLVERS[self.rng.integers(len(SOLVERS))]}
        patience = {"on_loss": self.on_loss, "patience_s": 8}
        # Three sites that nobody can call; some may be linked to each other by chance, and one link always is.
        closed, relayed = (self.pick(3), [self.edges[0]]) if way == "relay" else ([], [])
        with contextlib.redirect_stdout(io.StringIO()):
            hidden = {"without_port": closed, "relayed": relayed}
            self.mesh = stack.enter_context(Mesh(root, parts, self.edges, **hidden, **settings, **patience))
        if way == "relay":
            self.mesh.start_relay()
        elif way == "proxy":
            self.mesh.call_through(stack.enter_context(Tinyproxy(root)).url)
        self.truths: list[Mapping[str, np.ndarray]] = [parts]
        self.gone: set[str] = set()
        self.others: list[Forked] = []
        self.repairs: list[Callable[[], object]] = []
        self.codes: dict[str, int] = {}
        self.parks = 0

    def pick(self, count: int = 1) -> list[str]:
        return [str(name) for name in self.rng.choice(NAMES, count, replace=False)]

    def pause(self, longest_s: float) -> None:
        time.sleep(float(self.rng.uniform(0, longest_s)))

    def wait(self) -> None:
        """Wait until all have ended; a site that does not end is reported as hung."""
        end = time.monotonic() + LIMIT_S
        for name, process in self.mesh.running.items():
            try:
                self.codes[name] = process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise HungError(self.who_waits()) from None
        for second in self.others:
            try:
                code = second.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise HungError("the second process of a site does not end") from None
            require(code in DOCUMENTED, f"the second process of a site ended with {code}")

    def who_waits(self) -> str:
        words = []
        for name in self.mesh.running:
            status = self.mesh.status(name)
            waits = [link["name"] for link in status.get("neighbours", ()) if link["waiting"]]
            code = self.mesh.running[name].poll()
            place = f"round {status['round']}, epoch {status.get('epoch')}"
            words.append(f"{name} ({status['phase']}, {place}, exit {code}) waits for {', '.join(waits) or 'nobody'}")
        return "; ".join(words)

    def finish(self) -> bool:
        """Restart sites until all are done or one is refused; True if all remaining sites ended well.

        As operators do when a run is parked: all sites are started, even finished ones, because others may need them.
        """
        for _ in range(MAX_RESTARTS):
            self.wait()
            killed = -signal.SIGKILL
            later = [name for name in NAMES if self.codes[name] in (PARKED, killed) and name not in self.gone]
            refused = [name for name in NAMES if self.codes[name] not in (0, PARKED, killed)]
            if not later or refused:
                return not refused and not later
            self.mesh.start(*[name for name in NAMES if name not in self.gone])
        raise HungError(f"put off again and again: {self.last_words()}")

    def begin_anew(self) -> None:
        """Do what the messages of refused sites advise; all sites must then reach the result."""
        before = f"{self.codes}: {self.last_words()}"
        self.gone.clear()
        self.others.clear()
        for repair in self.repairs:
            repair()
        self.mesh.start(options=["--fresh"])
        if not self.finish():
            raise WrongError(f"cannot begin anew {self.codes}: {self.last_words()} (before: {before})")
        if self.check() != list(NAMES):
            raise WrongError(f"begun anew, but not of all: {self.codes}")

    def last_words(self) -> str:
        said = {name: _last_line(self.mesh.said(name)) for name in NAMES if self.codes.get(name)}
        return "; ".join(f"{name} ({self.codes[name]}) {words}" for name, words in said.items())

    def check(self) -> list[str]:
        """Check every result; returns the members that it names, if all of them have it."""
        for name, code in self.codes.items():
            said = self.mesh.said(name)
            if found := TRACEBACK.search(said):
                raise WrongError(f"{name} shows a traceback: {said[found.start() : found.start() + 3000]}")
            log = self.mesh.log(name) if (self.mesh.out(name) / "peer.log").exists() else ""
            if found := LOST_TASK.search(log):
                raise WrongError(f"{name} lost a task or thread: {log[found.start() : found.start() + 3000]}")
            if code not in DOCUMENTED | {-signal.SIGKILL}:
                raise WrongError(f"{name} ended with {code}")
            if code > 0 and not _last_line(said):
                raise WrongError(f"{name} ended with {code} and said nothing")
        found = {name: self.mesh.numbers(name) for name in NAMES if self._has_result(name)}
        if not found:
            return []
        if len({(numbers["result_sha256"], *numbers["sites"]) for numbers in found.values()}) > 1:
            raise WrongError(f"results differ: { {name: one['sites'] for name, one in found.items()} }")
        for name, numbers in found.items():
            self._check_one(name, numbers)
        members = next(iter(found.values()))["sites"]
        return members if set(members) <= found.keys() and all(self.codes[one] == 0 for one in members) else []

    def _has_result(self, name: str) -> bool:
        # A damaged result does not count if its site reports the damage.
        return (self.mesh.out(name) / "result.json").exists() and self.codes[name] != BAD_INPUT

    def _check_one(self, name: str, numbers: dict[str, Any]) -> None:
        members, model = numbers["sites"], self.mesh.result(name)
        if numbers["whole"] != (members == list(NAMES)) or set(numbers["signatures"]) != set(members):
            raise WrongError(f"{name} calls it whole={numbers['whole']} with {members}, {set(numbers['signatures'])}")
        site = read_site(self.mesh.folder(name) / "site.toml")
        keyring = CertificateKeyring(load_credentials(site.tls, name))
        for signer, text in numbers["signatures"].items():
            word = read_statement(text, keyring, bytes.fromhex(numbers["run_id"]))
            if word.site != signer or word.content[1] != numbers["result_sha256"]:
                raise WrongError(f"{name} has a signature of {signer} for something else")
        far = [
            angles(model["components"], pooled_components(np.vstack([parts[one] for one in members]))).max()
            for parts in self.truths
        ]
        if min(far) > BOUND:
            raise WrongError(f"{name} is off by {far} of {members}")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if re.match("(error|parked|cannot resume|stopped)", line)]
    return (told or lines or [""])[-1][:200]
