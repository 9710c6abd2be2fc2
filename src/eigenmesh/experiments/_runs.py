"""Run the methods of experiments, in several processes, and store each run when it finishes."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped, unused-ignore]

from eigenmesh.arrays import Array
from eigenmesh.data._archives import find_archive
from eigenmesh.data._datasets import CIFAR10, MNIST
from eigenmesh.errors import EigenmeshError, InputError, UnreadableFileError
from eigenmesh.events import EventLog
from eigenmesh.experiments._curves import Curve, Store, curve_of, thinned
from eigenmesh.experiments._problems import Comparison, make_comparison
from eigenmesh.experiments._settings import DataSet, Experiment, Method, Panel, TrialRun
from eigenmesh.fitting import fit
from eigenmesh.fitting._networks import network_over
from eigenmesh.networks import Network, Stacked, Traffic
from eigenmesh.networks._integers import Bound

Results: TypeAlias = dict[TrialRun, Curve]
# Called with each finished run.
Report: TypeAlias = Callable[[TrialRun], Any]

ARCHIVES = {"mnist": MNIST, "cifar10": CIFAR10}
# Sine at which a run ends: far below the square root of the smallest target.
TOL = 1e-8
# Checks per run: too few to take slow progress for a stall, enough to end a diverged run early.
CHECKS = 40
# Seconds between two checks for finished runs.
POLL_S = 0.1


class UncountedChecks(Stacked):
    """A network that counts mixing, but not maxima and exact averages.

    The published methods run without checks. Here they are checked, to end runs that have converged or diverged.
    Only the checks and the certificate use maxima and averages, and they must not count as the method's cost.
    """

    def worst(self, values: Array) -> Array:
        return self._maximum(values)

    def mean(self, array: Array, bound: Bound = None) -> Array:
        before, exchanges = self.traffic.copy(), self.exchanges.copy()
        averaged = super().mean(array, bound)
        self.traffic, self.exchanges = before, exchanges
        return averaged


def needs_no_checks(method: Method) -> bool:
    """Whether no setting of the method is chosen from its iterates."""
    return method.solver.traits.fixed_schedule and "auto" not in method.settings.values()


def follow(method: Method, comparison: Comparison, rounds: int, events: EventLog | None = None) -> Curve:
    """Run a method until it converges, diverges or is out of rounds, and record its error after every iteration.

    A centralised method runs on one node that has the pooled covariance. Methods that need checks, for a setting
    "auto" or for their schedule, are checked as in any run, and their checks are counted.
    """
    prepared = comparison.centralised if method.centralised else comparison.prepared
    uncounted = needs_no_checks(method)
    network: Network
    if isinstance(prepared.network, Stacked):
        network = (UncountedChecks if uncounted else Stacked)(prepared.network.weights, prepared.averaging)
    else:
        network = network_over(prepared.weights, None, prepared.averaging)
        # The set-up of a fit, which is not counted, finds how fast the network is.
        network.mean(np.zeros((network.n_nodes, 1)))
    request = replace(prepared.request, tol=TOL, max_rounds=rounds)
    fitted = fit(
        replace(prepared, request=request, solver=method.solver, network=network, set_up=Traffic()),
        comparison.start,
        events=events,
        reference=comparison.truth,
        check_every=max(1, rounds // CHECKS) if uncounted else None,
    )
    return thinned(curve_of(fitted.result.history, method.centralised))


def runs_of(experiment: Experiment, trials: int, seed: int) -> list[TrialRun]:
    """All runs of an experiment; those that share data are adjacent."""
    panels = [(panel, trial) for panel in experiment.panels for trial in range(trials)]
    return [TrialRun(panel, method, seed, trial) for panel, trial in panels for method in panel.methods]


def missing_data(panels: Iterable[Panel]) -> dict[str, str]:
    """Data sets of the panels that cannot be loaded, with the message that says where to put each."""
    names = {panel.data.name for panel in panels if isinstance(panel.data, DataSet)}
    missing = {}
    for name in sorted(names & ARCHIVES.keys()):
        try:
            find_archive(ARCHIVES[name])
        except UnreadableFileError as error:
            missing[name] = str(error)
    return missing


def kept_runs(runs: Sequence[TrialRun], store: Store) -> Results:
    """The runs that are stored already, with their curves."""
    return {run: curve for run in runs if (curve := store.load(run)) is not None}


def make_runs(runs: Sequence[TrialRun], store: Store, jobs: int, report: Report) -> None:
    """Carry out and store runs in ``jobs`` processes, which share the cores for linear algebra.

    The runs of one trial stay in one process, because they share its data.
    """
    if jobs < 1:
        raise InputError(f"jobs = {jobs} must be at least 1.")
    batches = [list(batch) for _, batch in groupby(runs, key=lambda run: (run.panel, run.seed, run.trial))]
    jobs = max(1, min(jobs, len(batches)))
    threads = max(1, usable_cores() // jobs)
    if jobs > 1:
        _make_in_processes(batches, store, jobs, threads, report)
        return
    with threadpool_limits(threads):
        for batch in batches:
            _make_batch(batch, store, report)


def usable_cores() -> int:
    """Cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _make_batch(batch: Sequence[TrialRun], store: Store, report: Report) -> None:
    """Carry out the runs of one trial of a panel, which share one problem."""
    panel, _, seed, trial = batch[0]
    comparison = make_comparison(panel, seed, trial)
    for run in batch:
        store.save(run, follow(run.method, comparison, panel.rounds))
        report(run)


def _make_in_processes(batches: list[list[TrialRun]], store: Store, jobs: int, threads: int, report: Report) -> None:
    # Spawned, not forked: a fork would copy locks that threads of linear algebra libraries hold.
    context = multiprocessing.get_context("spawn")
    done = context.SimpleQueue()
    executor = ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin_worker, initargs=(threads, done))
    try:
        pending = {executor.submit(_run_in_worker, batch, store) for batch in batches}
        while pending:
            finished, pending = wait(pending, timeout=POLL_S, return_when=FIRST_COMPLETED)
            while not done.empty():
                report(done.get())
            for future in finished:
                future.result()
    except BrokenProcessPool as error:
        message = "a worker process died, perhaps out of memory; run again with fewer --jobs. Finished runs are kept."
        raise EigenmeshError(message) from error
    finally:
        # After an error or an interrupt workers may still be running.
        workers = list((executor._processes or {}).values())
        executor.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join()


# State of a worker process: the queue for finished runs, and the limit on its threads.
_worker: dict[str, Any] = {}


def _begin_worker(threads: int, done: Any) -> None:
    # An interrupt from the terminal goes to all processes, but the parent ends its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _worker.update(done=done, limit=threadpool_limits(threads))


def _end_with_parent() -> None:
    """End when the parent ends: a parent that was killed cannot end its workers."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run_in_worker(batch: list[TrialRun], store: Store) -> None:
    try:
        _make_batch(batch, store, _worker["done"].put)
    except EigenmeshError as error:
        # Some of our errors take more arguments than the message, so pickle cannot rebuild them.
        raise EigenmeshError(str(error)) from None
