"""StreamingPCA: exact PCA of samples that arrive in batches, as scikit-learn has IncrementalPCA beside PCA."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Self, Unpack

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from eigenmesh.errors import DataError, TooFewSamplesError, warn_user
from eigenmesh.estimator._batches import CheckedBatch, CountedBatch, StreamState, count_batch
from eigenmesh.estimator._inputs import connect, event_log
from eigenmesh.estimator._projection import FittedPCA, takes_settings
from eigenmesh.events import BatchChecked, EventLog
from eigenmesh.fitting import Fit, Request, fit, fit_at_every_node, prepare
from eigenmesh.fitting._monitor import Monitor, renewed
from eigenmesh.fitting._stream import StreamData
from eigenmesh.settings import A_STREAM, ONE_FIT, OfAStream
from eigenmesh.transports import Transport

# Directions beyond the components to keep for the next batch: with more, it starts closer to its result.
KEPT_BEYOND = 50
# Parameters of a stream that must be the same at all nodes. The seed of a request is another one for every batch.
STREAM_SETTINGS = [name for name, row in A_STREAM.items() if row.agree and name not in ONE_FIT] + ["random_state"]


@takes_settings(A_STREAM)
class StreamingPCA(FittedPCA):
    """Exact PCA of samples that arrive over time at the nodes of a network, batch by batch.

    After every batch the components are those of *all* samples so far, within ``tol``, with less communication than a
    fit from the start. For samples that are all there, use :class:`DecentralizedPCA`.

    Parameters
    ----------
    (the settings of eigenmesh.settings)

    Attributes
    ----------
    components_, explained_variance_, mean_, certificate_, .. :
        As those of :class:`DecentralizedPCA`, for all samples so far.
    n_samples_seen_ : int
        Samples of all batches in this process; ``n_samples_`` is their current weight, over all nodes.
    batch_ : BatchChecked or None
        How the last batch compares with those before it. None for the first one.
    batch_residuals_ : array of shape (d,) or None
        Mean squared residual of each feature in that batch, with the components before it.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from eigenmesh import StreamingPCA
    >>> X, _ = load_digits(return_X_y=True)
    >>> pca = StreamingPCA(n_components=3, n_nodes=8, topology="complete")
    >>> for batch in (X[:600], X[600:1200], X[1200:]):
    ...     pca = pca.partial_fit(batch)
    >>> pca.certificate_.error_bound < 1e-6
    True
    """

    forgetting: float
    window: int | None
    store: str | os.PathLike[str] | None
    averages_per_batch: int | None
    on_alarm: Callable[[BatchChecked], Any] | None

    def __init__(self, n_components: int | float | None = None, **settings: Unpack[OfAStream]) -> None:
        self._store(n_components=n_components, **settings)

    def fit(self, X: Any, y: Any = None, nodes: Any = None) -> Self:
        """Begin a new stream, whose first batch are these samples; for the parameters see ``partial_fit``."""
        stream, outcome = self._take_batch(None, X, y, nodes)
        if isinstance(outcome, TooFewSamplesError):
            # In a stream more samples may come, but whoever calls fit wants components now.
            raise outcome
        return self._accept(stream, outcome)

    def partial_fit(self, X: Any, y: Any = None, nodes: Any = None, *, batch: Any = None) -> Self:
        """Add a batch to the samples seen so far, and find the principal components of all of them.

        The result and its certificate are those of ``fit`` on all samples so far, with less communication: one average
        gives the moments and continues from the last batch. All nodes must call it for every batch, even those without
        new samples. If a batch is invalid, none of it is counted.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n, d)
            The new samples; or a list of M of these, some of which may have no rows. With a transport: the new samples
            of this node, or none.
        y : array of shape (n,) or None
            Labels, used only by the splits "label" and "dirichlet:...".
        nodes : array of shape (n,), str or None
            The node that has each sample: its number if ``n_nodes`` is set, otherwise a name from the first batch; or
            the name of a column of a data frame.
        batch : hashable or None
            Id of the batch; an id that was counted before raises an error.
        """
        return self._accept(*self._take_batch(getattr(self, "_stream", None), X, y, nodes, batch))

    def _accept(self, stream: StreamState, outcome: Fit | TooFewSamplesError) -> Self:
        """Set the attributes to those after a batch."""
        self._stream, self.n_samples_seen_ = stream, stream.n_seen
        checked = stream.checked
        self.batch_ = None if checked is None else checked.event
        self.batch_residuals_ = None if checked is None else checked.residuals
        if self.on_alarm is not None and checked is not None and checked.event.alarm:
            self.on_alarm(checked.event)
        if isinstance(outcome, TooFewSamplesError):
            so_far = "these are not in the components yet" if hasattr(self, "components_") else "nothing is fitted yet"
            message = f"{so_far}: {outcome} The {stream.n_seen} samples seen so far are kept."
            warn_user(message, ConvergenceWarning)
            return self
        self._set_fitted(outcome)
        if self.averages_per_batch is None:
            self._warn_unless_converged()
        return self

    def _take_batch(
        self, stream: StreamState | None, X: Any, y: Any, nodes: Any, batch: Any = None
    ) -> tuple[StreamState, Fit | TooFewSamplesError]:
        """The stream after one more batch, and the fit to all of it, or the error if there are too few samples yet."""
        request = self._request()
        if stream is not None and batch is not None and batch in stream.ids:
            raise DataError(f"batch {batch!r} was counted before; give every batch its own id.")
        with ExitStack() as stack:
            transport, run_nodes = connect(self, X, stack)
            counted = count_batch(self, X, y, nodes, request.layout_seed, transport, stream)
            stream, data = counted.stream, self._grown(counted, transport, batch)
            request = _request_of_batch(request, stream.n_batches)
            found: Fit | TooFewSamplesError
            checked, events = None, event_log(self, stack, keep=False)
            try:
                found = self._fit_of_all(request, data, run_nodes, events)
                monitor, checked = _checked_batch(data.monitor, found, stream.n_batches)
                known: dict[str, Any] = {"last": found.moments, "space": found.result.space, "monitor": monitor}
                data = replace(data, **known, batch_sums=None, n_new=np.zeros_like(data.n_new))
                if checked is not None:
                    events.emit(checked.event)
            except TooFewSamplesError as error:
                found = error
        after = replace(
            stream,
            data=replace(data, transport=None),
            n_seen=stream.n_seen + int(counted.n_rows.sum()),
            n_batches=stream.n_batches + 1,
            ids=stream.ids if batch is None else stream.ids | {batch},
            checked=checked,
        )
        return after, found

    def _grown(self, counted: CountedBatch, transport: Transport | None, batch: Any) -> StreamData:
        """The data of the stream with a batch that was read and is in no fit yet."""
        data = counted.stream.data
        return replace(
            data,
            nodes=counted.nodes,
            transport=transport,
            batch_sums=_summed(data.batch_sums, counted.sums),
            n_new=data.n_new + counted.n_rows,
            tick=counted.stream.n_batches,
            batch=None if batch is None else str(batch),
            sent=counted.sent,
            settings={name: getattr(self, name) for name in STREAM_SETTINGS},
        )

    def _fit_of_all(
        self, request: Request, data: StreamData, run_nodes: Callable[..., list[Fit]] | None, events: EventLog
    ) -> Fit:
        """The fit to all batches so far, within the budget per batch, with directions for the start of the next one."""
        budget = self.averages_per_batch
        settings: dict[str, Any] = {"max_iterations": None if budget is None else budget - 1}
        settings["keep"] = min(data.n_features, KEPT_BEYOND + _count(self.n_components))
        if run_nodes is not None:
            return fit_at_every_node(run_nodes, request, data, events, **settings)
        return fit(prepare(request, data), events=events, **settings)

    @property
    def _quiet_spe(self) -> tuple[float, float] | None:
        """Mean and variance of SPE in the quiet batches of a stream."""
        stream = getattr(self, "_stream", None)
        monitor = None if stream is None else stream.data.monitor
        return None if monitor is None else monitor.quiet_spe

    def __sklearn_is_fitted__(self) -> bool:
        """Whether there are components; the first batches may have had too few samples."""
        return hasattr(self, "components_")


def _request_of_batch(request: Request, number: int) -> Request:
    """The request with its own seed for the batch: the random directions of earlier batches would show nothing new."""
    if request.seed is not None:
        state = np.random.SeedSequence([request.seed, number]).generate_state(1, np.uint64)
        request = replace(request, seed=int(state[0]))
    # With masks samples are always counted, because the count decides whether a batch may be summed.
    return replace(request, min_samples=max(1, request.min_samples)) if request.masked else request


def _checked_batch(monitor: Monitor | None, found: Fit, batch: int) -> tuple[Monitor, CheckedBatch | None]:
    """The monitor for the next batch, and what the last one says of this, if there was one."""
    result = found.result
    following = renewed(monitor, result.components, result.explained_variance, found.moments)
    if monitor is None or found.checked is None:
        return following, None
    new, residuals = monitor.read(found.checked.sums)
    lost = 1 - found.checked.explained / float(np.sum(result.explained_variance[: len(monitor.variances)]))
    event = monitor.checked(batch, new, lost)
    return replace(following, quiet=monitor.after(new, event)), CheckedBatch(event, residuals)


def _summed(before: np.ndarray | None, new: np.ndarray | None) -> np.ndarray | None:
    """Sums of the monitor over batches that are in no fit yet, including the new one: (nodes, width of the monitor)."""
    return new if before is None or new is None else before + new


def _count(n_components: Any) -> int:
    return n_components if isinstance(n_components, int) else 0
