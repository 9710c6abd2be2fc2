"""A fit with every node in a thread of its own: real messages inside one process."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from eigenmesh.data import Shards
from eigenmesh.fitting._data import NodeData
from eigenmesh.fitting._fit import Fit, fit
from eigenmesh.fitting._prepare import prepare
from eigenmesh.fitting._request import Request
from eigenmesh.graphs import Weights
from eigenmesh.iteration import Callback
from eigenmesh.transports import Transport, run_threads


def fit_in_threads(request: Request, shards: Shards, weights: Weights, callback: Callback | None = None) -> Fit:
    """Fit shards of all nodes; the callback is called by node 0 alone."""

    def node(transport: Transport) -> Fit:
        own = NodeData(shards.take([transport.rank]), weights, transport)
        return fit(prepare(request, own), callback=callback if transport.rank == 0 else None)

    fits = run_threads(shards.n_nodes, node)
    everyone = np.concatenate([each.result.node_components for each in fits])
    return replace(fits[0], result=replace(fits[0].result, node_components=everyone))
