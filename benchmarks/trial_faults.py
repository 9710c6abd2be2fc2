"""The faults of ``trials.py``: what is done to a mesh of real peers, by kind.

Each starts the sites and does its harm; the trial then waits, starts again what may be, and looks at the results.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ports import free_ports
from processes import Forked, command
from transports.proxy import Proxy

if TYPE_CHECKING:
    from trials import Trial

# What the journals of a run come to, about.
JOURNAL_BYTES = 40_000
BEGIN_S = 60.0


class WrongError(Exception):
    """Something that must never be."""


def require(condition: bool, words: str) -> None:
    if not condition:
        raise WrongError(words)


def moment(trial: Trial, name: str) -> None:
    """Wait until a run has come as far as was drawn, by the site's journal; or is over."""
    wanted, end = trial.rng.uniform(0, JOURNAL_BYTES), time.monotonic() + BEGIN_S
    journal = trial.mesh.resume(name) / "journal"
    if trial.rng.random() < 0.3:
        # Sites may not even have begun.
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
    """One to three sites at different moments; each is started again soon."""
    trial.mesh.start()
    for name in trial.pick(int(trial.rng.integers(1, 4))):
        moment(trial, name)
        kill(trial, name)
        trial.pause(2.0)
        trial.mesh.start(name)


def kill_and_continue(trial: Trial) -> None:
    """One to three sites; half of them come back, some too late."""
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


def damage(trial: Trial, path: Path) -> None:
    """Flip, cut, zero, lengthen or remove."""
    if not path.exists():
        return
    data = bytearray(path.read_bytes())
    place = int(trial.rng.integers(len(data))) if data else 0
    how = str(trial.rng.choice(["flip", "cut", "zero", "lengthen", "remove", "empty"]))
    if how == "remove":
        path.unlink()
        return
    if how == "flip" and data:
        data[place] ^= 1 << int(trial.rng.integers(8))
    elif how == "cut":
        del data[place:]
    elif how == "zero":
        data[place : place + 512] = bytes(len(data[place : place + 512]))
    elif how == "lengthen":
        data += trial.rng.bytes(300)
    else:
        data.clear()
    path.write_bytes(data)


def damaged_journal(trial: Trial) -> None:
    trial.mesh.start()
    (name,) = trial.pick()
    moment(trial, name)
    kill(trial, name)
    damage(trial, trial.mesh.resume(name) / "journal")
    trial.mesh.start(name)


def damaged_result(trial: Trial) -> None:
    """Of a site that is done: started again, it must not say that all is well."""
    trial.mesh.start()
    trial.finish()
    (name,) = trial.pick()
    damage(trial, trial.mesh.out(name) / str(trial.rng.choice(["result.npz", "result.json"])))
    trial.mesh.start(name)


def damaged_audit(trial: Trial) -> None:
    """The run goes on; ``eigenmesh audit`` reads what is there, and says whether the chain is whole."""
    trial.mesh.start()
    (name,) = trial.pick()
    moment(trial, name)
    kill(trial, name)
    audit = trial.mesh.out(name) / "audit.jsonl"
    damage(trial, audit)
    trial.mesh.start(name)
    trial.finish()
    said = trial.root / "audit.txt"
    code = Forked(command, "audit", str(audit), output=said).wait(60)
    words = said.read_text()
    require(code in (0, 1, 2) and "Traceback" not in words, f"eigenmesh audit ended with {code}: {words}")


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
        words = [sys.executable, "-m", "eigenmesh", "peer", str(folder / "site.toml")]
        environment = {**os.environ, **faked, **alone, "COLUMNS": "200"}
        trial.mesh.running[name] = subprocess.Popen(words, stdout=said, stderr=said, env=environment)


def stopped(trial: Trial) -> None:
    """One or two sites stand still for some seconds, as a machine that sleeps."""
    trial.mesh.start()
    names = trial.pick(int(trial.rng.integers(1, 3)))
    moment(trial, names[0])
    for name in names:
        trial.mesh.kill(name, signal.SIGSTOP)
    trial.pause(12.0)
    for name in names:
        trial.mesh.kill(name, signal.SIGCONT)


def full_disk(trial: Trial) -> None:
    """All that a site writes, its journal or its audit is on a disk that fills; later there is room."""
    (name,) = trial.pick()
    what = str(trial.rng.choice(["out", "journal", "audit"]))
    disk, out = trial.root / "disk", trial.mesh.out(name)
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o"]
    subprocess.run([*mount, f"size={4 * int(trial.rng.integers(2, 12))}k", "tmpfs", disk], check=True)
    trial.stack.callback(subprocess.run, ["umount", "-l", disk], check=True)
    place = {"out": out, "journal": trial.mesh.resume(name), "audit": out / "audit.jsonl"}[what]
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(disk / ("audit.jsonl" if what == "audit" else ""))
    trial.mesh.start()
    trial.wait()
    subprocess.run([*mount, "remount,size=64m", "tmpfs", disk], check=True)
    # A disk that is full when a site starts is bad input, and the site is to be started again too.
    trial.mesh.start(*[one for one, code in trial.codes.items() if code != 4])


def one_way(trial: Trial) -> None:
    """A link that lets through one direction only, for a while or for good; perhaps it is cut meanwhile."""
    caller, called = trial.edges[int(trial.rng.integers(len(trial.edges)))]
    if list(trial.mesh.parts).index(caller) > list(trial.mesh.parts).index(called):
        caller, called = called, caller
    proxy = trial.stack.enter_context(Proxy("127.0.0.1", trial.mesh.ports[called]))
    trial.mesh.edit(caller, f'{called} = ".*?"', f'{called} = "{proxy.address}"')
    trial.mesh.start()
    moment(trial, caller)
    proxy.stall(str(trial.rng.choice(["there", "back"])))
    if trial.rng.random() < 0.3:
        trial.pause(3.0)
        proxy.cut()
    if trial.on_loss == "wait" or trial.rng.random() < 0.5:
        trial.pause(12.0)
        proxy.stall()


def swapped_data(trial: Trial) -> None:
    """Other numbers in a file of the same size and time between a crash and the restart; perhaps put back later."""
    (name,) = trial.pick()
    file = trial.mesh.folder(name) / "data.npy"
    before, times = file.read_bytes(), file.stat()
    trial.mesh.start()
    moment(trial, name)
    kill(trial, name)
    other = trial.rng.standard_normal(trial.mesh.parts[name].shape)
    np.save(file, other)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    require(file.stat().st_size == len(before), "the other data have another size")
    trial.truths.append({**trial.mesh.parts, name: other})
    trial.mesh.start(name)
    if trial.rng.random() < 0.5:
        trial.pause(3.0)
        kill(trial, name)
        file.write_bytes(before)
        trial.mesh.start(name)


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
        # Where the first one listens, no second can.
        path, port = copy / "site.toml", trial.mesh.ports[name]
        path.write_text(
            path.read_text().replace(f'listen = "127.0.0.1:{port}"', f'listen = "127.0.0.1:{free_ports(1)[0]}"')
        )
    second = Forked(command, "peer", str(copy / "site.toml"), output=copy / "said.txt")
    trial.stack.callback(second.kill)
    trial.pause(6.0)
    if dead or trial.rng.random() < 0.5:
        second.kill()
        second.wait(60)
    else:
        trial.others.append(second)
    if dead:
        trial.mesh.start(name)
    said = (copy / "said.txt").read_text()
    require("Traceback" not in said, said)


FAULTS: dict[str, Callable[[Trial], None]] = {
    "kill, wait": kill_and_wait,
    "kill, continue": kill_and_continue,
    "kill all": kill_all,
    "damaged journal": damaged_journal,
    "damaged result": damaged_result,
    "damaged audit": damaged_audit,
    "clock": stepped_clock,
    "pause": stopped,
    "pause, continue": stopped,
    "full disk": full_disk,
    "one way": one_way,
    "one way, continue": one_way,
    "swapped data": swapped_data,
    "cloned site": cloned_site,
}
