"""The variance that the components of a run leave out."""

from math import fsum

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.certificate import Certified
from eigenmesh.data import Covariance
from eigenmesh.networks import Network

# If less than this share of the total variance is left, ``total - explained`` is mostly rounding.
SHARE_LOST = 1e-6


def variance_left(covariance: Covariance, network: Network, certified: Certified, total: float) -> float:
    """``tr C - sum_k l_k``: the trace of C beyond the components, (1, d, K) in ``certified.common``.

    ``total`` is tr C. Where the difference would cancel, the trace of the rest is averaged over the nodes instead.
    """
    agreed, (d, k) = certified.total_variance, certified.common.shape[-2:]
    if k == d:
        return 0.0
    explained = fsum(certified.certificate.values)
    if np.isnan(agreed) or agreed - explained > SHARE_LOST * agreed:
        return float(np.maximum(total - explained, 0.0))
    U = np.linalg.qr(ea.to_numpy(certified.common)[0])[0]
    traces = covariance.place(covariance.traces_beyond(U)[:, np.newaxis])
    bound = None if network.scales is None else network.n_nodes * network.scales.size
    return float(ea.to_numpy(network.common_mean(traces, bound))[0, 0])
