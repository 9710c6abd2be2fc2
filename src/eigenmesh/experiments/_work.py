"""Run experiments in several processes, and store each run when it finishes."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
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
# Called with each finished run.
Report: TypeAlias = Callable[[Run], Any]

ARCHIVES = {"mnist": MNIST, "cifar10": CIFAR10}
# Seconds between two checks for finished runs.
POLL_S = 0.1


def runs_of(experiment: Experiment, trials: int, seed: int) -> list[Run]:
    """All runs of an experiment; those that share data are adjacent."""
    return [
        Run(panel, method, seed, trial)
        for panel in experiment.panels
        for trial in range(trials)
        for method in panel.methods
    ]


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


def kept_runs(runs: Sequence[Run], store: Store) -> Results:
    """The runs that are stored already, with their curves."""
    found = {run: store.load(run) for run in runs}
    return {run: curve for run, curve in found.items() if curve is not None}


def make_runs(runs: Sequence[Run], store: Store, jobs: int, report: Report) -> None:
    """Carry out and store runs in ``jobs`` processes, which share the cores for linear algebra.

    The runs of one trial stay in one process, because they share its data.
    """
    if jobs < 1:
        raise InputError(f"jobs = {jobs} must be at least 1.")
    batches = [list(batch) for _, batch in groupby(runs, key=lambda run: (run.panel, run.seed, run.trial))]
    jobs = max(1, min(jobs, len(batches)))
    threads = max(1, usable_cores() // jobs)
    if jobs == 1:
        with threadpool_limits(threads):
            for batch in batches:
                _make_batch(batch, store, report)
        return
    _make_in_processes(batches, store, jobs, threads, report)


def usable_cores() -> int:
    """Cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _make_batch(batch: Sequence[Run], store: Store, report: Report) -> None:
    """Carry out the runs of one trial of a panel, which share one problem."""
    panel, _, seed, trial = batch[0]
    comparison = make_comparison(panel, seed, trial)
    for run in batch:
        store.save(run, follow(run.method, comparison, panel.rounds))
        report(run)


def _make_in_processes(batches: list[list[Run]], store: Store, jobs: int, threads: int, report: Report) -> None:
    # Spawned, not forked: a fork would copy locks that threads of linear algebra libraries hold.
    context = multiprocessing.get_context("spawn")
    done = context.SimpleQueue()
    executor = ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin_worker, initargs=(threads, done))
    try:
        pending = {executor.submit(_run_in_worker, number, batch, store) for number, batch in enumerate(batches)}
        while pending:
            finished, pending = wait(pending, timeout=POLL_S, return_when=FIRST_COMPLETED)
            while not done.empty():
                number, position = done.get()
                report(batches[number][position])
            for future in finished:
                future.result()
    except BrokenProcessPool as error:
        raise EigenmeshError(
            "a worker process died, perhaps out of memory; run again with fewer --jobs. Finished runs are kept."
        ) from error
    finally:
        _end_workers(executor)


def _end_workers(executor: ProcessPoolExecutor) -> None:
    """End the workers, also those that are running after an error or an interrupt."""
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


def _run_in_worker(number: int, batch: list[Run], store: Store) -> None:
    positions = {id(run): position for position, run in enumerate(batch)}
    try:
        _make_batch(batch, store, lambda run: _worker["done"].put((number, positions[id(run)])))
    except EigenmeshError as error:
        # Some of our errors take more arguments than the message, so pickle cannot rebuild them.
        raise EigenmeshError(str(error)) from None
