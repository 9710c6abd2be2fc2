"""Who is told how a fit goes, and what is said of one that did not converge."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from eigenmesh.events import EventLog, Record, on_record
from eigenmesh.iteration import Result


@contextmanager
def event_log(callback: Callable[[Record], Any] | None, verbose: bool) -> Iterator[EventLog]:
    """A log that tells the user's callback and, if asked for, the terminal."""
    with ExitStack() as stack:
        listeners = [] if callback is None else [on_record(callback)]
        if verbose:
            from eigenmesh.report._progress import live_progress

            listeners.append(stack.enter_context(live_progress()))
        yield EventLog(*listeners)


def not_converged(result: Result, tol: float) -> str:
    """Why a fit ended early, how good it is as it stands, and what to do."""
    return (
        f"stopped after {result.traffic.rounds} rounds ({result.stop_reason.label}): the angles to the true components "
        f"are bounded by {result.certificate.error_bound:.2g}, not by tol = {tol:g}. {result.stop_reason.advice}"
    )
