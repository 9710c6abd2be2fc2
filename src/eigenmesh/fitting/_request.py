"""The request for a fit, as objects: names from users are parsed here."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias

import numpy as np

from eigenmesh._lookup import canonical_name, lookup
from eigenmesh.averaging import AVERAGINGS, Averaging, name_of
from eigenmesh.data import CovarianceKind, Missing, Scaling, missing_policy
from eigenmesh.errors import InputError
from eigenmesh.fitting._matching import described
from eigenmesh.iteration import DEFAULT_MAX_ROUNDS, DEFAULT_TOL
from eigenmesh.iteration._settings import require_components, require_settings
from eigenmesh.solvers import SOLVERS, Solver, solver_by_name

Privacy: TypeAlias = Literal["open", "masked"]
PRIVACY: dict[str, Privacy] = {"open": "open", "masked": "masked"}
# Estimate of K for a requested share of the variance, where a number is needed in advance.
USUAL_COMPONENTS = 10
# Settings that each node chooses for itself: where its arrays are, and how it computes products, which are the same.
OWN_SETTINGS = ("covariance", "device")
# Drawn seeds start here, so that a drawn seed that is passed in again is recognised.
DRAWN_FROM = 1 << 62


@dataclass(frozen=True)
class Costs:
    """Speed and size of nodes and links, for the planner; set what you know about your own network.

    Attributes
    ----------
    latency_s : float
        Seconds per round between neighbours, however small the message.
    bandwidth_bytes_s : float
        Bytes that a node can send per second.
    flops_s : float
        Floating-point operations per second of a node.
    memory_bytes : float
        Bytes that a node may use in addition to its data.
    """

    latency_s: float = 0.02
    bandwidth_bytes_s: float = 12.5e6
    flops_s: float = 2e10
    memory_bytes: float = 8e9

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name == "latency_s" and value == 0:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not value > 0:
                raise InputError(f"{name} = {value!r} must be a number above 0.")


@dataclass(frozen=True)
class Request:
    """Everything that decides a fit, apart from the data and the network.

    Attributes
    ----------
    n_components : int, float or None
        K; or, between 0 and 1, the share of the variance to explain; None for min(N - 1, d).
    at_most : bool
        True if a K above min(N - 1, d) is lowered to it instead of raising an error.
    solver, averaging : Solver, Averaging or None
        None lets the planner choose.
    tol : float
        Bound on sin(angle) between every component at every node and the true one.
    max_rounds : int
        Budget of neighbour exchanges.
    scale : bool or "binomial"
        Divide each feature by its pooled standard deviation; by sqrt(2 p (1 - p)) for allele counts, whose missing
        entries then count as the pooled mean.
    missing : "error" or "mean"
        Raise on NaN and infinite entries, or replace them by the pooled mean.
    covariance : CovarianceKind or None
        How products with a node's covariance are computed; None to choose.
    device : str or None
        Device of the arrays: "cpu", "cuda", "cuda:1" for PyTorch; None for that of the samples.
    seed : int or None
        Seed of the start; None for one that all nodes draw together, so that the data cannot depend on it. A drawn seed
        is ``DRAWN_FROM`` or more.
    costs : Costs
        Cost model of the planner.
    privacy : "open" or "masked"
        Whether neighbours see what a node adds to an average, or only sums over all nodes are revealed.
    min_samples : int
        With fewer samples over all nodes the fit ends after counting, before anything else is sent.
    """

    n_components: int | float | None = None
    at_most: bool = False
    solver: Solver | None = None
    averaging: Averaging | None = None
    tol: float = DEFAULT_TOL
    max_rounds: int = DEFAULT_MAX_ROUNDS
    scale: Scaling = False
    missing: Missing = "error"
    covariance: CovarianceKind | None = None
    device: str | None = None
    seed: int | None = None
    costs: Costs = field(default_factory=Costs)
    privacy: Privacy = "open"
    min_samples: int = 0

    def __post_init__(self) -> None:
        require_settings(self.tol, self.max_rounds)
        object.__setattr__(self, "privacy", lookup("privacy", self.privacy, PRIVACY))
        object.__setattr__(self, "missing", "mean" if self.scale == "binomial" else missing_policy(self.missing))

    @classmethod
    def parse(
        cls,
        *,
        solver: str | Solver = "auto",
        averaging: str | Averaging = "auto",
        covariance: str = "auto",
        random_state: Any = None,
        costs: Costs | None = None,
        **settings: Any,
    ) -> Request:
        """Parse the names that users write; ``settings`` are fields of a request."""
        return cls(
            solver=parse_solver(solver),
            averaging=parse_averaging(averaging),
            covariance=parse_covariance(covariance),
            seed=parse_seed(random_state),
            costs=costs or Costs(),
            **settings,
        )

    @property
    def common(self) -> dict[str, Any]:
        """The settings that must be the same at all nodes, as JSON values: all but ``OWN_SETTINGS``."""
        common = {one.name: described(getattr(self, one.name)) for one in fields(self) if one.name not in OWN_SETTINGS}
        names = {"solver": self.solver and self.solver.name, "averaging": self.averaging and name_of(self.averaging)}
        return common | {name: {**(common[name] or {}), "name": given or "auto"} for name, given in names.items()}

    @property
    def layout_seed(self) -> int:
        """Seed of split and graph: the same for every drawn start, whether drawn now or in the run that is repeated."""
        return 0 if self.seed is None or self.seed >= DRAWN_FROM else self.seed

    @property
    def masked(self) -> bool:
        return self.privacy == "masked"

    def components(self, n_samples: int | None, n_features: int | None) -> int | float:
        """K, or the share of the variance, for N samples of d features; None for what is not known yet."""
        n_samples, n_features = n_samples or sys.maxsize, n_features or sys.maxsize
        wanted, most = self.n_components, min(n_samples - 1, n_features)
        if wanted is None:
            return most
        if isinstance(wanted, float | np.floating):
            if not 0 < wanted < 1:
                raise InputError(f"n_components = {wanted!r} must be whole, or a share strictly between 0 and 1.")
            return float(wanted)
        if self.at_most and isinstance(wanted, int):
            wanted = max(1, min(wanted, most))
        require_components(wanted, n_features, n_samples)
        return int(wanted)


def expected_components(wanted: int | float, n_features: int) -> int:
    """K, or an estimate of it if a share of the variance was requested."""
    return wanted if isinstance(wanted, int) else min(USUAL_COMPONENTS, n_features)


def parse_solver(solver: str | Solver) -> Solver | None:
    if isinstance(solver, Solver):
        return solver
    name = canonical_name("solver", solver, ["auto", *SOLVERS], also="a Solver object")
    return None if name == "auto" else solver_by_name(name)


def parse_averaging(averaging: str | Averaging) -> Averaging | None:
    if isinstance(averaging, Averaging) and not isinstance(averaging, type):
        return averaging
    return lookup("averaging", averaging, {"auto": lambda: None, **AVERAGINGS}, also="an Averaging object")()


def parse_covariance(name: str) -> CovarianceKind | None:
    return lookup("covariance", name, {"auto": None, **{kind.value: kind for kind in CovarianceKind}})


def parse_seed(random_state: Any) -> int | None:
    """The seed that all nodes share; None if they draw one together at run time."""
    if random_state is None:
        return None
    if isinstance(random_state, int | np.integer):
        if random_state < 0:
            raise InputError(f"random_state = {random_state} must be at least 0.")
        return int(random_state)
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    raise InputError(f"random_state = {random_state!r} must be None, a whole number or a NumPy random generator.")
