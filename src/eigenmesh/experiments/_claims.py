"""Checks of the paper's claims against the measured costs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np

from eigenmesh.experiments._curves import TARGETS, goal
from eigenmesh.experiments._tables import CostRow

OURS = "FAST-PCA"
# Costs within this factor of each other count as close.
FACTOR = 2.0
# Relations between our cost and theirs. An infinite cost means that the target was never reached; at most one of the
# two is infinite.
RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "ahead": lambda ours, theirs: ours < theirs,
    "close": lambda ours, theirs: ours <= FACTOR * theirs,
    "alike": lambda ours, theirs: max(ours, theirs) <= FACTOR * min(ours, theirs),
}
# A method has stopped if its error fell by less than a factor of STANDSTILL in the second half of its run. It has
# stopped short if another method's error is SHORT_OF times lower.
STANDSTILL, SHORT_OF = 2.0, 10.0
# The paper counts one unit per round, whatever is sent in it; equal counting takes one unit per matrix.
PAPER_UNIT, EQUAL_UNIT = "rounds", "matrices"


class ClaimVerdict(Enum):
    """Whether the numbers support a claim; the value is the text of a report."""

    HOLDS = "supported"
    PARTLY = "supported in part"
    FAILS = "not supported"
    OPEN = "undecided"


class Evidence(NamedTuple):
    panel: str
    verdict: ClaimVerdict
    words: str


@dataclass(frozen=True)
class JudgedClaim:
    """A claim about a figure, and the evidence by panel.

    paper: costs counted as the paper does. equal: every matrix counted; empty if the claim is not about cost.
    """

    claim: str
    paper: tuple[Evidence, ...]
    equal: tuple[Evidence, ...] = ()

    @property
    def verdict(self) -> ClaimVerdict:
        """Over all panels, as the paper counts."""
        return combined([evidence.verdict for evidence in self.paper])

    @property
    def equal_verdict(self) -> ClaimVerdict | None:
        """Over all panels, counted equally; None if the claim is not about cost."""
        return combined([evidence.verdict for evidence in self.equal]) if self.equal else None

    @property
    def depends_on_counting(self) -> bool:
        """Whether the claim is less supported when every matrix is counted."""
        equal = self.equal_verdict
        return equal is not None and _RANK[equal] > _RANK[self.verdict]


_RANK = {ClaimVerdict.HOLDS: 0, ClaimVerdict.PARTLY: 1, ClaimVerdict.OPEN: 1, ClaimVerdict.FAILS: 2}


def combined(verdicts: Sequence[ClaimVerdict]) -> ClaimVerdict:
    """The common verdict, if all that are not open agree; otherwise partly."""
    decided = {verdict for verdict in verdicts if verdict is not ClaimVerdict.OPEN}
    if not decided:
        return ClaimVerdict.OPEN
    return decided.pop() if len(decided) == 1 else ClaimVerdict.PARTLY


def check_claims(panels: Sequence[tuple[str, Sequence[CostRow]]], nearly_equal: bool) -> list[JudgedClaim]:
    """Check the paper's claims against the rows of a figure's panels, given by title."""
    slower = ("SeqPM", "SeqDistPM", "S-DOT", "SA-DOT", *(["DeEPCA"] if nearly_equal else []))
    claims = [("FAST-PCA is close to centralised OI", "OI", "close")]
    claims += [(f"FAST-PCA is ahead of {other}", other, "ahead") for other in slower]
    if not nearly_equal:
        claims.append(("FAST-PCA does about as well as DeEPCA", "DeEPCA", "alike"))
    tables = [(title, {row.method.label: row for row in rows}) for title, rows in panels]
    findings = []
    for claim, other, relation in claims:
        both = [(title, rows[OURS], rows[other]) for title, rows in tables if {OURS, other} <= rows.keys()]
        paper, equal = (
            tuple(Evidence(title, *compare_costs(ours, theirs, unit, relation)) for title, ours, theirs in both)
            for unit in (PAPER_UNIT, EQUAL_UNIT)
        )
        findings.append(JudgedClaim(claim, paper, equal))
    both = [(title, rows["DSA"], rows[OURS]) for title, rows in tables if {"DSA", OURS} <= rows.keys()]
    evidence = tuple(Evidence(title, *stops_short(theirs, ours)) for title, theirs, ours in both)
    findings.append(JudgedClaim("DSA stops at a neighbourhood, and FAST-PCA gets closer", evidence))
    return [finding for finding in findings if finding.paper]


def compare_costs(ours: CostRow, theirs: CostRow, unit: str, relation: str) -> tuple[ClaimVerdict, str]:
    """Whether one of ``RELATIONS`` holds between two costs at each target that either method reached."""
    pairs = zip(TARGETS, ours.typical(unit), theirs.typical(unit), strict=True)
    reached = [(target, a, b) for target, a, b in pairs if np.isfinite(a) or np.isfinite(b)]
    if not reached:
        return ClaimVerdict.OPEN, f"neither reaches {goal(TARGETS[0])}"
    good = [RELATIONS[relation](a, b) for _, a, b in reached]
    verdict = ClaimVerdict.HOLDS if all(good) else ClaimVerdict.PARTLY if any(good) else ClaimVerdict.FAILS
    return verdict, "; ".join(_compared(*entry) for entry in reached)


def _compared(target: float, ours: float, theirs: float) -> str:
    costs = [f"{cost:,.0f}" if np.isfinite(cost) else "never" for cost in (ours, theirs)]
    ratio = f" ({ours / theirs:.2g} x)" if "never" not in costs and theirs > 0 else ""
    return f"{goal(target)}: {costs[0]} against {costs[1]}{ratio}"


def stops_short(theirs: CostRow, ours: CostRow) -> tuple[ClaimVerdict, str]:
    """Whether theirs stopped improving at an error far above the one that ours reached."""
    half, end = float(np.median(theirs.halves)), float(np.median(theirs.ends))
    words = f"{theirs.method.label} {half:.1e} at half the budget, {end:.1e} at its end; "
    words += f"{ours.method.label} down to {ours.floor:.1e}"
    if end * STANDSTILL < half:
        return ClaimVerdict.OPEN, f"{words}; still falling"
    return (ClaimVerdict.HOLDS if theirs.floor > SHORT_OF * ours.floor else ClaimVerdict.FAILS), words
