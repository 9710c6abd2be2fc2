"""A fit of made-up samples, in the shape of real ones, with the time that its computations would take."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import networkx as nx
import numpy as np

from eigenmesh.data import Covariance, Shards, geometric_spectrum, unlike_nodes
from eigenmesh.events import EventLog
from eigenmesh.fitting import NodeData, Prepared, prepare
from eigenmesh.graphs import metropolis
from eigenmesh.rehearsal._conditions import Host
from eigenmesh.rehearsal._fits import Ask, FitProblem, SiteFit
from eigenmesh.rehearsal._rehearsal_log import RehearsalLog
from eigenmesh.sites import NetworkFile, RunSettings

if TYPE_CHECKING:
    from eigenmesh.rehearsal._process import Process
    from eigenmesh.rehearsal._world import Position

# K, where the settings give a share of the variance instead.
USUAL_COMPONENTS = 5
N_TIMED = 9


class Work(NamedTuple):
    """Seconds that a site needs: for its moments and covariance, and for one product with the solver's block."""

    set_up_s: float
    product_s: float


def made_up(network: NetworkFile, n_features: int, sizes: tuple[int, ...], gap: float, seed: int) -> list[np.ndarray]:
    """Samples (N_i, d) per site, with common axes; variances drop by ``gap`` after component K, and differ by site."""
    wanted = network.settings.asked.n_components
    k = wanted if isinstance(wanted, int) else min(USUAL_COMPONENTS, n_features - 1)
    spectrum = geometric_spectrum(n_features, k, gap)
    return unlike_nodes(spectrum, sizes, seed, spread=0.1)


def times_here(table: np.ndarray, settings: RunSettings) -> Work:
    """The time of one site's work on this computer: one set-up, and the median over products."""
    data = NodeData(Shards.from_list([table]), metropolis(nx.empty_graph(1)))
    # A single site cannot use masks; they take little time compared with a product.
    request = replace(settings.request(), seed=0, privacy="open", min_samples=0)
    # Once without timing, to fill caches.
    prepare(request, data)
    began = time.perf_counter()
    prepared = prepare(request, data)
    set_up_s = time.perf_counter() - began
    d, k = table.shape[1], prepared.n_components
    columns = prepared.solver.columns(k if isinstance(k, int) else min(USUAL_COMPONENTS, d), d)
    block = prepared.covariance.place(np.random.default_rng(0).standard_normal((1, d, columns)))
    taken = []
    for _ in range(N_TIMED):
        began = time.perf_counter()
        prepared.covariance.apply(block)
        taken.append(time.perf_counter() - began)
    return Work(set_up_s, median(taken))


def work_of(hosts: Mapping[str, Host], tables: Mapping[str, np.ndarray], settings: RunSettings) -> dict[str, Work]:
    """The work of every site: as stated for its host, or as timed here (once per shape) times its slowdown."""
    here = {
        shape: times_here(next(table for table in tables.values() if table.shape == shape), settings)
        for shape in {tables[site].shape for site, host in hosts.items() if host.product_ms is None}
    }
    found = {}
    for site, host in hosts.items():
        if host.product_ms is None:
            found[site] = Work(*(host.slowdown * each for each in here[tables[site].shape]))
        else:
            found[site] = Work(host.set_up_ms / 1e3, host.product_ms / 1e3)
    return found


class MadeUpProblem(FitProblem):
    """The fit that a network's settings ask for.

    ``owed_s`` is the time of work that is computed already, but not yet counted in virtual time.
    """

    def __init__(
        self,
        network: NetworkFile,
        tables: Mapping[str, np.ndarray],
        work: Mapping[str, Work],
        hosts: Mapping[str, Host],
        log: RehearsalLog,
    ) -> None:
        settings, self._log = network.settings, log
        super().__init__(network.names, network.edges, settings.request())
        self._tables, self._work = tables, work
        self.max_message_bytes = settings.largest_message(next(iter(tables.values())).shape[1])
        self.owed_s = dict.fromkeys(network.names, 0.0)
        # Where times are stated, nothing is measured, so that the outcome depends only on the seed.
        self._slowdown = {site: 0.0 if host.product_ms is not None else host.slowdown for site, host in hosts.items()}
        self._clock: dict[str, float] = {}

    def table(self, process: Process) -> np.ndarray:
        return self._tables[process.site]

    def log_of(self, process: Process) -> EventLog | None:
        return self._log.log_of(process.site)

    def prepared(self, process: Process, data: NodeData) -> Prepared:
        site = process.site
        # Do not measure this: the time of the set-up is added below.
        slowdown, self._slowdown[site] = self._slowdown[site], 0.0
        try:
            done = super().prepared(process, data)
        finally:
            self._slowdown[site] = slowdown
        self._lap(site)
        self.owed_s[site] += self._work[site].set_up_s
        counted = _TimedCovariance(done.covariance, lambda X: self.counted(site, self._work[site].product_s, apply, X))
        apply = done.covariance.apply
        return replace(done, covariance=cast(Covariance, counted))

    def _epoch(self, process: Process, position: Position, ask: Ask) -> tuple[SiteFit | None, np.ndarray | None]:
        """The fit. The time of all other computations in its thread (bases, the certificate) is counted, too."""
        self._lap(process.site)
        return super()._epoch(process, position, lambda question: self.counted(process.site, 0.0, ask, question))

    def counted(self, site: str, seconds: float, work: Callable[[Any], Any], about: Any) -> Any:
        """Do work that takes a given time; the time that the thread has computed before it is counted as measured."""
        self.owed_s[site] += self._slowdown[site] * self._lap(site)
        done = work(about)
        self._lap(site)
        self.owed_s[site] += seconds
        return done

    def _lap(self, site: str) -> float:
        """Seconds that the thread of a site has computed since the last call."""
        before, self._clock[site] = self._clock.get(site, math.inf), time.thread_time()
        return max(0.0, self._clock[site] - before)


class _TimedCovariance:
    """A covariance whose products take a given virtual time."""

    def __init__(self, covariance: Covariance, apply: Callable[[Any], Any]) -> None:
        self._covariance, self.apply = covariance, apply

    def __getattr__(self, name: str) -> Any:
        return getattr(self._covariance, name)
