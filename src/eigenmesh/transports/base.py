"""What a transport does: carry arrays between neighbours, in rounds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import numpy as np

Arrays = tuple[np.ndarray, ...]


class Transport(ABC):
    """One node's end of the links to its neighbours.

    All nodes call ``exchange`` in the same order with arrays of the same shapes and dtypes, so a receiver knows what to
    expect before it takes memory for it. Every wait has a deadline.
    """

    @property
    @abstractmethod
    def rank(self) -> int:
        """Global id of this node, 0 .. M - 1."""

    @property
    @abstractmethod
    def size(self) -> int:
        """M, the number of nodes."""

    @abstractmethod
    def exchange(self, arrays: Arrays, send_to: Sequence[int], receive_from: Sequence[int]) -> dict[int, Arrays]:
        """Send the arrays to some neighbours and receive as many, of the same shapes, from others.

        Raises DeadlineError naming the neighbour that did not answer, AbortedError if a node gave up.
        """

    @abstractmethod
    def abort(self, reason: str) -> None:
        """End the run at every node, with this node's reason."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the links; more than once is harmless."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self.abort(f"{type(error).__name__}: {error}")
        self.close()
