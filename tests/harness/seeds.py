"""Plays many seeds, shrinks a failing one to as few faults as possible, and prints a table."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from harness.scenario import Scenario, draw
from harness.world import FaultWorld, SeedOutcome

BAD = ("wrong", "hung")
COLUMNS = ("exact", "continued", "refused", *BAD)
CHUNK = 50


class Survey(NamedTuple):
    """Counts of outcomes by fault, the failing seeds, and the time that it took."""

    by_fault: dict[str, Counter[str]]
    failing: dict[int, SeedOutcome]
    n_seeds: int
    wall_s: float

    @property
    def seeds_per_s(self) -> float:
        return self.n_seeds / self.wall_s

    def table(self) -> str:
        """One line per fault, in Markdown; a seed with several faults counts in each."""
        names = {"refused": "refused by name"}
        lines = ["| fault | seeds | " + " | ".join(names.get(column, column) for column in COLUMNS) + " |"]
        lines.append("| --- |" + " ---: |" * (1 + len(COLUMNS)))
        for fault, counts in sorted(self.by_fault.items()):
            cells = [f"{counts[column]:,}" for column in COLUMNS]
            lines.append(f"| {fault} | {counts.total():,} | " + " | ".join(cells) + " |")
        return "\n".join(lines)


def play(scenario: Scenario) -> SeedOutcome:
    """Play one scenario; an exception counts as wrong, too."""
    try:
        return FaultWorld(scenario).play()
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return SeedOutcome("wrong", f"{type(error).__name__}: {error} ({place.name}, line {place.lineno})")


def play_seeds(seeds: range) -> list[tuple[int, SeedOutcome]]:
    return [(seed, play(draw(seed))) for seed in seeds]


def outcomes(seeds: range, workers: int) -> Iterator[tuple[int, SeedOutcome]]:
    """The outcome of each seed; chunks of seeds come in any order."""
    chunks = [range(first, min(first + CHUNK, seeds.stop)) for first in range(seeds.start, seeds.stop, CHUNK)]
    if workers == 1:
        for chunk in chunks:
            yield from play_seeds(chunk)
        return
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        for found in pool.imap_unordered(play_seeds, chunks):
            yield from found


def survey(seeds: range, workers: int = 1) -> Survey:
    """Play all seeds."""
    began = time.perf_counter()
    by_fault: dict[str, Counter[str]] = {"all": Counter()}
    failing = {}
    for seed, outcome in outcomes(seeds, workers):
        for kind in {"all", *(fault.kind for fault in draw(seed).faults)}:
            by_fault.setdefault(kind, Counter())[outcome.kind] += 1
        if outcome.kind in BAD:
            failing[seed] = outcome
    return Survey(by_fault, failing, len(seeds), time.perf_counter() - began)


def shrink(scenario: Scenario) -> Scenario:
    """The scenario with faults removed, one at a time, as long as it still fails."""
    for place in range(len(scenario.faults)):
        fewer = scenario._replace(faults=scenario.faults[:place] + scenario.faults[place + 1 :])
        if play(fewer).kind in BAD:
            return shrink(fewer)
    return scenario
