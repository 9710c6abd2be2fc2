"""One result for all nodes, whose own results may differ in the last bits because their processors do."""

from dataclasses import replace

import numpy as np

from eigenmesh.errors import TransportError
from eigenmesh.events import EventLog
from eigenmesh.iteration import Result
from eigenmesh.networks import Network

# Components of two nodes may differ by rounding, even if the certificate's bound is smaller.
SHARED_ROUNDING = 1e-7
# Rows that are sent with each component: its variance, its bound and the variance that is left.
SHARED_ROWS = 3


def of_one_node(network: Network, result: Result, events: EventLog) -> Result:
    """The result with components, variances and bounds replaced by those of one node, at all nodes."""
    before, certificate, k = network.traffic.copy(), result.certificate, len(result.components)
    left = np.full(k, result.variance_left)
    own = np.vstack([result.components.T, result.explained_variance, certificate.error_bounds, left])
    common = network.from_root(np.broadcast_to(own, (len(network.ids), *own.shape)))[0]
    components = np.ascontiguousarray(common[:-SHARED_ROWS].T)
    variances, bounds, left = common[-SHARED_ROWS:]
    # Both are within the bound of the true components, up to rounding.
    shift = np.abs(variances - result.explained_variance).max() / result.explained_variance.max()
    distance = max(np.abs(components - result.components).max(), shift)
    limit = 4 * certificate.error_bound + SHARED_ROUNDING
    if not distance <= limit:
        differs = f"the common result differs by {distance:.1e} from this node's, more than {limit:.1e}"
        raise TransportError(f"{differs}: one of the nodes has computed a wrong result.")
    spent = network.traffic - before
    total = result.traffic + spent
    record = result.history[-1]._replace(**vars(total))
    events.emit(record)
    return replace(
        result,
        components=components,
        node_components=np.broadcast_to(components, result.node_components.shape),
        explained_variance=variances,
        variance_left=float(left[0]),
        certificate=replace(certificate, error_bounds=bounds),
        traffic=total,
        traffic_by_phase={**result.traffic_by_phase, "result": spent},
        history=(*result.history[:-1], record),
    )
