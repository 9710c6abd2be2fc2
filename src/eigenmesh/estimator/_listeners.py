"""Who is told how a fit goes, and what is said of one that did not get there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from eigenmesh.iteration import Callback, Record, Result


@contextmanager
def listeners(callback: Callback | None, verbose: bool, max_rounds: int) -> Iterator[Callback | None]:
    """The user's callback and, if asked for, the terminal, as one callback."""
    if not verbose:
        yield callback
        return
    from eigenmesh.report._progress import live_progress

    with live_progress(max_rounds) as progress:

        def report(record: Record) -> None:
            progress(record)
            if callback is not None:
                callback(record)

        yield report


def not_converged(result: Result, tol: float) -> str:
    """Why a fit ended early, how good it is as it stands, and what to do."""
    return (
        f"stopped after {result.traffic.rounds} rounds ({result.stop_reason.label}): the angles to the true components "
        f"are bounded by {result.certificate.error_bound:.2g}, not by tol = {tol:g}. {result.stop_reason.advice}"
    )
