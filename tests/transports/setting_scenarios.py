"""Ranks that were given different settings: one after another in one launch, each with the culprit's own value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import networkx as nx
import numpy as np

from eigenmesh import StreamingPCA, graphs
from eigenmesh.averaging import Integers, Tree
from eigenmesh.data import CovarianceKind, FeatureShards, Shards
from eigenmesh.errors import EigenmeshError
from eigenmesh.fitting import Costs, Request, fit, node_data, prepare
from eigenmesh.fitting.matching import require_same_settings
from eigenmesh.settings import OF_REQUESTS, SETTINGS
from eigenmesh.solvers import BlockKrylov, FastPCA
from eigenmesh.transports import Transport
from settings_values import another, shown
from transports.failures import CULPRIT

SIZE, N, D, K = 3, 30, 6, 2
USUAL = Request(n_components=K, seed=0, solver=BlockKrylov(), averaging=Tree())
# Field of a request -> the culprit's value, and what the refusal says of it.
REQUEST: dict[str, tuple[Any, str]] = {
    "n_components": (K + 1, "n_components: 3 at node 1, 2 at nodes 0, 2"),
    "at_most": (True, "at_most: true at node 1, false at nodes 0, 2"),
    "solver": (BlockKrylov(oversample=7), "solver.oversample: 7 at node 1, 5 at nodes 0, 2"),
    "averaging": (Integers(), 'averaging.name: "integers" at node 1, "tree" at nodes 0, 2'),
    "tol": (1e-3, "tol: 0.001 at node 1, 1e-06 at nodes 0, 2"),
    "max_rounds": (7, "max_rounds: 7 at node 1, 5000 at nodes 0, 2"),
    "scale": (True, "scale: true at node 1, false at nodes 0, 2"),
    "missing": ("mean", 'missing: "mean" at node 1, "error" at nodes 0, 2'),
    "seed": (None, "seed: none at node 1, 0 at nodes 0, 2"),
    "costs": (Costs(memory_bytes=float("inf")), 'costs.memory_bytes: "inf" at node 1, 8000000000.0 at nodes 0, 2'),
    "privacy": ("masked", 'privacy: "masked" at node 1, "open" at nodes 0, 2'),
    "min_samples": (5, "min_samples: 5 at node 1, 0 at nodes 0, 2"),
}
# What a node chooses for itself; all nodes then have the right components.
OWN: dict[str, Any] = {"covariance": CovarianceKind.CHUNKED, "device": None}
for other in OF_REQUESTS - {*REQUEST, *OWN, "random_state"}:
    if SETTINGS[other].agree:
        words = f"{other}: {shown(another(other))} at node 1, {shown(SETTINGS[other].default)} at nodes 0, 2"
        REQUEST[other] = another(other), words
    else:
        OWN[other] = another(other)
# Parameter of an estimator of a stream -> the culprit's value, and what the refusal says of it.
STREAM: dict[str, tuple[Any, str]] = {
    "forgetting": (0.5, "stream.forgetting: 0.5 at node 1, 1.0 at nodes 0, 2"),
    "window": (1, "stream.window: 1 at node 1, none at nodes 0, 2"),
    "averages_per_batch": (2, "stream.averages_per_batch: 2 at node 1, none at nodes 0, 2"),
    "random_state": (1, "stream.random_state: 1 at node 1, 0 at nodes 0, 2"),
    "topology": ("path", "topology.links: 2 at node 1, 3 at nodes 0, 2"),
    "scale": (True, "scale: true at node 1, false at nodes 0, 2"),
}
# Everything else that must be the same.
DATA = {
    "columns": "n_features: 5 at node 1, 6 at nodes 0, 2",
    "names": 'feature_names: column 1 is "C" at node 1, "B" at nodes 0, 2',
    "nodes": 'node_names: entry 0 is "north" at node 1, "oslo" at nodes 0, 2',
    "links": "topology.links: 2 at node 1, 3 at nodes 0, 2",
    "weights": "topology.weights: ",
    "changing": "topology.loss: 0.5 at node 1, 0.0 at nodes 0, 2",
    "split": 'split: "random" at node 1, "contiguous" at nodes 0, 2',
    "partition": 'partition: "features" at node 1, "samples" at nodes 0, 2',
    "samples": "n_samples: 29 at node 1, 30 at nodes 0, 2",
    "version": 'eigenmesh: "0.0.9" at node 1, ',
    "batch": 'stream.batch: "b" at node 1, "a" at nodes 0, 2',
}


def rows_of(rank: int) -> np.ndarray:
    return np.random.default_rng(rank).standard_normal((N, D)) * np.geomspace(5, 0.5, D) + rank


def said_by(attempt: Callable[[], Any]) -> str:
    """What a node is told; empty if it got a result."""
    try:
        attempt()
    except EigenmeshError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def shards_of(transport: Transport, rows: np.ndarray, kind: type[Shards] = Shards) -> Shards:
    return kind.from_list([rows], ids=[transport.rank], n_nodes=transport.size)


def fitted(transport: Transport, request: Request = USUAL, **data: Any) -> Any:
    given = {"shards": shards_of(transport, rows_of(transport.rank)), "split": None, **data}
    weights = given.pop("weights", None) or graphs.metropolis(nx.complete_graph(transport.size))
    return fit(prepare(request, node_data(given["shards"], weights, transport, given["split"])))


def request_settings(transport: Transport) -> dict[str, object]:
    told: dict[str, object] = {}
    for name, (value, _) in REQUEST.items():
        request = replace(USUAL, **{name: value}) if transport.rank == CULPRIT else USUAL
        told[name] = said_by(lambda request=request: fitted(transport, request))
    return told


def own_settings(transport: Transport) -> dict[str, object]:
    found = fitted(transport, replace(USUAL, **OWN) if transport.rank == CULPRIT else USUAL)
    return {"components": found.components, "bound": found.result.certificate.error_bound}


def set_on(transport: str) -> list[str]:
    """The settings of a stream that a transport takes: tensors of PyTorch are kept as moments only."""
    return [name for name in STREAM if transport != "TorchTransport" or name != "window"]


def stream_settings(transport: Transport) -> dict[str, object]:
    told: dict[str, object] = {}
    for name in set_on(type(transport).__name__):
        value = STREAM[name][0]
        settings = {"n_components": K, "random_state": 0, "topology": "complete", "transport": transport}
        settings |= {name: value} if transport.rank == CULPRIT else {}
        told[name] = said_by(lambda settings=settings: StreamingPCA(**settings).partial_fit(rows_of(transport.rank)))
    return told


def data_settings(transport: Transport) -> dict[str, object]:
    culprit, rows, size = transport.rank == CULPRIT, rows_of(transport.rank), transport.size
    own = shards_of(transport, rows)
    names = replace(own, feature_names=tuple("ACBDEF" if culprit else "ABCDEF"))
    places = replace(own, node_names=("north", "b", "c") if culprit else ("oslo", "b", "c"))
    path, complete = nx.path_graph(size), nx.complete_graph(size)
    lazy = graphs.Weights(graphs.half_way(graphs.metropolis(complete).matrix), complete)
    changing = replace(graphs.changing.over_time(complete), loss=0.5 if culprit else 0.0)
    by_columns = shards_of(transport, rows, FeatureShards)
    shorter = shards_of(transport, rows[1:] if culprit else rows, FeatureShards)
    pca = StreamingPCA(K, topology="complete", transport=transport)
    attempts: dict[str, Callable[[], Any]] = {
        "columns": lambda: fitted(transport, shards=shards_of(transport, rows[:, 1:] if culprit else rows)),
        "names": lambda: fitted(transport, shards=names),
        "nodes": lambda: fitted(transport, shards=places),
        "links": lambda: fitted(transport, weights=graphs.metropolis(path if culprit else complete)),
        "weights": lambda: fitted(transport, weights=lazy if culprit else None),
        "split": lambda: fitted(transport, split="random" if culprit else "contiguous"),
        "partition": lambda: fitted(transport, shards=by_columns if culprit else own),
        "samples": lambda: fitted(transport, shards=shorter),
        "version": lambda: require_same_settings(transport, {"eigenmesh": "0.0.9"} if culprit else {}),
        "batch": lambda: pca.partial_fit(rows, batch="b" if culprit else "a"),
    }
    if transport.changes_links:
        request = replace(USUAL, averaging=None, solver=FastPCA())
        attempts["changing"] = lambda: fitted(transport, request, weights=changing)
    return {name: said_by(attempt) for name, attempt in attempts.items()}


def nameless(transport: Transport) -> dict[str, object]:
    """A node without names of features takes those of the others, as in one process."""
    own = shards_of(transport, rows_of(transport.rank))
    named = own if transport.rank == CULPRIT else replace(own, feature_names=tuple("ABCDEF"))
    return {"bound": fitted(transport, shards=named).result.certificate.error_bound}


def fails_before(transport: Transport) -> dict[str, object]:
    """The culprit ends before it compares anything."""
    if transport.rank == CULPRIT:
        raise ValueError("no such data here")
    fitted(transport)
    return {}


FIELDS = {field.name for field in fields(Request)}
SCENARIOS = {
    "request": request_settings,
    "own": own_settings,
    "stream": stream_settings,
    "data": data_settings,
    "nameless": nameless,
    "fails-before": fails_before,
}
