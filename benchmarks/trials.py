"""Trials of real peers: processes, certificates, sockets and files, with one kind of fault each.

``python benchmarks/trials.py --trials 200 --workers 2`` draws a network, a moment and a fault from every seed. By
turns, sites call each other directly, meet at a relay where they have no port, or call through an HTTP proxy
(tinyproxy). Peers that may be restarted (exit status 75, or killed) are restarted, as their operators would; after a
refusal all sites start over, which must then give the result. It prints a line per trial and the table: *exact* (every
member that ``result.json`` names has the components of their pooled data, the same bits, and the signatures of all),
*refused* (a documented exit status and a message), *wrong* and *hung* (with who waits for whom). ``--seed 17`` repeats
one trial.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import multiprocessing
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from trial import NAMES, HungError, Trial, WrongError
from trial_damage import damaged_audit, damaged_journal, damaged_result, full_disk, swapped_data
from trial_faults import (
    cloned_site,
    kill_all,
    kill_and_continue,
    kill_and_wait,
    one_way,
    park_and_restart,
    relay_killed,
    stepped_clock,
    stopped,
)

from http_proxies import TINYPROXY

FAULTS = {
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
    "park": park_and_restart,
    "relay killed": relay_killed,
}
WAYS = ("direct", "relay", "proxy")


class Verdict(NamedTuple):
    seed: int
    kind: str
    way: str
    verdict: str
    why: str
    seconds: float
    parks: int


def play(seed: int, kind: str, way: str, faketime: str) -> Verdict:
    """One trial, from its seed."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as root, ExitStack() as stack:
        trial = Trial(seed, kind, way, Path(root), stack, faketime)
        try:
            FAULTS[kind](trial)
            trial.finish()
            members = trial.check()
            verdict, why = ("exact", f"{len(members)} members") if members else ("refused", trial.last_words())
            why += f", {trial.parks} parks" * bool(trial.parks)
            if not members:
                trial.begin_anew()
        except HungError as error:
            verdict, why = "hung", str(error)
        except WrongError as error:
            verdict, why = "wrong", str(error)
        except Exception:
            verdict, why = "wrong", traceback.format_exc()
        if verdict in ("wrong", "hung"):
            why += "".join(f"\n--- {name}\n{words[-3000:]}" for name, words in _all_words(trial))
    return Verdict(seed, kind, way, verdict, why, time.monotonic() - began, trial.parks)


def find_faketime() -> str:
    """Path of the library of ``apt install libfaketime``, which shifts the clock of a process; empty if missing."""
    return next(map(str, Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), "")


def _all_words(trial: Trial) -> Iterator[tuple[str, str]]:
    for name in NAMES:
        with contextlib.suppress(OSError):
            yield name, trial.mesh.said(name) + trial.mesh.log(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--kind", choices=list(FAULTS), help="only this kind")
    parser.add_argument("--way", choices=WAYS, help="only sites that meet so; by default these take turns")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no trial after so long")
    parser.add_argument("--faketime", default=find_faketime(), help="libfaketime.so.1; without it peers are paused")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.trials) if options.seed is None else [options.seed]
    kinds = list(FAULTS)
    # Proxies need apt install tinyproxy.
    ways = [way for way in WAYS if way != "proxy" or TINYPROXY]
    parks = 0
    end = time.monotonic() + options.seconds
    table: dict[str, collections.Counter[str]] = {
        row: collections.Counter() for row in (*kinds, *(f"over {way}" for way in WAYS))
    }
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, mp_context=context) as pool:
        waiting = iter(seeds)
        running: set[Any] = set()
        while True:
            while len(running) < options.workers and time.monotonic() < end:
                seed = next(waiting, None)
                if seed is None:
                    break
                kind = options.kind or kinds[seed % len(kinds)]
                way = "relay" if kind == "relay killed" else options.way or ways[seed // len(kinds) % len(ways)]
                running.add(pool.submit(play, seed, kind, way, options.faketime))
            if not running:
                break
            done = next(as_completed(running))
            running.discard(done)
            found = done.result()
            table[found.kind][found.verdict] += 1
            parks += found.parks
            table[f"over {found.way}"][found.verdict] += 1
            words = (
                f"{found.seed:4} {found.kind:20} {found.way:6} {found.verdict:8} {found.seconds:5.0f} s  {found.why}"
            )
            print(words, flush=True)
    _print(table)
    print(f"{parks} parks")
    raise SystemExit(any(count["wrong"] + count["hung"] for count in table.values()))


def _print(table: Mapping[str, collections.Counter[str]]) -> None:
    columns = ("exact", "refused", "wrong", "hung")
    total: collections.Counter[str] = sum((table[kind] for kind in FAULTS), collections.Counter())
    print(f"\n{'kind':24}{'trials':>8}" + "".join(f"{column:>9}" for column in columns))
    for kind, count in [*table.items(), ("all", total)]:
        if count:
            print(f"{kind:24}{count.total():8}" + "".join(f"{count[column]:9}" for column in columns))


if __name__ == "__main__":
    main()
