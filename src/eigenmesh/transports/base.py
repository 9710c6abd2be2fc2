"""The interface of a transport: it carries arrays between neighbours, in rounds."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal, Self

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array
from eigenmesh.errors import InputError, TransportError
from eigenmesh.masking import Masks

Arrays = tuple[Array, ...]
Reduction = Literal["sum", "mean", "max"]


@dataclass(frozen=True)
class Links:
    """The ranks that a node sends to and receives from in a round. A transport may add prepared state.

    Parameters
    ----------
    send_to : the ranks that get the arrays of this node.
    receive_from : the ranks whose arrays this node gets.
    """

    send_to: tuple[int, ...]
    receive_from: tuple[int, ...]


@dataclass
class SentCount:
    """Messages that one node has sent to its neighbours. A message that had to be repeated counts once.

    An all-reduce counts as M - 1 messages at node 0 and one at each other node: to add up, and to send the sum back.

    Parameters
    ----------
    messages : how many were sent.
    bytes : of the arrays in them, without headers, padding and handshakes.
    """

    messages: int = 0
    bytes: int = 0

    def add(self, messages: int, message_bytes: int) -> None:
        self.messages += messages
        self.bytes += messages * message_bytes


class Transport(ABC):
    """One node's end of the links to its neighbours.

    All nodes call ``links``, ``exchange`` and ``all_reduce`` in the same order, with arrays of the same shapes and
    dtypes, so a receiver knows the size of a message before it allocates memory. Every wait has a deadline.

    A transport must have ``exchange``, ``abort`` and ``close``. All other methods have a default. It is a context
    manager, which ends the run at every node if there is an error, and closes the links.

    Examples
    --------
    Two nodes, each a thread, send each other their rank:

    >>> import numpy as np
    >>> from eigenmesh.transports import run_threads
    >>> def work(transport):
    ...     links = transport.links(transport.others, transport.others)
    ...     received = transport.exchange((np.array([transport.rank]),), links)
    ...     return {sender: arrays[0].tolist() for sender, arrays in received.items()}
    >>> run_threads(2, work)
    [{1: [1]}, {0: [0]}]
    """

    # Whether ``all_reduce`` is implemented.
    reduces: ClassVar[bool] = False
    # Whether links may change in every round; False where preparing them costs more than a round.
    changes_links: ClassVar[bool] = False
    # Whether nodes compare their settings when they connect, as sites do with their manifests.
    compares_settings: ClassVar[bool] = False
    # Seconds that a node at its own pace may work without an end, where ``post`` is implemented.
    deadline_s: float = 60.0

    # A subclass sets these, or overrides the properties.
    _rank: int
    _size: int

    @property
    def rank(self) -> int:
        """Global id of this node, 0 .. M - 1."""
        return self._rank

    @property
    def size(self) -> int:
        """M, the number of nodes."""
        return self._size

    @property
    def others(self) -> list[int]:
        """Ranks of all other nodes."""
        return [rank for rank in range(self.size) if rank != self.rank]

    @cached_property
    def sent(self) -> SentCount:
        """Messages that this node has sent since it was connected."""
        return SentCount()

    @property
    def _reduce_messages(self) -> int:
        return self.size - 1 if self.rank == 0 else 1

    def private_bytes(self, count: int) -> bytes:
        """Random bytes that no other node knows. If a node can resume, it gets the same bytes again after a restart."""
        return secrets.token_bytes(count)

    def masks(self) -> Masks | None:
        """Masks of this node, from keys that its neighbours cannot forge, or None if nodes have no such keys."""
        return None

    def links(self, send_to: Sequence[int], receive_from: Sequence[int]) -> Links:
        """Prepare a kind of round that is used many times: the ranks that this node sends to and receives from."""
        return Links(tuple(send_to), tuple(receive_from))

    @abstractmethod
    def exchange(self, arrays: Arrays, links: Links) -> dict[int, Arrays]:
        """Send the arrays over the links and receive arrays of the same shapes: sender -> its arrays.

        The next exchange over the same links may overwrite the received arrays.
        Raises DeadlineError naming the neighbour that did not answer, AbortedError if a node ended the run.
        """

    def gather(self, arrays: Arrays, links: Links) -> Arrays:
        """Exchange, and stack each array over this node and its senders: (1 + senders, ...), this node first.

        The next exchange over the same links may overwrite the stacks.
        """
        received = self.exchange(arrays, links)
        stacks = []
        for array, *others in zip(arrays, *(received[sender] for sender in links.receive_from), strict=True):
            xp = ea.namespace(array)
            stacks.append(xp.stack([array, *(xp.asarray(other, device=array.device) for other in others)]))
        return tuple(stacks)

    def all_gather(self, array: np.ndarray) -> np.ndarray:
        """The arrays of all nodes, (...) -> (M, ...), which have the same shape and dtype.

        It needs no graph, because every node sends to every other. It is for a few numbers before a run, and like a
        handshake it is not counted in ``sent``.
        """
        before = replace(self.sent)
        received = self.exchange((array,), self.links(self.others, self.others))
        self.sent.messages, self.sent.bytes = before.messages, before.bytes
        return np.stack([array if rank == self.rank else received[rank][0] for rank in range(self.size)])

    def all_reduce(self, array: Array, reduction: Reduction) -> Array:
        """Elementwise sum, mean or maximum over all nodes, the same shape.

        A mean needs floating point. The maximum of NaN is undefined.
        """
        raise TransportError(f"{type(self).__name__} has no all-reduce; average over links instead, such as with tree.")

    def post(self, receiver: int, arrays: Arrays) -> None:
        """Send arrays to a neighbour that does not wait for them. The caller must not change them afterwards."""
        raise TransportError(f"{type(self).__name__} works in rounds; nodes at their own pace need ThreadTransport.")

    def collect(self, timeout_s: float) -> tuple[int, Arrays] | None:
        """The sender and the arrays of the next posted message, or None if none arrives within ``timeout_s``."""
        raise TransportError(f"{type(self).__name__} works in rounds; nodes at their own pace need ThreadTransport.")

    @abstractmethod
    def abort(self, reason: str) -> None:
        """End the run at every node, with this node's reason."""

    @abstractmethod
    def close(self) -> None:
        """Release the links; may be called more than once."""

    def __deepcopy__(self, memo: object) -> Self:
        # A connection is shared, never copied: scikit-learn copies the parameters of an estimator.
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            self.abort(f"{type(error).__name__}: {error}")
        self.close()


def require_timeouts(**seconds: float) -> None:
    """Raise InputError unless every timeout is above 0."""
    for name, value in seconds.items():
        if not value > 0:
            raise InputError(f"{name} = {value!r} must be above 0.")


def in_library_of(models: Arrays, arrays: tuple[np.ndarray, ...]) -> Arrays:
    """Each array converted to the library of its model. All arrays of a message use the same library."""
    if not models or isinstance(models[0], np.ndarray):
        return arrays
    return tuple([ea.like(array, model) for array, model in zip(arrays, models, strict=True)])
