"""Exact PCA over data that stays where it is."""

from eigenmesh import averaging, data, errors, graphs, metrics, networks, solvers, theory
from eigenmesh.certificate import Certificate
from eigenmesh.estimator import DecentralizedPCA
from eigenmesh.networks import Traffic
from eigenmesh.planner import Costs, Plan
from eigenmesh.result import Record, Result
from eigenmesh.run import run
from eigenmesh.stopping import StopReason

__version__ = "0.1.0"

__all__ = [
    "Certificate",
    "Costs",
    "DecentralizedPCA",
    "Plan",
    "Record",
    "Result",
    "StopReason",
    "Traffic",
    "averaging",
    "data",
    "errors",
    "graphs",
    "metrics",
    "networks",
    "run",
    "solvers",
    "theory",
]
