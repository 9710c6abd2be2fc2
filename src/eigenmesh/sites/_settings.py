"""Settings that all sites of a run must have in common."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, cast, get_args

from eigenmesh.averaging import Integers
from eigenmesh.certificate._complement import COLUMNS as PROBE_COLUMNS
from eigenmesh.data import Scaling
from eigenmesh.errors import EigenmeshError, InputError, UnknownNameError
from eigenmesh.fitting import Request
from eigenmesh.fitting._prepare import require_goes_with
from eigenmesh.fitting._request import PRIVACY, Privacy
from eigenmesh.iteration import DEFAULT_MAX_ROUNDS, DEFAULT_TOL
from eigenmesh.masking import MIN_SITES
from eigenmesh.sites._toml_fields import Fields
from eigenmesh.solvers import SOLVERS, Solver

Missing = Literal["error", "mean"]
OnLoss = Literal["wait", "abort", "continue"]
Partition = Literal["samples", "features"]
# TLS writes at most a C int of bytes at once; this leaves room for the header of a frame. A sender refuses a larger
# message, with its size.
MAX_MESSAGE_BYTES = (1 << 31) - (1 << 20)


@dataclass(frozen=True)
class RunSettings:
    """Settings of a run; the same at every site.

    Attributes
    ----------
    n_components : K, or the share of the variance to explain.
    partition : how data are split between sites: by "samples" of the same features, or by "features" of the same
        samples.
    solver_parameters : parameters that differ from the solver's defaults.
    seed : seed of the random start. None: all sites draw it together, so that no site can prepare data that the start
        misses.
    patience_s : how long to wait for a silent neighbour; join_s : for a neighbour that has not started yet;
        round_s : for a neighbour that is alive but sends no numbers.
    on_loss : what happens to the run after that time.
    privacy : "masked": everybody sees only sums over all sites; "open": neighbours see the numbers that they add up;
        None: "masked", if there are enough sites.
    min_samples, min_samples_per_site : with fewer samples, in total or at one site, the run ends before any other
        number is sent.
    every_s, batch_rows : in a followed run, a site with new samples begins the next batch after ``every_s``, or as soon
        as it has ``batch_rows`` of them; 0 for time alone. Both may differ between sites.
    min_new_samples : with masks, a batch counts only if at least three sites have this many new samples each.
    """

    n_components: int | float = 5
    partition: Partition = "samples"
    solver: str = "block-krylov"
    solver_parameters: Mapping[str, Any] = field(default_factory=dict)
    tol: float = DEFAULT_TOL
    max_rounds: int = DEFAULT_MAX_ROUNDS
    scale: Scaling = False
    missing: Missing = "error"
    seed: int | None = None
    patience_s: float = 300.0
    join_s: float = 3600.0
    round_s: float = 3600.0
    on_loss: OnLoss = "wait"
    privacy: Privacy | None = None
    every_s: float = 60.0
    batch_rows: int = 0
    min_new_samples: int = 10
    min_samples: int = 0
    min_samples_per_site: int = 0

    @classmethod
    def from_fields(cls, fields: Fields) -> RunSettings:
        """Read and check the table ``[settings]``."""
        fields.require_known([known.name for known in dataclasses.fields(cls)])
        solver = fields.text("solver", cls.solver, tuple(SOLVERS))
        settings = cls(
            n_components=_components(fields),
            partition=cast(Partition, fields.text("partition", cls.partition, get_args(Partition))),
            solver=solver,
            solver_parameters=_parameters(fields.table("solver_parameters"), solver),
            tol=fields.number("tol", 0, 1, cls.tol),
            max_rounds=fields.whole("max_rounds", 1, cls.max_rounds),
            scale=_scaling(fields),
            missing=cast(Missing, fields.text("missing", cls.missing, get_args(Missing))),
            seed=fields.whole("seed", 0, most=2**63 - 1) if "seed" in fields else None,
            patience_s=fields.number("patience_s", 0, 1e9, cls.patience_s),
            join_s=fields.number("join_s", 0, 1e9, cls.join_s),
            round_s=fields.number("round_s", 0, 1e9, cls.round_s),
            on_loss=cast(OnLoss, fields.text("on_loss", cls.on_loss, get_args(OnLoss))),
            privacy=cast(Privacy, fields.text("privacy", None, tuple(PRIVACY))) if "privacy" in fields else None,
            min_samples=fields.whole("min_samples", 0, cls.min_samples),
            min_samples_per_site=fields.whole("min_samples_per_site", 0, cls.min_samples_per_site),
            every_s=fields.number("every_s", 0, 1e9, cls.every_s),
            batch_rows=fields.whole("batch_rows", 0, cls.batch_rows),
            min_new_samples=fields.whole("min_new_samples", 1, cls.min_new_samples),
        )
        try:
            settings.request()
        except (EigenmeshError, TypeError) as error:
            raise fields.error("solver_parameters", f"do not fit {solver}: {error}") from error
        return settings

    def for_sites(self, count: int, fields: Fields) -> RunSettings:
        """The settings with the default privacy for this many sites filled in; raises where masks hide nothing."""
        settings = replace(self, privacy=self.privacy or ("masked" if count >= MIN_SITES else None))
        if settings.privacy is None or (settings.masked and count < MIN_SITES):
            why = "with two sites each finds the other's numbers by subtraction, so masks hide nothing"
            raise fields.error("privacy", f'must be "open": {why}; write that if acceptable, or add a third site.')
        if settings.masked:
            try:
                require_goes_with(settings.make_solver(), Integers())
            except InputError as error:
                default = "" if self.privacy else " (the default for three sites or more)"
                raise fields.error("privacy", f'= "masked"{default}: {error} Or write privacy = "open".') from error
        return settings

    @property
    def masked(self) -> bool:
        return self.privacy == "masked"

    def make_solver(self) -> Solver:
        """The solver, with its parameters."""
        solver: Solver = SOLVERS[self.solver](**self.solver_parameters)
        return solver

    def request(self, covariance: str = "auto") -> Request:
        """The settings as a request; each site chooses how it holds its covariance."""
        return Request.parse(
            n_components=self.n_components,
            solver=self.make_solver(),
            # Every other average shows the numbers of all sites to every site: see the threat model.
            averaging="tree",
            tol=self.tol,
            max_rounds=self.max_rounds,
            scale=self.scale,
            missing=self.missing,
            covariance=covariance,
            random_state=self.seed,
            privacy=self.privacy or "open",
            min_samples=self.min_samples,
        )

    def largest_message(self, length: int) -> int:
        """Bytes of the largest message: of an iteration, the PCA certificate, the moments or a check.

        ``length`` is the length of a vector: d, or N where columns are split.
        """
        d, wanted, solver = length, self.n_components, self.make_solver()
        # To explain a share of the variance may take all components.
        k = min(wanted, d) if isinstance(wanted, int) else d
        iteration = int(solver.largest_message(k, d))
        # Moments have up to three numbers per column; as integers, each takes two words.
        return min(8 * (max(iteration, d * max(k, PROBE_COLUMNS), 2 * (3 * d + 1)) + 4096), MAX_MESSAGE_BYTES)


def _components(fields: Fields) -> int | float:
    value = fields.content.get("n_components", RunSettings.n_components)
    if not isinstance(value, float):
        return fields.whole("n_components", 1, value)
    if not 0 < value < 1:
        raise fields.wrong("n_components", "must be a whole number of at least 1, or a share between 0 and 1.")
    return value


def _scaling(fields: Fields) -> Scaling:
    value = fields.content.get("scale", False)
    if value in (True, False, "binomial"):
        return cast(Scaling, value)
    raise fields.wrong("scale", 'must be true or false, without quotes, or "binomial".')


def _parameters(fields: Fields, solver: str) -> Mapping[str, Any]:
    known = [known.name for known in dataclasses.fields(SOLVERS[solver])]
    for key, value in fields.content.items():
        if key not in known:
            if not known:
                raise InputError(f"{fields.place(key)}: {solver} has no parameters; remove {key}.")
            raise UnknownNameError(f"parameter of {solver} in {fields.place(key)}", key, known)
        if not isinstance(value, bool | int | float | str):
            raise fields.wrong(key, "must be a number, a string, true or false.")
    return MappingProxyType(dict(fields.content))
