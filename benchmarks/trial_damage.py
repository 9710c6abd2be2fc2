"""Faults of files and disks for ``trials.py``, most of them between a crash and the restart."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from trial import require
from trial_faults import kill, moment

from processes import Forked, command

if TYPE_CHECKING:
    from trial import Trial


def damage(trial: Trial, path: Path) -> None:
    """Flip bits of a file, cut it, zero a part, lengthen it or remove it."""
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
    """Damage the result of a finished site; after a restart it must report the damage."""
    trial.mesh.start()
    trial.finish()
    (name,) = trial.pick()
    damage(trial, trial.mesh.out(name) / str(trial.rng.choice(["result.npz", "result.json"])))
    trial.mesh.start(name)


def damaged_audit(trial: Trial) -> None:
    """Damage the audit: the run goes on, and ``eigenmesh site audit`` says whether the chain is intact."""
    trial.mesh.start()
    (name,) = trial.pick()
    moment(trial, name)
    kill(trial, name)
    audit = trial.mesh.out(name) / "audit.jsonl"
    damage(trial, audit)
    trial.mesh.start(name)
    trial.finish()
    said = trial.root / "audit.txt"
    code = Forked(command, "site", "audit", str(audit), output=said).wait(60)
    words = said.read_text()
    require(code in (0, 1, 2) and "Traceback" not in words, f"eigenmesh site audit ended with {code}: {words}")


def full_disk(trial: Trial) -> None:
    """The disk of a site's out folder, journal or audit fills up; later it has free space again."""
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
    # If the disk is full when a site starts, it exits with "bad input", and has to be restarted too.
    trial.mesh.start(*[one for one, code in trial.codes.items() if code != 4])


def swapped_data(trial: Trial) -> None:
    """Between crash and restart, change numbers in the data file but not its size and time; maybe undo it later."""
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
