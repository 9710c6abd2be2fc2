"""The real fit as the solver of a rehearsed site, on made-up samples, with the time that its computations would take.

The fit computes in a thread while virtual time stands still, and then waits.
"""

from __future__ import annotations

import hashlib
import queue
import threading
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import networkx as nx
import numpy as np

from eigenmesh import protocol as ep
from eigenmesh.data import Covariance, Shards
from eigenmesh.data.datasets import geometric_spectrum, unlike_nodes
from eigenmesh.errors import MembersChangedError
from eigenmesh.fitting import NodeData, Request, fit, prepare
from eigenmesh.graphs import metropolis
from eigenmesh.iteration import Result
from eigenmesh.protocol import effects
from eigenmesh.protocol.membership import Membership
from eigenmesh.protocol.setup import Stage
from eigenmesh.rehearsal.conditions import Edges, Host
from eigenmesh.rehearsal.virtual_time import TimedCovariance, Work, WorkClock, product_s, work_on
from eigenmesh.sites.network_file import NetworkFile
from eigenmesh.sites.site import RunSettings, site_graph

if TYPE_CHECKING:
    from eigenmesh.rehearsal.world import Process

Ask = Callable[[Any], Any]


class AbandonedError(Exception):
    """The process of this solver is gone."""


class SiteFit(NamedTuple):
    """The result of a site: the lost links without which it was found, its digest, and the members' statements."""

    lost: Edges
    result: Result
    digest: str
    statements: Mapping[str, str]


class FitProblem:
    """Principal components of one table per site.

    Parameters
    ----------
    sites, edges : tuple
        The names of the sites, and their links.
    request : Request
        What the fit is asked for.
    table_of : callable
        The samples of a process: (N_i, d).
    work : WorkClock
        The clock to which the time of the computations is added.
    max_message_bytes : int
        The largest message of the run.
    """

    def __init__(
        self,
        sites: tuple[str, ...],
        edges: Edges,
        request: Request,
        table_of: Callable[[Any], np.ndarray],
        work: WorkClock,
        max_message_bytes: int,
    ) -> None:
        self._sites, self._edges, self._request, self._table_of = sites, edges, request, table_of
        self.work, self.max_message_bytes = work, max_message_bytes

    def solver(self, process: Process) -> Generator[Any, Any, SiteFit]:
        """The requests of one process to its machine, in the order of the real fit."""

        def solve(ask: Ask) -> SiteFit:
            while True:
                self.work.lap(process.site)
                # The time of all other computations in the thread (bases, the certificate) is counted, too.
                found, estimate = self._epoch(process, partial(self.work.pause, process.site, ask))
                if found is not None:
                    return found
                ask(effects.Begin(b"" if estimate is None else estimate.tobytes()))

        return handed_over(solve)

    def _epoch(self, process: Process, ask: Ask) -> tuple[SiteFit | None, np.ndarray | None]:
        lost, first = process.world.position(process)
        view = Membership(process.site, self._sites, self._edges, lost)
        own, site = self._table_of(process), process.site
        start = np.frombuffer(first).reshape(own.shape[1], -1) if first else None
        latest = start

        def keep(estimate: np.ndarray) -> None:
            nonlocal latest
            latest = np.array(estimate, dtype=float)

        # Imported only here: the example of conditions needs no cryptography.
        from eigenmesh.transports.tls import Endpoint, TlsTransport

        transport = TlsTransport(cast(Endpoint, RehearsedEndpoint(process.machine, ask)))
        graph = site_graph(view.members, [link for link in view.links if link[0] in view.members])
        try:
            shards = Shards.from_list([own], ids=[transport.rank], n_nodes=transport.size, node_names=view.members)
            data = NodeData(shards, metropolis(graph), transport)
            prepared = self.work.set_up(site, lambda: prepare(self._request, data))
            covariance = TimedCovariance(prepared.covariance, partial(self.work.multiply, site))
            prepared = replace(prepared, covariance=cast(Covariance, covariance))
            transport.compare(Stage.SET_UP)
            average, log = bool(lost), process.world.events.log_of(site)
            result = fit(prepared, start, average_start=average, events=log, on_estimate=keep, share=True).result
            digest = hashlib.sha256(np.ascontiguousarray(result.components).tobytes()).hexdigest()
            return SiteFit(lost, result, digest, transport.sign(digest)), latest
        except MembersChangedError:
            return None, latest


class RehearsedEndpoint:
    """A process as the transport of a real site sees it. What the solver asks of the machine goes through ``ask``."""

    def __init__(self, machine: ep.SiteMachine, ask: Ask) -> None:
        self.machine, self.setup, self.ask = machine, machine.setup, ask


def handed_over(solve: Callable[[Ask], Any]) -> Generator[Any, Any, Any]:
    """Run ``solve`` in a thread, and yield its requests one at a time; thread and caller never run at once."""
    questions: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def ask(question: Any) -> Any:
        questions.put(("asks", question))
        answer = answers.get()
        if isinstance(answer, AbandonedError):
            raise answer
        return answer

    def work() -> None:
        try:
            questions.put(("ends", solve(ask)))
        except BaseException as error:
            questions.put(("fails", error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while True:
            kind, value = questions.get()
            if kind == "ends":
                return value
            if kind == "fails":
                raise value
            answers.put((yield value))
    finally:
        answers.put(AbandonedError())
        thread.join()


# A fit of made-up samples, in the shape of real ones, with the time that its computations would take.


# K, where the settings give a share of the variance instead.
USUAL_COMPONENTS = 5


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
    return Work(set_up_s, product_s(prepared.covariance, columns))


def work_of(hosts: Mapping[str, Host], tables: Mapping[str, np.ndarray], settings: RunSettings) -> dict[str, Work]:
    """The work of every site: as stated for its host, or as timed here (once per shape) times its slowdown."""

    @cache
    def here(shape: tuple[int, ...]) -> Work:
        return times_here(next(table for table in tables.values() if table.shape == shape), settings)

    return {site: work_on(host, partial(here, tables[site].shape)) for site, host in hosts.items()}
