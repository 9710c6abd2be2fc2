"""Runs spread over processes, each kept as soon as it is done."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import groupby
from typing import Any, TypeAlias

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped, unused-ignore]

from eigenmesh.data._archives import find_archive
from eigenmesh.data._datasets import CIFAR10, MNIST
from eigenmesh.errors import EigenmeshError, InputError, UnreadableFileError
from eigenmesh.experiments._cache import Store
from eigenmesh.experiments._curves import Curve
from eigenmesh.experiments._problems import make_comparison
from eigenmesh.experiments._settings import DataSet, Experiment, Panel, Run
from eigenmesh.experiments._trials import follow

Results: TypeAlias = dict[Run, Curve]
# Called with each run that is done.
Report: TypeAlias = Callable[[Run], Any]

ARCHIVES = {"mnist": MNIST, "cifar10": CIFAR10}
# Seconds between two looks at what the workers have done.
POLL_S = 0.1


def runs_of(experiment: Experiment, trials: int, seed: int) -> list[Run]:
    """All runs of an experiment, those that share data next to each other."""
    return [
        Run(panel, method, seed, trial)
        for panel in experiment.panels
        for trial in range(trials)
        for method in panel.methods
    ]


def missing_data(panels: Iterable[Panel]) -> dict[str, str]:
    """Data sets of the panels that are not to be had, with the message that says where to put each."""
    names = {panel.data.name for panel in panels if isinstance(panel.data, DataSet)}
    missing = {}
    for name in sorted(names & ARCHIVES.keys()):
        try:
            find_archive(ARCHIVES[name])
        except UnreadableFileError as error:
            missing[name] = str(error)
    return missing


def kept_runs(runs: Sequence[Run], store: Store) -> Results:
    """The runs that need not be made again."""
    found = {run: store.load(run) for run in runs}
    return {run: curve for run, curve in found.items() if curve is not None}


def make_runs(runs: Sequence[Run], store: Store, jobs: int, report: Report) -> None:
    """Carry out runs and keep each of them; runs of one trial stay in one process, for they share its data.

    Parameters
    ----------
    jobs : processes; each has its share of the cores for linear algebra.
    """
    require_jobs(jobs)
    batches = [list(batch) for _, batch in groupby(runs, key=lambda run: (run.panel, run.seed, run.trial))]
    jobs = max(1, min(jobs, len(batches)))
    threads = max(1, usable_cores() // jobs)
    if jobs == 1:
        with threadpool_limits(threads):
            for batch in batches:
                _make_batch(batch, store, report)
        return
    _make_in_processes(batches, store, jobs, threads, report)


def require_jobs(jobs: int) -> None:
    """Raise unless there is at least one process to work in."""
    if jobs < 1:
        raise InputError(f"jobs = {jobs} must be at least 1.")


def usable_cores() -> int:
    """Cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _make_batch(batch: Sequence[Run], store: Store, report: Report) -> None:
    """Carry out the runs of one trial of a panel on the one problem that they share."""
    panel, _, seed, trial = batch[0]
    comparison = make_comparison(panel, seed, trial)
    for run in batch:
        store.save(run, follow(run.method, comparison, panel.rounds))
        report(run)


def _make_in_processes(batches: list[list[Run]], store: Store, jobs: int, threads: int, report: Report) -> None:
    # Fresh processes: a fork would copy the threads' locks of linear algebra libraries.
    context = multiprocessing.get_context("spawn")
    done = context.SimpleQueue()
    executor = ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin_worker, initargs=(threads, done))
    try:
        pending: set[Future[None]] = {
            executor.submit(_work, number, batch, store) for number, batch in enumerate(batches)
        }
        while pending:
            finished, pending = wait(pending, timeout=POLL_S, return_when=FIRST_COMPLETED)
            while not done.empty():
                number, position = done.get()
                report(batches[number][position])
            for future in finished:
                future.result()
    except BrokenProcessPool as error:
        raise EigenmeshError(
            "a worker process died, perhaps for want of memory; run it again with fewer --jobs. What was done is kept."
        ) from error
    finally:
        _end_workers(executor)


def _end_workers(executor: ProcessPoolExecutor) -> None:
    """Let go of the workers; those in the middle of a run (after an error or an interrupt) are ended."""
    workers = list((executor._processes or {}).values())
    executor.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join()


# What a worker process has of its own: where it reports to, and the limit on its threads.
_worker: dict[str, Any] = {}


def _begin_worker(threads: int, done: Any) -> None:
    # The parent ends its workers itself; an interrupt from the terminal goes to all of them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _worker.update(done=done, limit=threadpool_limits(threads))


def _end_with_parent() -> None:
    """Wait for the parent's end, and end too: a parent that was killed could not see to it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(number: int, batch: list[Run], store: Store) -> None:
    positions = {id(run): position for position, run in enumerate(batch)}
    try:
        _make_batch(batch, store, lambda run: _worker["done"].put((number, positions[id(run)])))
    except EigenmeshError as error:
        # Some of our errors are made from more than their message, which pickle does not know.
        raise EigenmeshError(str(error)) from None
