"""Peers that stay: five follow folders for 100 batches, with 20 random kills; one site joins, and one leaves.

With ``--repairs 50`` a file that cannot be counted arrives at one site, at a random moment of a batch, so often. The
site ends and names the file; it is repaired and the site restarted, as the page on followed runs says, and all must
continue.

``python benchmarks/follow.py`` (``make bench-follow``) starts real peers with real certificates, masked. In every round
files arrive at all sites, or at some of them. After every batch that counted, the components at every site are compared
with PCA of all samples that the ledgers include. It prints the largest sine and the sizes of audit and journal. With
``--keep``, an heir takes over the samples of the site that leaves.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from eigenmesh.sites.audit import summary
from eigenmesh.sites.site import Schedule
from following import Following
from mesh import ring
from waiting import EVERY_S

NAMES = ("oslo", "bergen", "tromso", "bodo", "voss", "narvik")
JOINER, LEAVER, HEIR = "narvik", "voss", "oslo"
D = 16
BOUND = 1e-8
SETTINGS = {"n_components": 3, "every_s": 1e6, "batch_rows": 10, "min_new_samples": 10, "patience_s": 60}
AUDIT_BYTES = 200_000
# Exit status of a peer whose input is wrong.
BAD_INPUT = 2


class Trial:
    """One mesh through all its batches."""

    def __init__(self, root: Path, batches: int, kills: int, repairs: int, keep: bool, seed: int) -> None:
        self.rng, self.batches = np.random.default_rng(seed), batches
        schedule = Schedule({JOINER: batches // 3}, {LEAVER: 2 * batches // 3}, {LEAVER: HEIR} if keep else {})
        with contextlib.redirect_stdout(io.StringIO()):
            self.sites = Following(root, NAMES, ring(NAMES), schedule, **SETTINGS)
        for name in NAMES:
            self.sites.mesh.edit(name, 'folder = "out"', f'folder = "out"\naudit_bytes = {AUDIT_BYTES}')
        self.spread = np.sqrt(np.linspace(8, 1, D)) * np.array([2.0, 1.6, 1.3, *[1.0] * (D - 3)])
        # The batch of each kill, and of each bad file.
        self.due = sorted(self.rng.integers(0, batches, kills).tolist())
        self.bad_due = sorted(self.rng.integers(0, batches, repairs).tolist())
        self.largest_journal = 0

    def arrive(self, *names: str) -> None:
        """Put new files at these members, or at three or more, and files of one row at some of the others."""
        members = self.sites.members
        chosen = names or self.rng.permutation(members)[: self.rng.integers(3, len(members) + 1)]
        sizes = {str(name): int(self.rng.integers(10, 60)) for name in chosen}
        if not names:
            sizes |= {name: 1 for name in members if name not in sizes and self.rng.random() < 0.5}
        self.sites.drop({name: self.rows(size) for name, size in sizes.items()})

    def rows(self, size: int) -> np.ndarray:
        return self.rng.standard_normal((size, D)) * self.spread

    def disturb(self, batch: int) -> int:
        """Carry out the kills that are due, each at a random moment, and restart the peers."""
        done = 0
        while self.due and self.due[0] <= batch:
            self.due.pop(0)
            time.sleep(float(self.rng.uniform(0, 1.0)))
            name = str(self.rng.choice(sorted(self.sites.mesh.running)))
            self.sites.mesh.kill(name)
            self.sites.start(name)
            done += 1
        return done

    def repair(self, batch: int) -> int:
        """Let the bad files that are due arrive, each at a random moment, and repair them when their site has ended."""
        done = 0
        while self.bad_due and self.bad_due[0] <= batch:
            self.bad_due.pop(0)
            time.sleep(float(self.rng.uniform(0, 1.5)))
            name = str(self.rng.choice([one for one in self.sites.members if one in self.sites.mesh.running]))
            good = self.rows(int(self.rng.integers(10, 30)))
            path = self.sites.folder(name) / f"{len(self.sites.dropped[name]):06d}.npy"
            _put(path, np.where(np.arange(D) == 3, np.nan, good))
            status = self.sites.mesh.wait(name)[name]
            if status != BAD_INPUT or path.name not in self.sites.mesh.said(name):
                raise SystemExit(f"{name} ended with {status} after a bad file: {self.sites.told()}")
            time.sleep(float(self.rng.uniform(0, 1.5)))
            _put(path, good)
            self.sites.dropped[name][path.name] = good
            self.sites.start(name)
            done += 1
        return done

    def watch(self) -> int:
        """Wait until all arrived files are counted, watching the journals; returns the next batch."""
        while not self.sites.is_counted():
            for name in NAMES:
                with contextlib.suppress(OSError):
                    journals = self.sites.mesh.out(name).glob("resume-*/journal")
                    self.largest_journal = max([self.largest_journal, *(path.stat().st_size for path in journals)])
            time.sleep(EVERY_S)
        return self.sites.batch

    def play(self) -> None:
        began, batch, done, killed, repaired, worst, put_off = time.monotonic(), 0, 0, 0, 0, 0.0, 0
        self.arrive(*NAMES)
        with self.sites.mesh:
            self.sites.tend()
            while batch < self.batches:
                self.arrive()
                killed += self.disturb(batch)
                repaired += self.repair(batch)
                batch = self.watch()
                for one in range(done, batch):
                    if "put_off" in self.sites.numbers(HEIR, one):
                        put_off += 1
                        continue
                    off = self.sites.off_by(one)
                    worst = max(worst, off)
                    if off > BOUND:
                        raise SystemExit(f"batch {one} is off by {off:.1e}")
                done = batch
                so_far = f"worst sine {worst:.1e}  kills {killed}  repairs {repaired}  put off {put_off}"
                print(f"batch {batch:4}  {time.monotonic() - began:4.0f} s  {so_far}", flush=True)
        faults = f"{killed} kills, {repaired} repairs"
        print(f"{done} batches, {put_off} of them put off, {faults}, {time.monotonic() - began:.0f} s")
        print(f"largest sine between any component at any site and pooled PCA of what was in: {worst:.1e}")
        self.sizes()

    def sizes(self) -> None:
        """Sizes of audit and journal, and whether the chain of hashes continues from file to file."""
        print(f"largest journal: {self.largest_journal:,} bytes")
        for name in NAMES:
            out = self.sites.mesh.out(name)
            files = [*sorted(out.glob("audit-*.jsonl")), out / "audit.jsonl"]
            chains = [summary(path).chain for path in files]
            pairs = list(zip(files, chains, chains[1:], strict=False))
            whole = all(later.follows == path.name and later.after == chain.head for path, chain, later in pairs)
            whole = whole and not any(chain.broken for chain in chains)
            size = sum(path.stat().st_size for path in files)
            begins = f"the first continues {chains[0].follows}" if chains[0].follows else "from the first line on"
            print(
                f"{name:8} audit: {len(files)} files, {size:,} bytes, {begins}; chain {'whole' if whole else 'BROKEN'}"
            )


def _put(path: Path, rows: np.ndarray) -> None:
    """Move a whole file into a folder."""
    unfinished = path.with_name(f"{path.name}.tmp")
    with unfinished.open("wb") as file:
        np.save(file, rows)
    unfinished.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--repairs", type=int, default=0)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        Trial(Path(root), options.batches, options.kills, options.repairs, options.keep, options.seed).play()


if __name__ == "__main__":
    main()
