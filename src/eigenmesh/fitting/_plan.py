"""A plan: the cost of every solver with every averaging, and which one a fit would use."""

import math
from dataclasses import dataclass

from eigenmesh._text import html_paragraphs, html_table, readable_bytes
from eigenmesh.settings import Costs


@dataclass(frozen=True)
class Forecast:
    """One line of a plan: the cost of a solver with an averaging.

    Attributes
    ----------
    rounds, messages, bytes : float
        Over the whole network, set-up and certificate included; infinite if the solver does not reach the tolerance
        within the budget of rounds.
    memory_bytes : float
        At one node, in addition to its data.
    seconds : float
        Communication plus arithmetic; infinite if the rounds are.
    shows_covariances : bool
        True if covariance matrices themselves are sent; such a line is never chosen.
    """

    solver: str
    averaging: str
    rounds: float
    messages: float
    bytes: float
    memory_bytes: float
    seconds: float
    shows_covariances: bool = False


@dataclass(frozen=True)
class Plan:
    """All forecasts, cheapest first.

    Attributes
    ----------
    best : Forecast
        The line that a fit with the same request and data uses.
    reason, rehearsed_on : str
        Why it is the best, and which samples the forecasts are based on, in words.
    n_samples : int
        N over all nodes.
    n_components : int or float
        K, or the share of the variance to explain.
    """

    forecasts: tuple[Forecast, ...]
    best: Forecast
    reason: str
    rehearsed_on: str
    costs: Costs
    max_rounds: int
    n_samples: int
    n_components: int | float

    def __repr__(self) -> str:
        best = self.best
        return (
            f"Plan(solver={best.solver!r}, averaging={best.averaging!r}, rounds={best.rounds:.0f}, "
            f"bytes={best.bytes:.3g}, seconds={best.seconds:.2g}, forecasts={len(self.forecasts)})"
        )

    def _repr_html_(self) -> str:
        rows = [
            [one.solver, one.averaging, *(f"{value:.3g}" for value in (one.rounds, one.seconds))]
            + [readable_bytes(value) if math.isfinite(value) else "inf" for value in (one.bytes, one.memory_bytes)]
            for one in self.forecasts
        ]
        table = html_table(["solver", "averaging", "rounds", "seconds", "sent", "memory per node"], rows)
        chosen = f"{self.best.solver} with {self.best.averaging} averaging: {self.reason}"
        return f"<div>{html_paragraphs([chosen])}{table}{html_paragraphs([self.rehearsed_on])}</div>"
