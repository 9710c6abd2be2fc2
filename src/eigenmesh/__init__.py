"""Exact PCA over data that stays where it is."""

from typing import TYPE_CHECKING, Any

from eigenmesh import averaging, data, errors, graphs, metrics, networks, solvers, theory
from eigenmesh.certificate._certify import Certificate
from eigenmesh.fitting._planner import Costs, Plan
from eigenmesh.iteration._result import Record, Result
from eigenmesh.iteration._run import run
from eigenmesh.iteration._stopping import StopReason
from eigenmesh.networks import Traffic

if TYPE_CHECKING:
    from eigenmesh.estimator import DecentralizedPCA, load_model

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
    "load_model",
    "metrics",
    "networks",
    "run",
    "solvers",
    "theory",
]


def __getattr__(name: str) -> Any:
    # scikit-learn takes most of the time of an import, and a node of many does without the estimator.
    if name in ("DecentralizedPCA", "load_model"):
        from eigenmesh import estimator

        return getattr(estimator, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
