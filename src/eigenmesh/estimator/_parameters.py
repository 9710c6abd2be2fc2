"""Constraints on the parameters of an estimator, declared as in scikit-learn, with our own errors."""

import os
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral, Real
from typing import Any, get_args

import networkx as nx
import numpy as np
from scipy import sparse
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions, make_constraint

from eigenmesh._lookup import find_name
from eigenmesh.arrays import namespace_for
from eigenmesh.averaging import AVERAGINGS, Averaging
from eigenmesh.data import SPLITS, CovarianceKind, Missing, Split, split_by_name
from eigenmesh.errors import InputError, UnknownNameError
from eigenmesh.fitting import PARTITIONS, Costs, Request
from eigenmesh.fitting._request import PRIVACY
from eigenmesh.fitting._topology import is_edge_list
from eigenmesh.graphs import TOPOLOGIES, WEIGHTS, NetworkSequence, Weights
from eigenmesh.solvers import SOLVERS, Solver
from eigenmesh.transports import TRANSPORTS, Transport

# Longest value in a message, so that no large array is printed.
SHOWN_CHARACTERS = 60


class Names(StrOptions):  # type: ignore[misc]
    """Names of one kind. The error for an unknown name lists all names and suggests the nearest."""

    def __init__(self, kind: str, names: Iterable[str], takes_argument: bool = False) -> None:
        super().__init__(set(names))
        self.kind, self.takes_argument = kind, takes_argument

    def is_satisfied_by(self, value: Any) -> bool:
        """True for one of the names, in any spelling; an argument may follow after a colon."""
        if not isinstance(value, str):
            return False
        return find_name(value.partition(":")[0] if self.takes_argument else value, self.options) is not None

    def __str__(self) -> str:
        return f"a name: {', '.join(sorted(self.options))}"


class Objects(HasMethods):  # type: ignore[misc]
    """Instances that pass a test, with a description; classes never do."""

    def __init__(self, words: str, accepts: Callable[[Any], bool]) -> None:
        super().__init__("__init__")
        self.words, self.accepts = words, accepts

    def is_satisfied_by(self, value: Any) -> bool:
        return not isinstance(value, type) and self.accepts(value)

    def __str__(self) -> str:
        return self.words


def instances(words: str, *kinds: type) -> Objects:
    return Objects(words, lambda value: isinstance(value, kinds))


def _is_matrix(value: Any) -> bool:
    if sparse.issparse(value):
        return True
    try:
        return np.asarray(value, dtype=float).ndim == 2
    except (TypeError, ValueError):
        return False


NO_MLE = "n_components = 'mle' is not supported: it needs all eigenvalues. Use a whole number, a share as 0.9 or None."
COUNT = Interval(Integral, 1, None, closed="left")
GRAPHS = instances("a networkx graph, Weights, a NetworkSequence", nx.Graph, Weights, NetworkSequence)
LINKS = Objects("a list of pairs of nodes", is_edge_list)
GENERATORS = instances("a NumPy random generator", np.random.RandomState, np.random.Generator)
STARTED = [name for name, kind in TRANSPORTS.items() if kind.starts_by_name]
CONSTRAINTS: dict[str, list[Any]] = {
    "n_components": [COUNT, Interval(Real, 0, 1, closed="neither"), None],
    "solver": [Names("solver", ["auto", *SOLVERS]), instances("a Solver object", Solver)],
    "topology": [Names("topology", TOPOLOGIES), GRAPHS, LINKS, Objects("an (M, M) matrix", _is_matrix)],
    "n_nodes": [COUNT, None],
    "weights": [Names("weights", ["auto", *WEIGHTS])],
    "averaging": [Names("averaging", ["auto", *AVERAGINGS]), instances("an Averaging object", Averaging)],
    "privacy": [Names("privacy", PRIVACY)],
    "split": [Names("split", SPLITS, takes_argument=True), instances("a Split object", Split)],
    "tol": [Interval(Real, 0, 1, closed="neither")],
    "max_rounds": [COUNT],
    "scale": ["boolean", Names("scale", ["binomial"])],
    "whiten": ["boolean"],
    "missing": [Names("policy for missing entries", get_args(Missing))],
    "covariance": [Names("covariance", ["auto", *(kind.value for kind in CovarianceKind)])],
    "device": [instances("the name of a device", str), None],
    "transport": [Names("transport", STARTED), instances("a Transport object", Transport), None],
    "random_state": [Interval(Integral, 0, None, closed="left"), GENERATORS, None],
    "costs": [instances("a Costs object", Costs), None],
    "on_event": [callable, None],
    "verbose": ["boolean"],
}
# The parameters of DecentralizedPCA alone, of StreamingPCA alone, and all of each.
OF_ONE_FIT = {**CONSTRAINTS, "partition": [Names("partition", PARTITIONS)]}
OF_A_STREAM: dict[str, list[Any]] = {
    **CONSTRAINTS,
    "forgetting": [Interval(Real, 0, 1, closed="right")],
    "window": [COUNT, None],
    "store": [instances("the path of a folder", str, os.PathLike), None],
    "averages_per_batch": [Interval(Integral, 2, None, closed="left"), None],
    "on_alarm": [callable, None],
}


def require_parameters(pca: Any) -> None:
    """Raise InputError for the first invalid parameter of an estimator, without looking at data."""
    if isinstance(pca.n_components, str) and pca.n_components == "mle":
        raise InputError(NO_MLE)
    # A subclass may have parameters of its own, which it checks itself.
    for name, allowed in pca._parameter_constraints.items():
        require(name, getattr(pca, name), allowed)
    split_by_name(pca.split)
    namespace_for(pca.device)


def require(name: str, value: Any, allowed: Sequence[Any]) -> None:
    """Raise InputError unless one of the constraints accepts the value."""
    # In Python True is the number 1, which no user means.
    if isinstance(value, bool | np.bool_):
        accepted = "boolean" in allowed
    else:
        accepted = any(make_constraint(option).is_satisfied_by(value) for option in allowed)
    if not accepted:
        raise _refusal(name, value, allowed)


def request_of(pca: Any) -> Request:
    """The parameters of an estimator as a request, after validation."""
    require_parameters(pca)
    names = ("n_components", "solver", "averaging", "tol", "max_rounds", "missing", "covariance")
    settings = {name: getattr(pca, name) for name in (*names, "device", "random_state", "costs", "privacy")}
    scale: Any = "binomial" if isinstance(pca.scale, str) else bool(pca.scale)
    return Request.parse(scale=scale, **settings)


def _refusal(name: str, value: Any, allowed: Sequence[Any]) -> InputError:
    named = next((option for option in allowed if isinstance(option, Names)), None)
    if isinstance(value, str) and named is not None:
        return UnknownNameError(named.kind, value, named.options)
    if isinstance(value, type) and any(isinstance(option, Objects) for option in allowed):
        return InputError(f"{name} = {value.__name__} is a class; give an object of it, such as {value.__name__}().")
    words = []
    # The list of names is the longest option, so it comes last.
    for option in sorted(allowed, key=lambda option: option is named):
        words += ["True", "False"] if option == "boolean" else [str(make_constraint(option))]
    either = " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
    shown = " ".join(repr(value).split())
    shown = shown if len(shown) <= SHOWN_CHARACTERS else f"{shown[:SHOWN_CHARACTERS]}..."
    return InputError(f"{name} = {shown} must be {either}.")
