"""The one place where a fit is decided: ``Request``, ``prepare``, ``fit``; and the planner, with the same rules."""

from eigenmesh.fitting._column_data import PARTITIONS, ColumnData, node_data
from eigenmesh.fitting._data import Data, NodeData
from eigenmesh.fitting._facts import DataFacts, Size
from eigenmesh.fitting._fit import Fit, fit, fit_at_every_node
from eigenmesh.fitting._outputs import fit_numbers, model_of
from eigenmesh.fitting._plan import Forecast, Plan
from eigenmesh.fitting._planner import plan, planned, quick_forecast
from eigenmesh.fitting._prepare import Prepared, Workload, choose_method, prepare
from eigenmesh.fitting._topology import count_nodes, parse_weights
from eigenmesh.settings import Costs, Request

__all__ = [
    "PARTITIONS",
    "ColumnData",
    "Costs",
    "Data",
    "DataFacts",
    "Fit",
    "Forecast",
    "NodeData",
    "Plan",
    "Prepared",
    "Request",
    "Size",
    "Workload",
    "choose_method",
    "count_nodes",
    "fit",
    "fit_at_every_node",
    "fit_numbers",
    "model_of",
    "node_data",
    "parse_weights",
    "plan",
    "planned",
    "prepare",
    "quick_forecast",
]
