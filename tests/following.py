"""Real peers that follow: files that arrive, and what must hold after every batch."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eigenmesh.sites.follow import Ledger
from eigenmesh.sites.site import Schedule
from mesh import Mesh, pooled_components
from problems import angles
from waiting import until


class Following:
    """Sites of a mesh on a schedule, each with a folder of arrivals."""

    def __init__(
        self, root: Path, names: Sequence[str], edges: Sequence[tuple[str, str]], schedule: Schedule, **settings: Any
    ) -> None:
        self.names, self.schedule = tuple(names), schedule
        self.mesh = Mesh(root, dict.fromkeys(names, np.zeros((1, 1))), edges, **settings)
        # By the names of the files, at each site.
        self.dropped: dict[str, dict[str, np.ndarray]] = {name: {} for name in names}
        for name in names:
            self.folder(name).mkdir()
            path = self.mesh.folder(name) / "site.toml"
            path.write_text("\n".join([path.read_text(), *schedule.lines()]))

    def folder(self, name: str) -> Path:
        return self.mesh.folder(name) / "arrivals"

    def start(self, name: str) -> None:
        self.mesh.start(name, options=["--follow", str(self.folder(name))])

    def drop(self, rows: Mapping[str, np.ndarray]) -> None:
        """New files, each moved in whole."""
        for name, part in rows.items():
            file = f"{len(self.dropped[name]):06d}.npy"
            unfinished = self.folder(name) / f"{file}.tmp"
            with unfinished.open("wb") as out:
                np.save(out, part)
            os.replace(unfinished, self.folder(name) / file)
            self.dropped[name][file] = part

    def n_dropped(self, name: str) -> int:
        return sum(map(len, self.dropped[name].values()))

    def ledger(self, name: str) -> Ledger:
        return Ledger.read(self.mesh.out(name) / "ledger-test.json", 0)

    @property
    def batch(self) -> int:
        """The batch that the first site has come to."""
        return max(self.ledger(name).batch for name in self.names)

    @property
    def members(self) -> tuple[str, ...]:
        return self.schedule.members(self.names, self.batch)

    def numbers(self, name: str, batch: int) -> dict[str, Any]:
        return json.loads((self.mesh.out(name) / "batches" / f"{batch:06d}.json").read_text())

    def tend(self) -> None:
        """Start the members that do not run yet; see off who has left, and bring what it leaves to its heir."""
        members, running = self.members, self.mesh.running
        for name in members:
            if name not in running:
                self.start(name)
        for name in set(running) - set(members):
            assert self.mesh.wait(name)[name] == 0, self.told()
            del running[name]
            for path in self.mesh.out(name).glob("handover-*"):
                path.rename(self.folder(self.schedule.heirs[name]) / path.name)

    def is_counted(self) -> bool:
        """Whether everything that has arrived at the present members is in a batch that is over, at all of them."""
        self.tend()
        ledgers = {name: self.ledger(name) for name in self.members}
        ended = [name for name in self.mesh.running if self.mesh.running[name].poll() not in (None, 0)]
        assert not ended, f"{ended} ended: {self.told()}"
        same = len({(one.batch, one.settled) for one in ledgers.values()}) == 1
        whole = all(len(one.files) >= len(self.dropped[name]) for name, one in ledgers.items())
        return same and whole and not any(one.settled for one in ledgers.values())

    def wait(self) -> int:
        """Until that is so; the number of the next batch."""
        until(self.is_counted, self.told)
        return self.batch

    def told(self) -> str:
        return "\n".join(f"--- {name}: {self.mesh.status(name)}\n{self.mesh.said(name)}" for name in self.mesh.running)

    def rows_in(self, name: str, batch: int) -> np.ndarray:
        """What a site has counted of its own up to a batch, by its ledger; nothing may be there twice."""
        files = [file for file in self.ledger(name).files if file.batch <= batch]
        assert len({file.name for file in files}) == len(files), f"{name} has counted a file twice"
        return np.vstack([self.dropped[name][file.name] for file in files if file.name in self.dropped[name]])

    def counted(self, first: int, stop: int) -> list[int]:
        """Those of these batches that were not put off, by the first site."""
        return [batch for batch in range(first, stop) if "put_off" not in self.numbers(self.names[0], batch)]

    def off_by(self, batch: int) -> float:
        """Largest sine between the components at any member and those of the pooled samples of a batch."""
        members, left = self.schedule.members(self.names, batch), self.schedule.leaves
        pooled = [self.rows_in(name, batch) for name in members]
        pooled += [self.rows_in(name, left[name] - 1) for name in self.schedule.heirs if left[name] <= batch]
        vectors = pooled_components(np.vstack(pooled))
        worst = 0.0
        for name in members:
            numbers = self.numbers(name, batch)
            assert numbers["sites"] == list(members)
            assert numbers["n_samples"] == sum(map(len, pooled)), f"{name} has counted other samples in batch {batch}"
            with np.load(self.mesh.out(name) / "batches" / f"{batch:06d}.npz", allow_pickle=False) as model:
                worst = max(worst, float(angles(model["components"], vectors).max()))
        return worst
