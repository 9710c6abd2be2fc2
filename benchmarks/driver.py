"""The real TLS driver under faults: connections that close, are reset or stall at any byte, many thousand times.

``python benchmarks/driver.py --faults 20000`` (``make driver``) runs sites in this process over loopback, with real
certificates, until so many connections have failed. Every round must bring the right numbers, no task or thread may
end, nothing may hang, and no socket may be left over; see ``tests/transports/faulty_links.py``. Every fifth run is
parked in the middle.
"""

from __future__ import annotations

import argparse
import collections
import logging
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from transports.faulty_links import FaultyRun

FAULTS_PER_LINK = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=20_000, help="stop after so many connections")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    # Refused handshakes are what this is about; errors are still shown.
    logging.getLogger("eigenmesh").setLevel(logging.ERROR)
    began, connections, rounds, seed = time.monotonic(), 0, 0, options.first
    ends: collections.Counter[str] = collections.Counter()
    while connections < options.faults:
        parks = seed % 5 == 4
        run = FaultyRun(seed, FAULTS_PER_LINK, parks)
        try:
            run.play()
        except AssertionError as error:
            raise SystemExit(f"seed {seed}: {error}") from error
        connections, rounds, seed = connections + run.connections, rounds + run.rounds[0], seed + 1
        ends["parked" if parks else "finished"] += 1
        if seed % 10 == 0:
            print(f"{seed - options.first:5} runs  {connections:7,} connections  {rounds:7,} rounds", flush=True)
    how = ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))
    seconds = time.monotonic() - began
    print(f"{connections:,} connections failed in {ends.total()} runs ({how}), {rounds:,} rounds: {seconds:.0f} s")
    print("none hung, no task or thread ended, every number was right, no socket was left")


if __name__ == "__main__":
    main()
