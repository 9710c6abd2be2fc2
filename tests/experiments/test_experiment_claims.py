"""Claims: the verdict follows the numbers, both ways."""

from __future__ import annotations

import numpy as np
import pytest
from small import made_up, made_up_row

from eigenmesh.experiments.claims import (
    ClaimVerdict,
    CostRow,
    Evidence,
    JudgedClaim,
    check_claims,
    compare_costs,
    stops_short,
)
from eigenmesh.experiments.experiment import Method
from eigenmesh.solvers import DSA, FastPCA

NEVER = np.inf
HOLDS, PARTLY, FAILS, OPEN = ClaimVerdict.HOLDS, ClaimVerdict.PARTLY, ClaimVerdict.FAILS, ClaimVerdict.OPEN


@pytest.mark.parametrize(
    ("relation", "ours", "theirs", "verdict"),
    [
        ("ahead", [10, 20, 30, 40], [11, 21, 31, 41], HOLDS),
        ("ahead", [10, 20, 30, 40], [11, 21, NEVER, NEVER], HOLDS),
        ("ahead", [10, 20, 30, NEVER], [11, 21, 31, NEVER], HOLDS),
        ("ahead", [10, 20, 30, 40], [9, 21, 31, 41], PARTLY),
        ("ahead", [10, 20, 30, NEVER], [11, 21, 31, 41], PARTLY),
        ("ahead", [10, 20, 30, 40], [10, 20, 30, 40], FAILS),
        ("ahead", [NEVER] * 4, [9, NEVER, NEVER, NEVER], FAILS),
        ("ahead", [NEVER] * 4, [NEVER] * 4, OPEN),
        ("close", [20, 40, 60, 80], [10, 20, 30, 40], HOLDS),
        ("close", [1, 1, 1, 1], [10, 20, 30, 40], HOLDS),
        ("close", [21, 40, 60, 80], [10, 20, 30, 40], PARTLY),
        ("close", [21, 41, 61, NEVER], [10, 20, 30, 40], FAILS),
        ("alike", [20, 40, 60, 80], [10, 20, 30, 40], HOLDS),
        ("alike", [10, 20, 30, 40], [20, 40, 60, 80], HOLDS),
        ("alike", [10, 20, 30, 40], [21, 40, 60, NEVER], PARTLY),
        ("alike", [1, 1, 1, 1], [10, 20, 30, 40], FAILS),
    ],
)
def test_costs_decide(relation, ours, theirs, verdict):
    found, words = compare_costs(made_up_row("FAST-PCA", ours), made_up_row("OI", theirs), "rounds", relation)
    assert found is verdict, words


def test_words_give_the_numbers():
    ours, theirs = made_up_row("FAST-PCA", [150, 1000, NEVER, NEVER]), made_up_row("OI", [100, NEVER, 20, NEVER])
    _, words = compare_costs(ours, theirs, "rounds", "close")
    assert words == "1e-2: 150 against 100 (1.5 x); 1e-4: 1,000 against never; 1e-6: never against 20"


def test_two_matrices_a_round_can_turn_a_verdict():
    ours = made_up_row("FAST-PCA", [10, 20, 30, 40], per_round=2)
    tables = [("panel", [ours, made_up_row("OI", [8, 16, 24, 32]), made_up_row("SeqPM", [15, 30, 45, 60])])]
    close, ahead = check_claims(tables, nearly_equal=False)
    assert close.claim == "FAST-PCA is close to centralised OI"
    assert (close.words("rounds"), close.words("matrices")) == ("supported", "not supported")
    assert (ahead.words("rounds"), ahead.words("matrices")) == ("supported", "not supported")


@pytest.mark.parametrize(
    ("deepca", "distinct", "equal"), [([15, 30, 45, 60], HOLDS, HOLDS), ([5, 10, 15, 20], HOLDS, FAILS)]
)
def test_deepca_is_to_be_alike_or_behind_as_the_figure_has_it(deepca, distinct, equal):
    tables = [("panel", [made_up_row("FAST-PCA", [10, 20, 30, 40]), made_up_row("DeEPCA", deepca)])]
    (alike,) = check_claims(tables, nearly_equal=False)
    (ahead,) = check_claims(tables, nearly_equal=True)
    assert (alike.words("rounds"), ahead.words("rounds")) == (distinct.value, equal.value)
    assert "about as well as DeEPCA" in alike.claim
    assert "ahead of DeEPCA" in ahead.claim


def test_panels_are_brought_together():
    good, bad = made_up_row("S-DOT", [100] * 4), made_up_row("S-DOT", [1] * 4)
    ours = made_up_row("FAST-PCA", [10, 20, 30, 40])
    (finding,) = check_claims([("a", [ours, good]), ("b", [ours, bad])], nearly_equal=True)
    assert [evidence.verdict for evidence in finding.evidence["rounds"]] == [HOLDS, FAILS]
    assert finding.words("rounds") == finding.words("matrices") == "supported in 1 of 2 panels, 1 against it"


@pytest.mark.parametrize(
    ("verdicts", "words"),
    [
        ([HOLDS, HOLDS, OPEN, OPEN], "supported in 2 of 4 panels, 2 undecided"),
        ([HOLDS, PARTLY, FAILS, OPEN], "supported in 1 of 4 panels, 1 in part, 1 against it, 1 undecided"),
        ([FAILS, OPEN], "supported in 0 of 2 panels, 1 against it, 1 undecided"),
        ([HOLDS, HOLDS], "supported in all 2 panels"),
        ([OPEN, OPEN], "undecided in all 2 panels"),
        ([PARTLY], "supported in part"),
    ],
)
def test_words_count_the_panels(verdicts, words):
    claim = JudgedClaim("c", {"rounds": tuple(Evidence("p", verdict, "") for verdict in verdicts)})
    assert (claim.words("rounds"), claim.words("matrices")) == (words, "not about cost")


@pytest.mark.parametrize(
    ("dsa_errors", "our_errors", "verdict"),
    [
        ([0.1, 1e-3, 1e-3, 9e-4], [0.1, 1e-3, 1e-5, 1e-8], HOLDS),
        ([0.1, 1e-3, 1e-5, 1e-8], [0.1, 1e-3, 1e-5, 1e-8], OPEN),
        ([0.1, 1e-8, 1e-8, 1e-8], [0.1, 1e-3, 1e-5, 1e-8], FAILS),
    ],
)
def test_a_neighbourhood_is_a_standstill_above_the_other(dsa_errors, our_errors, verdict):
    theirs = CostRow.of(Method("DSA", DSA(step_size=0.1)), [made_up(dsa_errors)])
    ours = CostRow.of(Method("FAST-PCA", FastPCA(step_size=0.1)), [made_up(our_errors)])
    assert stops_short(theirs, ours)[0] is verdict
    (finding,) = check_claims([("panel", [theirs, ours])], nearly_equal=False)
    assert (finding.words("rounds"), finding.words("matrices")) == (verdict.value, "not about cost")
