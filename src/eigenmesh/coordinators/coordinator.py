"""What an engine supplies so that samples behind it can be fitted: a way to ask all sites for a sum."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, ClassVar

from eigenmesh.errors import InputError

# Answers that are added at once: with more, there are fewer sums, but somebody has to hold that many at a time.
FAN_IN = 8
# For the package of an object, the module of this room that has its engine.
ENGINES = {"dask": "dask", "dask_expr": "dask", "ray": "ray", "pyspark": "spark"}


class Coordinator(ABC):
    """Somebody who can send a message to all sites and add up their answers.

    A subclass defines ``ask``; the rest has defaults. ``DecentralizedPCA(10).fit(coordinator)`` does the rest.

    Attributes
    ----------
    name : str
        What the engine is called in messages.
    request_s : float
        Seconds of the smallest request. The planner weighs many small requests against one large one by it.
    n_parts : int or None
        Number of parts that the samples are in, each of which answers; None if the first answer tells.
    n_features : int or None
        Number of columns d; None if the first answer tells.
    feature_names : tuple of str or None
        Names of the columns; None if they have none, or if the first answer tells.

    Examples
    --------
    See the page "Sites that answer requests".
    """

    name: ClassVar[str] = "coordinated"
    request_s: ClassVar[float] = 0.1
    n_parts: int | None = None
    n_features: int | None = None
    feature_names: tuple[str, ...] | None = None

    @abstractmethod
    def ask(self, message: bytes) -> bytes:
        """Send a message to all sites, and return the sum of their answers (``verbs.answer``, ``verbs.add``)."""

    def ask_some(self, message: bytes) -> bytes:
        """The same of some of the parts, if asking all of them would take a pass over files. By default of all."""
        return self.ask(message)

    def keep(self, n_bytes: int, asked: bool) -> None:  # noqa: B027
        """Keep the rows in the memory of the engine, if ``n_bytes`` fit or if the user ``asked`` for it.

        By default nothing is done: rows are there already, or nobody can keep them.
        """

    @property
    def largest_answer(self) -> int:
        """Most bytes of one answer; a larger covariance is not formed."""
        return 2**28

    def scores(self, project: Callable[[Any, str], Any], names: Sequence[str]) -> Any:
        """Scores of all rows, in the engine, nothing computed yet if the engine can wait.

        ``project`` maps rows (n, d) and their name in errors to scores (n, K), whose columns have these names.
        """
        raise InputError(f"{self.name} data give sums only; transform the rows where they are, with the saved model.")

    def collected(self) -> Any:
        """All rows, in this process, for a batch of a stream."""
        raise InputError(f"a batch of a stream is rows in this process; collect {self.name} data before.")

    def close(self) -> None:  # noqa: B027
        """Release what was kept for the fit."""


def is_asked(X: Any) -> bool:
    """Whether samples are behind a coordinator: one of these, or data of an engine, by the name of their module."""
    return isinstance(X, Coordinator) or _engine(X) is not None


def coordinator_of(X: Any, weights: Any = None) -> Coordinator:
    """The coordinator of data of an engine; reads nothing.

    Parameters
    ----------
    X : Coordinator, or data of an engine
        The samples.
    weights : object or None
        How many equal rows each row stands for, in the form of the engine: the name of a column, or what is in parts as
        the rows are.
    """
    if isinstance(X, Coordinator):
        if weights is not None:
            raise InputError(f"rows of {X.name} sites have their weights there; leave out sample_weight.")
        return X
    made: Coordinator = import_module(f"eigenmesh.coordinators.{_engine(X)}").coordinator(X, weights)
    return made


def _engine(X: Any) -> str | None:
    first = X[0] if isinstance(X, list) and X else X
    return ENGINES.get(type(first).__module__.partition(".")[0])
