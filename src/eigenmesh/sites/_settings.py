"""Settings that all sites of a run must have in common."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from typing import Any

from eigenmesh.averaging import Integers, Tree
from eigenmesh.certificate._complement import COLUMNS as PROBE_COLUMNS
from eigenmesh.errors import EigenmeshError, InputError, UnknownNameError
from eigenmesh.fitting._prepare import require_goes_with
from eigenmesh.masking import MIN_SITES
from eigenmesh.settings import AT_SITES, OnLoss, Partition, Request, parse_covariance
from eigenmesh.sites._toml_fields import Fields
from eigenmesh.solvers import SOLVERS, Solver

# TLS writes at most a C int of bytes at once; this leaves room for the header of a frame. A sender refuses a larger
# message, with its size.
MAX_MESSAGE_BYTES = (1 << 31) - (1 << 20)


@dataclass(frozen=True)
class RunSettings:
    """Settings of a run, as the table ``eigenmesh.settings.AT_SITES`` describes them.

    Attributes
    ----------
    asked : Request
        The settings of the fit.
    partition, on_loss, .. : object
        Those of sites alone, under the names of the table.
    """

    asked: Request
    partition: Partition
    patience_s: float
    join_s: float
    round_s: float
    on_loss: OnLoss
    every_s: float
    batch_rows: int
    min_new_samples: int
    min_samples_per_site: int

    @classmethod
    def from_fields(cls, fields: Fields) -> RunSettings:
        """Read and check the table ``[settings]``."""
        fields.require_known([*AT_SITES, "solver_parameters"])
        values = {key: fields.setting(key, row) for key, row in AT_SITES.items()}
        solver = _solver(fields, values.pop("solver"))
        own = {one.name: values.pop(one.name) for one in dataclasses.fields(cls) if one.name in values}
        # Every other average shows the numbers of all sites to every site: see the threat model.
        asked = Request.parse(solver=solver, averaging=Tree(), random_state=values.pop("seed"), **values)
        return cls(asked, **own)

    def require_hidden(self, count: int, fields: Fields) -> None:
        """Raise where masks would hide nothing, or the solver cannot go with them, for this many sites."""
        if self.masked and count < MIN_SITES:
            why = "with two sites each finds the other's numbers by subtraction, so masks hide nothing"
            raise fields.error("privacy", f'must be "open": {why}; write that if acceptable, or add a third site.')
        if self.masked:
            try:
                require_goes_with(self.solver, Integers())
            except InputError as error:
                default = "" if "privacy" in fields else " (the default for three sites or more)"
                raise fields.error("privacy", f'= "masked"{default}: {error} Or write privacy = "open".') from error

    @property
    def masked(self) -> bool:
        return self.asked.masked

    @property
    def solver(self) -> Solver:
        """The solver, which a file of sites always names."""
        if self.asked.solver is None:
            raise InputError('solver = "auto" is not for sites: write the name of one.')
        return self.asked.solver

    @property
    def words(self) -> dict[str, Any]:
        """The settings as a file has them; None for what is left out there."""
        own = vars(self)
        words = {key: own[key] if key in own else getattr(self.asked, key) for key in AT_SITES}
        return {**words, "solver": self.solver.name}

    @property
    def solver_parameters(self) -> dict[str, Any]:
        """The parameters of the solver that are not its defaults."""
        usual = type(self.solver)()
        given = {name: getattr(self.solver, name) for name in SOLVERS[self.solver.name].__dataclass_fields__}
        return {name: value for name, value in given.items() if value != getattr(usual, name)}

    def request(self, covariance: str = "auto") -> Request:
        """The request for the fit at a site; each site chooses how it holds its covariance."""
        return replace(self.asked, covariance=parse_covariance(covariance))

    def largest_message(self, length: int) -> int:
        """Bytes of the largest message: of an iteration, the PCA certificate, the moments or a check.

        ``length`` is the length of a vector: d, or N where columns are split.
        """
        d, wanted = length, self.asked.n_components
        # To explain a share of the variance may take all components.
        k = min(wanted, d) if isinstance(wanted, int) else d
        iteration = int(self.solver.largest_message(k, d))
        # Moments have up to three numbers per column; as integers, each takes two words.
        return min(8 * (max(iteration, d * max(k, PROBE_COLUMNS), 2 * (3 * d + 1)) + 4096), MAX_MESSAGE_BYTES)


def _solver(fields: Fields, name: str) -> Solver:
    """The solver of this name, with the parameters in the table below."""
    if name == "auto":
        raise UnknownNameError(f"settings.solver in {fields.place('solver')}", name, SOLVERS)
    below = fields.table("solver_parameters")
    known = [known.name for known in dataclasses.fields(SOLVERS[name])]
    for key, value in below.content.items():
        if key not in known:
            if not known:
                raise InputError(f"{below.place(key)}: {name} has no parameters; remove {key}.")
            raise UnknownNameError(f"parameter of {name} in {below.place(key)}", key, known)
        if not isinstance(value, bool | int | float | str):
            raise below.wrong(key, "must be a number, a string, true or false.")
    try:
        solver: Solver = SOLVERS[name](**below.content)
    except (EigenmeshError, TypeError) as error:
        raise fields.error("solver_parameters", f"do not fit {name}: {error}") from error
    return solver
