"""Real fits of a few samples per site, whose components are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from eigenmesh.fitting import Request
from eigenmesh.rehearsal.conditions import Edges
from eigenmesh.rehearsal.fits import FitProblem, SiteFit
from eigenmesh.rehearsal.virtual_time import WorkClock

if TYPE_CHECKING:
    pass

N_SAMPLES, N_FEATURES, N_COMPONENTS, TOL = 30, 5, 2, 1e-6


class SmallFitProblem(FitProblem):
    """The first components of the samples that are drawn with the value of each site."""

    compute_s = 0.006
    max_journal_bytes = 1e6

    def __init__(self, sites: tuple[str, ...], edges: Edges, masked: bool) -> None:
        privacy = "masked" if masked else "open"
        request = Request(n_components=N_COMPONENTS, tol=TOL, privacy=privacy)
        super().__init__(sites, edges, request, lambda process: table_of(process.value), WorkClock({}, {}), 1 << 20)

    def fault_of(self, result: SiteFit, members: tuple[str, ...], values: Mapping[str, int], starts: Any) -> str:
        """What is wrong with a result; empty if it is correct, whatever the start."""
        pooled = np.concatenate([table_of(values[site]) for site in members])
        vectors = np.linalg.eigh(np.cov(pooled, rowvar=False))[1][:, ::-1][:, :N_COMPONENTS]
        found = result.result.components.T
        off = np.linalg.norm(vectors * np.sign(np.sum(vectors * found, axis=0)) - found, axis=0).max()
        return "" if off < 2 * TOL else f"components with an error of {off:.1e}"


def table_of(value: int) -> np.ndarray:
    """The samples of a site, drawn with this seed."""
    random = np.random.default_rng(value)
    return random.standard_normal((N_SAMPLES, N_FEATURES)) * [5.0, 3.0, 1.0, 0.5, 0.2] + random.standard_normal()
