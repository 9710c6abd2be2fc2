"""One place where a fit is decided: a request, ``prepare``, ``fit``; and the planner, which decides the same."""

from eigenmesh.fitting._costs import Costs
from eigenmesh.fitting._data import Data, DataFacts, NodeData
from eigenmesh.fitting._every_node import fit_at_every_node
from eigenmesh.fitting._fit import Fit, fit
from eigenmesh.fitting._method import Workload, choose_method
from eigenmesh.fitting._model import fit_numbers, model_of
from eigenmesh.fitting._planner import Forecast, Plan, plan
from eigenmesh.fitting._prepare import Prepared, prepare
from eigenmesh.fitting._request import Request
from eigenmesh.fitting._topology import count_nodes, default_nodes, parse_weights

__all__ = [
    "Costs",
    "Data",
    "DataFacts",
    "Fit",
    "Forecast",
    "NodeData",
    "Plan",
    "Prepared",
    "Request",
    "Workload",
    "choose_method",
    "count_nodes",
    "default_nodes",
    "fit",
    "fit_at_every_node",
    "fit_numbers",
    "model_of",
    "parse_weights",
    "plan",
    "prepare",
]
