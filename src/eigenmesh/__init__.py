"""Exact PCA over data that stays where it is."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eigenmesh import averaging, data, errors, graphs, metrics, networks, solvers, theory, transports
    from eigenmesh.certificate import Certificate, GivenComponents
    from eigenmesh.estimator import DecentralizedPCA, SavedModel, StreamingPCA, certify, load_model
    from eigenmesh.events import Record
    from eigenmesh.experiments import Compared, compare
    from eigenmesh.fitting import Costs, Plan
    from eigenmesh.iteration import Result, StopReason, run
    from eigenmesh.networks import Traffic

__version__ = "0.1.0"

__all__ = [
    "Certificate",
    "Compared",
    "Costs",
    "DecentralizedPCA",
    "GivenComponents",
    "Plan",
    "Record",
    "Result",
    "SavedModel",
    "StopReason",
    "StreamingPCA",
    "Traffic",
    "averaging",
    "certify",
    "compare",
    "data",
    "errors",
    "graphs",
    "load_model",
    "metrics",
    "networks",
    "run",
    "solvers",
    "theory",
    "transports",
]

# Where each class and function is; the other names are packages and modules. All are imported when they are first asked
# for: `eigenmesh --help` needs none of them, and a process that is one node of many does without scikit-learn.
_HOMES = {
    "certificate": ["Certificate", "GivenComponents"],
    "estimator": ["DecentralizedPCA", "SavedModel", "StreamingPCA", "certify", "load_model"],
    "events": ["Record"],
    "experiments": ["Compared", "compare"],
    "fitting": ["Costs", "Plan"],
    "iteration": ["Result", "StopReason", "run"],
    "networks": ["Traffic"],
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = next((home for home, names in _HOMES.items() if name in names), None)
    module = import_module(f"{__name__}.{home or name}")
    # The next time it is found without coming here.
    globals()[name] = value = getattr(module, name) if home else module
    return value


def __dir__() -> list[str]:
    return __all__
