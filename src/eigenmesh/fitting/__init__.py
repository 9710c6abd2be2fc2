"""Where a fit is decided: ``Request``, ``prepare``, ``fit``, and the planner with the same rules."""

from eigenmesh.fitting.fit import (
    Fit,
    certified,
    fit,
    fit_at_every_node,
    fit_numbers,
    largest_loadings,
    model_of,
    to_certify,
)
from eigenmesh.fitting.matching import listed
from eigenmesh.fitting.monitor import Monitor
from eigenmesh.fitting.networks import network_over
from eigenmesh.fitting.node_data import (
    PARTITIONS,
    ColumnData,
    Data,
    DataFacts,
    Measurement,
    NodeData,
    Size,
    node_data,
    place_of,
)
from eigenmesh.fitting.planner import Forecast, Plan, plan, planned, quick_forecast
from eigenmesh.fitting.pooled import largest_sum, words_of_sum
from eigenmesh.fitting.prepare import (
    Prepared,
    Workload,
    choose_method,
    one_sum_reveals_no_more,
    prepare,
    require_goes_with,
)
from eigenmesh.fitting.problem import DEFAULT_NODES, Spread
from eigenmesh.fitting.stream import StreamData
from eigenmesh.fitting.total import fit_of_total
from eigenmesh.settings import Costs, Request

__all__ = [
    "Costs",
    "Data",
    "Fit",
    "Forecast",
    "NodeData",
    "Plan",
    "Prepared",
    "Request",
    "Spread",
    "fit",
    "node_data",
    "plan",
    "prepare",
]
