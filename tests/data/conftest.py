"""Stand-ins for the network, exact but for an error that may be asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest


class ExactNetwork:
    """All M nodes in one array; every node's average may be off by its own relative error."""

    def __init__(self, n_nodes: int, error: float = 0.0) -> None:
        self.n_nodes = n_nodes
        self.error = error
        self.calls = 0

    def common_mean(self, array: np.ndarray) -> np.ndarray:
        self.calls += 1
        noise = self.error * np.random.default_rng(self.calls).uniform(-1, 1, array.shape)
        largest = np.abs(array).max(axis=0)
        return (array.mean(axis=0) + noise * largest)[:1]

    def common_mean_and_maximum(self, array: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.common_mean(array), values.max(axis=0, keepdims=True)

    def same_bits(self, common: np.ndarray) -> np.ndarray:
        return common


class PeerNetwork:
    """One node a thread: each gives its slice, waits for all, and takes the average."""

    def __init__(self, n_nodes: int) -> None:
        self.n_nodes = n_nodes
        self.barrier = threading.Barrier(n_nodes, timeout=300)
        self.slices: dict[int, np.ndarray] = {}

    def at(self, node: int) -> PeerNetwork:
        view = object.__new__(PeerNetwork)
        view.__dict__ = {**self.__dict__, "node": node}
        return view

    def common_mean(self, array: np.ndarray) -> np.ndarray:
        return self.gathered(array).mean(axis=0)

    def common_mean_and_maximum(self, array: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.common_mean(array), self.gathered(values).max(axis=0)

    def same_bits(self, common: np.ndarray) -> np.ndarray:
        return common

    def gathered(self, array: np.ndarray) -> np.ndarray:
        self.slices[self.node] = array
        self.barrier.wait()
        everything = np.stack([self.slices[node] for node in range(self.n_nodes)])
        self.barrier.wait()
        return everything


@pytest.fixture(scope="session")
def exact_network() -> Callable[..., ExactNetwork]:
    return ExactNetwork


@pytest.fixture(scope="session")
def peer_network() -> Callable[..., PeerNetwork]:
    return PeerNetwork
