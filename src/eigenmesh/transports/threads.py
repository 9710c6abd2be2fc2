"""All nodes in one process, one thread per node: a transport without dependencies."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar, TypeVar

import numpy as np

from eigenmesh.arrays import blas_threads
from eigenmesh.errors import AbortedError, DeadlineError, InputError
from eigenmesh.transports.base import Arrays, Links, Transport, require_timeouts

T = TypeVar("T")

# How often a waiting node checks whether another one has failed.
POLL_S = 0.05


class ThreadHub:
    """State that the nodes of one process share: a mailbox per directed link, and the reason of the first failure.

    Parameters
    ----------
    size : number of nodes.
    timeout_s : deadline of every wait.
    """

    def __init__(self, size: int, timeout_s: float = 60.0) -> None:
        if size < 1:
            raise InputError(f"size = {size} must be at least 1.")
        require_timeouts(timeout_s=timeout_s)
        self.size, self.timeout_s = size, timeout_s
        self._mailboxes: dict[tuple[int, int], queue.SimpleQueue[Arrays]] = {}
        # Posted messages, by receiver.
        self.posted: list[queue.SimpleQueue[tuple[int, Arrays]]] = [queue.SimpleQueue() for _ in range(size)]
        self._lock = threading.Lock()
        self._failure = ""

    def mailbox(self, sender: int, receiver: int) -> queue.SimpleQueue[Arrays]:
        with self._lock:
            return self._mailboxes.setdefault((sender, receiver), queue.SimpleQueue())

    def fail(self, rank: int, reason: str) -> None:
        """Record the first failure; later ones are its consequences."""
        with self._lock:
            self._failure = self._failure or f"node {rank} ended the run: {reason}"

    def check(self) -> None:
        if self._failure:
            raise AbortedError(self._failure)

    def transport(self, rank: int) -> ThreadTransport:
        return ThreadTransport(self, rank)


class ThreadTransport(Transport):
    """One node's end in a ``ThreadHub``."""

    changes_links: ClassVar[bool] = True

    def __init__(self, hub: ThreadHub, rank: int) -> None:
        if not 0 <= rank < hub.size:
            raise InputError(f"rank = {rank} must be from 0 to {hub.size - 1}.")
        self._hub, self._rank, self._size, self.deadline_s = hub, rank, hub.size, hub.timeout_s

    def exchange(self, arrays: Arrays, links: Links) -> dict[int, Arrays]:
        self._hub.check()
        # A copy, because the sender may write to its arrays later.
        message = tuple(np.array(array) for array in arrays)
        for neighbour in links.send_to:
            self._hub.mailbox(self._rank, neighbour).put(message)
        self.sent.add(len(links.send_to), sum([array.nbytes for array in message]))
        deadline = time.monotonic() + self._hub.timeout_s
        return {neighbour: self._receive(neighbour, arrays, deadline) for neighbour in links.receive_from}

    def _receive(self, neighbour: int, expected: Arrays, deadline: float) -> Arrays:
        hub, rank = self._hub, self._rank
        mailbox = hub.mailbox(neighbour, rank)
        while True:
            try:
                message = mailbox.get(timeout=POLL_S)
                break
            except queue.Empty:
                hub.check()
            if time.monotonic() > deadline:
                raise DeadlineError(f"node {rank} waited {hub.timeout_s:g} s for node {neighbour}; it is slow or gone.")
        got, wanted = ([(array.shape, array.dtype) for array in arrays] for arrays in (message, expected))
        if got != wanted:
            fix = "all nodes must send the same shapes and dtypes"
            raise InputError(f"node {neighbour} sent {got}, but node {rank} expected {wanted}; {fix}.")
        return message

    def post(self, receiver: int, arrays: Arrays) -> None:
        self._hub.posted[receiver].put((self._rank, arrays))
        self.sent.add(1, sum([array.nbytes for array in arrays]))

    def collect(self, timeout_s: float) -> tuple[int, Arrays] | None:
        self._hub.check()
        try:
            return self._hub.posted[self._rank].get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            return None

    def abort(self, reason: str) -> None:
        self._hub.fail(self._rank, reason)

    def close(self) -> None:
        """There is nothing to release."""


def run_threads(size: int, work: Callable[[Transport], T], timeout_s: float = 60.0) -> list[T]:
    """Run ``work`` at every node, one thread per node; results by rank. If a node fails, its error is raised.

    Parameters
    ----------
    size : number of nodes.
    work : called at every node, with its transport.
    timeout_s : deadline of every wait.
    """
    hub = ThreadHub(size, timeout_s)

    def guarded(rank: int) -> T:
        with hub.transport(rank) as transport:
            return work(transport)

    # The nodes share the cores: BLAS threads of one node that wait for a core make all others wait too.
    share = max(1, (os.cpu_count() or 1) // size)
    with blas_threads(share), ThreadPoolExecutor(size, thread_name_prefix="node") as pool:
        futures = [pool.submit(guarded, rank) for rank in range(size)]
        try:
            errors = [error for error in (future.exception() for future in futures) if error is not None]
        except BaseException as error:
            # Ctrl-C interrupts only this thread, so stop the nodes.
            hub.fail(0, type(error).__name__)
            raise
    causes = [error for error in errors if not isinstance(error, AbortedError)]
    if errors:
        raise (causes or errors)[0]
    return [future.result() for future in futures]
