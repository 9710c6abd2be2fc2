"""Faults of processes and links for ``trials.py``.

Each function starts the sites and causes its fault; the trial then waits, restarts sites and checks the results.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from trial import PARKED, require

from ports import free_ports
from processes import Forked, command
from transports.proxy import Proxy

if TYPE_CHECKING:
    from trial import Trial

# Approximate size of the journals of a run.
JOURNAL_BYTES = 40_000
BEGIN_S = 60.0
MOST_PARKS = 8


def moment(trial: Trial, name: str) -> None:
    """Wait until the site's journal shows that the run has reached a random point, or until the run is over."""
    wanted, end = trial.rng.uniform(0, JOURNAL_BYTES), time.monotonic() + BEGIN_S
    journal = trial.mesh.resume(name) / "journal"
    if trial.rng.random() < 0.3:
        # Perhaps before the sites have even started.
        trial.pause(1.0)
        return
    while trial.mesh.running[name].poll() is None and time.monotonic() < end:
        try:
            if journal.stat().st_size > wanted:
                break
        except OSError:
            pass
        time.sleep(0.005)
    trial.pause(0.1)


def kill(trial: Trial, *names: str) -> None:
    for name in names:
        trial.mesh.running[name].kill()
    for name in names:
        trial.mesh.running[name].wait(60)


def kill_and_wait(trial: Trial) -> None:
    """Kill one to three sites at different moments; each is restarted soon."""
    trial.mesh.start()
    for name in trial.pick(int(trial.rng.integers(1, 4))):
        moment(trial, name)
        kill(trial, name)
        trial.pause(2.0)
        trial.mesh.start(name)


def kill_and_continue(trial: Trial) -> None:
    """Kill one to three sites; half of them come back, some too late."""
    trial.mesh.start()
    names = trial.pick(int(trial.rng.integers(1, 4)))
    moment(trial, names[0])
    for name in names:
        kill(trial, name)
        trial.gone.add(name)
        trial.pause(1.0)
    if trial.rng.random() < 0.5:
        trial.pause(15.0)
        trial.mesh.start(names[0])


def kill_all(trial: Trial) -> None:
    trial.mesh.start()
    for _ in range(int(trial.rng.integers(1, 4))):
        moment(trial, trial.pick()[0])
        kill(trial, *trial.mesh.parts)
        trial.mesh.start()


def park_and_restart(trial: Trial) -> None:
    """Stop one to three sites by Ctrl-C, up to eight times over: all park, and all are restarted."""
    trial.mesh.start()
    for _ in range(MOST_PARKS):
        names = trial.pick(int(trial.rng.integers(1, 4)))
        moment(trial, names[0])
        for name in names:
            # A process that has not begun to take part ends like any other command.
            while trial.mesh.running[name].poll() is None and not has_begun(trial, name):
                time.sleep(0.005)
            trial.mesh.kill(name, signal.SIGINT)
            trial.pause(0.3)
        trial.wait()
        if PARKED not in trial.codes.values():
            return
        trial.parks += 1
        trial.mesh.start()


def has_begun(trial: Trial, name: str) -> bool:
    """Whether the running process of a site has written its status."""
    return bool(trial.mesh.status(name).get("pid") == trial.mesh.running[name].pid)


def stepped_clock(trial: Trial) -> None:
    """The wall clock of one site jumps, perhaps with a restart meanwhile, and is set right later."""
    (name,) = trial.pick()
    if not trial.faketime:
        stopped(trial)
        return
    clock = trial.root / "clock"
    clock.write_text("+0")
    trial.mesh.start(*[other for other in trial.mesh.parts if other != name])
    start_with_clock(trial, name, clock)
    for _ in range(int(trial.rng.integers(1, 4))):
        moment(trial, name)
        hours = float(trial.rng.choice([-20000, -48, -2, -0.1, 0.1, 2, 48, 30000]))
        clock.write_text(f"{hours * 3600:+.0f}")
        if trial.rng.random() < 0.5:
            kill(trial, name)
            start_with_clock(trial, name, clock)
        trial.pause(4.0)
    clock.write_text("+0")


def start_with_clock(trial: Trial, name: str, clock: Path) -> None:
    faked = {"LD_PRELOAD": trial.faketime, "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_NO_CACHE": "1"}
    alone = {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_RESET": "1"}
    folder = trial.mesh.folder(name)
    with open(folder / "said.txt", "a", encoding="utf-8") as said:
        words = [sys.executable, "-m", "eigenmesh", "site", "run", str(folder / "site.toml")]
        environment = {**os.environ, **faked, **alone, "COLUMNS": "200"}
        trial.mesh.running[name] = subprocess.Popen(words, stdout=said, stderr=said, env=environment)


def stopped(trial: Trial) -> None:
    """Stop one or two sites for some seconds, like a machine that sleeps."""
    trial.mesh.start()
    names = trial.pick(int(trial.rng.integers(1, 3)))
    moment(trial, names[0])
    for name in names:
        trial.mesh.kill(name, signal.SIGSTOP)
    trial.pause(12.0)
    for name in names:
        trial.mesh.kill(name, signal.SIGCONT)


def one_way(trial: Trial) -> None:
    """A link that lets through one direction only, for a while or for good; perhaps it is cut meanwhile."""
    caller, called = trial.edges[int(trial.rng.integers(len(trial.edges)))]
    if trial.mesh.caller_of(caller, called) == called:
        caller, called = called, caller
    proxy = trial.stack.enter_context(Proxy("127.0.0.1", trial.mesh.port_towards(caller, called)))
    trial.mesh.reroute(caller, called, proxy.address)
    trial.mesh.start()
    moment(trial, caller)
    trial.repairs.append(proxy.stall)
    proxy.stall(str(trial.rng.choice(["there", "back"])))
    if trial.rng.random() < 0.3:
        trial.pause(3.0)
        proxy.cut()
    if trial.on_loss == "wait" or trial.rng.random() < 0.5:
        trial.pause(12.0)
        proxy.stall()


def relay_killed(trial: Trial) -> None:
    """Kill the relay one to three times; it is started again within seconds."""
    trial.mesh.start()
    for _ in range(int(trial.rng.integers(1, 4))):
        moment(trial, trial.pick()[0])
        trial.mesh.kill_relay()
        trial.pause(5.0)
        trial.mesh.start_relay()


def cloned_site(trial: Trial) -> None:
    """A second process of a site: from a copy of its folder, or with an empty out folder; the first may be dead."""
    (name,) = trial.pick()
    trial.mesh.start()
    moment(trial, name)
    dead = trial.rng.random() < 0.5
    if dead:
        kill(trial, name)
    copy = trial.root / "copy"
    shutil.copytree(trial.mesh.folder(name), copy)
    if trial.rng.random() < 0.5:
        shutil.rmtree(copy / "out", ignore_errors=True)
    if not dead:
        # A second process cannot listen on the port of the first.
        path, port = copy / "site.toml", trial.mesh.ports[name]
        path.write_text(
            path.read_text().replace(f'listen = "127.0.0.1:{port}"', f'listen = "127.0.0.1:{free_ports(1)[0]}"')
        )
    second = Forked(command, "site", "run", str(copy / "site.toml"), output=copy / "said.txt")
    trial.stack.callback(second.kill)
    trial.pause(6.0)
    if dead or trial.rng.random() < 0.5:
        second.kill()
        second.wait(60)
    else:
        trial.others.append(second)
    if dead:
        trial.mesh.start(name)
    # A process that is killed at once has no time to make it.
    output = copy / "said.txt"
    said = output.read_text() if output.exists() else ""
    require("Traceback" not in said, said)
