"""Streams at nodes that are processes or threads: batches, and nodes that are not at the same one."""

from __future__ import annotations

import numpy as np

from eigenmesh import StreamingPCA
from eigenmesh.errors import InputError
from eigenmesh.transports import Transport

K, D, N_BATCHES = 3, 12, 4


def rows_of(rank: int, batch: int) -> np.ndarray:
    """The new rows of one node; the last node has none in every second batch."""
    rng = np.random.default_rng([rank, batch])
    return rng.standard_normal((0 if rank == 2 and batch % 2 else 40 + rank, D)) * np.geomspace(5, 0.5, D) + 7


def batches(transport: Transport) -> dict[str, object]:
    """Every batch goes in; the answer of the last one."""
    pca = StreamingPCA(K, transport=transport, topology="cycle", tol=1e-9)
    for batch in range(N_BATCHES):
        pca.partial_fit(rows_of(transport.rank, batch), batch=batch)
    return {
        "components": pca.components_,
        "bound": pca.certificate_.error_bound,
        "mean": pca.mean_,
        "samples": pca.n_samples_,
        "seen": pca.n_samples_seen_,
    }


def clocks(transport: Transport) -> dict[str, object]:
    """Node 1 has counted a batch that the others have not, and calls the next one by another name."""
    told = {}
    for name, batch in (("id", "b" if transport.rank == 1 else "a"), ("tick", None)):
        pca = StreamingPCA(K, transport=transport, topology="cycle").partial_fit(rows_of(transport.rank, 0))
        if name == "tick" and transport.rank == 1:
            pca._stream = type(pca._stream)(**{**vars(pca._stream), "n_batches": 2})
        try:
            pca.partial_fit(rows_of(transport.rank, 1), batch=batch)
        except InputError as error:
            told[name] = str(error)
        told[f"{name}-seen"] = pca.n_samples_seen_
    return told


SCENARIOS = {"batches": batches, "clocks": clocks}
