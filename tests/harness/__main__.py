"""``python tests/harness``: play many seeds, or one seed with a full trace."""

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness.scenario import draw
from harness.seeds import shrink, survey
from harness.world import FaultWorld


def main() -> int:
    """Print the table of faults; returns 1 if a seed failed."""
    parser = argparse.ArgumentParser(prog="python tests/harness", description=__doc__)
    parser.add_argument("--seeds", default="0:1000", help="first and end, such as 0:1000; the end is excluded")
    parser.add_argument("--workers", type=int, default=2, help="processes; 0 for one per core")
    parser.add_argument("--show", type=int, metavar="SEED", help="play only this seed, with as few faults as possible")
    wanted = parser.parse_args()
    if wanted.show is not None:
        scenario = shrink(draw(wanted.show))
        print(scenario)
        print(FaultWorld(scenario, trace=print).play())
        return 0
    first, _, last = wanted.seeds.partition(":")
    found = survey(range(int(first), int(last)), wanted.workers or os.cpu_count() or 1)
    print(found.table())
    print(f"\n{found.n_seeds:,} seeds in {found.wall_s:.0f} s, {found.seeds_per_s:.0f} per second")
    for seed, outcome in sorted(found.failing.items())[:20]:
        faults = ", ".join(fault.kind for fault in shrink(draw(seed)).faults)
        print(f"seed {seed} {outcome.kind}: {outcome.why} ({faults}); python tests/harness --show {seed}")
    return 1 if found.failing else 0


if __name__ == "__main__":
    sys.exit(main())
