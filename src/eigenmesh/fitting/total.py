"""The components of samples of which only the total over all nodes is known, by somebody who has none of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from eigenmesh.arrays import ITEM_BYTES
from eigenmesh.averaging import Tree
from eigenmesh.data import Choice, CovarianceKind, Place, Pooled, column_label
from eigenmesh.data.cross_products import MOST_NOISE
from eigenmesh.errors import DataError
from eigenmesh.events import EventLog
from eigenmesh.fitting.fit import Fit, fit
from eigenmesh.fitting.node_data import DataFacts
from eigenmesh.fitting.pooled import known_covariance
from eigenmesh.fitting.prepare import Prepared
from eigenmesh.graphs import metropolis
from eigenmesh.graphs.topologies import complete
from eigenmesh.masking import Disclosure
from eigenmesh.networks import Stacked, Traffic
from eigenmesh.settings import Request
from eigenmesh.solvers import OneSum


@dataclass(frozen=True)
class NamedColumns:
    """Columns of which only the names are known, if any."""

    n_features: int
    names: tuple[str, ...] | None

    def column_label(self, column: int) -> str:
        return column_label(self.names, column)


def fit_of_total(
    total: Pooled,
    request: Request,
    node_names: Sequence[str],
    feature_names: Sequence[str] | None,
    traffic: Traffic,
    events: EventLog,
) -> Fit:
    """Components of all samples, and their certificate, from a total that nodes have masked. Nothing is sent.

    Parameters
    ----------
    total : Pooled
        N, mean and covariance of all samples, and how far they can be from the true ones.
    request : Request
        What is asked for.
    node_names, feature_names : sequence of str
        Names of all nodes, and of the columns if they have any.
    traffic : Traffic
        What was sent for the total.
    events : EventLog
        Receives the events of the fit.
    """
    d, alone = len(total.mean), Stacked(metropolis(complete(1)), Tree())
    columns = NamedColumns(d, None if feature_names is None else tuple(feature_names))
    if total.n_samples < request.min_samples:
        least = f"min_samples = {request.min_samples} asks for more"
        raise DataError(f"all nodes have {total.n_samples:,} samples together, and {least}; there is no result.")
    if not total.is_resolved(False, MOST_NOISE):
        sizes = f"{total.noise.sum():.2g}, and all samples have a variance of {total.variance.sum():.2g}"
        widest = columns.column_label(int(np.argmax(total.noise)))
        raise DataError(f"the ranges of columns leave an error of {sizes}; narrow that of {widest}.")
    moments = total.moments(columns, request.scale)
    covariance = known_covariance(total.scaled(moments.scale), total.error(moments.scale), Place())
    prepared = Prepared(
        # Nothing is random.
        replace(request, seed=0),
        DataFacts.of_rows(len(node_names), d, None, columns.names, tuple(node_names)),
        request.components(int(total.n_samples), d),
        OneSum(),
        Tree(),
        alone,
        moments,
        covariance,
        Choice(CovarianceKind.FORMED, ITEM_BYTES * d * d, "only its total is known"),
        0,
        traffic,
        alone.weights,
    )
    found = fit(prepared, events=events)
    disclosure = Disclosure(len(node_names), d, d, whole=True, signed=True)
    certificate = replace(found.result.certificate, disclosure=disclosure)
    return replace(found, result=replace(found.result, n_nodes=len(node_names), certificate=certificate))
