"""A fit with all nodes in this process, each at its own end of a transport: real messages, nothing to launch."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from eigenmesh.events import EventLog
from eigenmesh.fitting._data import NodeData
from eigenmesh.fitting._fit import Fit, fit
from eigenmesh.fitting._prepare import prepare
from eigenmesh.fitting._request import Request
from eigenmesh.transports import Transport


def fit_at_every_node(
    run_nodes: Callable[..., list[Fit]], request: Request, data: NodeData, events: EventLog | None = None
) -> Fit:
    """Fit samples of all nodes.

    Parameters
    ----------
    run_nodes : callable
        As in the table of transports: starts all nodes.
    events : EventLog or None
        Told by node 0 alone.
    """

    def node(transport: Transport) -> Fit:
        own = NodeData(data.shards.take([transport.rank]), data.weights, transport)
        return fit(prepare(request, own), events=events if transport.rank == 0 else None)

    fits = run_nodes(data.shards.n_nodes, node)
    everyone = np.concatenate([each.result.node_components for each in fits])
    return replace(fits[0], result=replace(fits[0].result, node_components=everyone))
