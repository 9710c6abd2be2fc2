"""Tables over trials: medians, best settings, and files that say the same as what is shown."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from small import METHODS, made_up, made_up_row, small_panel

from eigenmesh.experiments.catalogue import unlike_experiment
from eigenmesh.experiments.claims import (
    CostRow,
    as_csv,
    best_rows,
    cell,
    cost_columns,
    cost_rows,
    error_columns,
    line_of,
    problems_solved,
)
from eigenmesh.experiments.experiment import Method, TrialRun
from eigenmesh.experiments.figures import cost_caption, cost_cells, cost_table
from eigenmesh.experiments.runs import TARGETS, UNITS
from eigenmesh.solvers import SOLVERS, DeEPCA, FastPCA

FAST_PCA = METHODS[2]


def falling(rate: float, n: int = 100):
    return made_up(rate ** np.arange(1, n + 1), matrices=2 * np.arange(1, n + 1))


def test_medians_over_trials_and_how_many_got_there():
    # The last ends at 0.7^30 = 2.3e-5.
    row = CostRow.of(FAST_PCA, [falling(0.09), falling(0.3), falling(0.7, 30)])
    np.testing.assert_array_equal(row.costs["rounds"][:2], [[2, 4, 13], [4, 8, 26]])
    np.testing.assert_array_equal(row.typical("rounds"), [4, 8, 12, 20])
    np.testing.assert_array_equal(row.reached(), [3, 3, 2, 2])
    assert [cell(row, target, "matrices") for target in range(4)] == ["8", "16", "24 (2/3)", "40 (2/3)"]
    assert row.trials == 3


def test_never_is_a_dash_and_half_of_the_trials_are_not_enough():
    row = CostRow.of(FAST_PCA, [falling(0.1), made_up([0.5, 0.4])])
    assert [cell(row, target, "rounds") for target in range(4)] == ["- (1/2)"] * 4
    assert cell(CostRow.of(FAST_PCA, [made_up([0.5])]), 0, "rounds") == "-"


def test_rows_are_in_the_order_of_the_panel_and_of_its_runs_alone():
    panel, other = small_panel(), small_panel(name="other")
    results = {TrialRun(panel, METHODS[2], 0, 0): falling(0.5), TrialRun(panel, METHODS[0], 0, 0): falling(0.1)}
    results[TrialRun(other, METHODS[0], 0, 1)] = falling(0.9)
    rows = cost_rows(panel, results)
    assert [(row.method.label, row.trials) for row in rows] == [("OI", 1), ("FAST-PCA", 1)]


def test_best_setting_reaches_most_then_is_cheapest_then_lowest():
    def row(step, costs, floor=1e-12):
        made = made_up_row("FAST-PCA", costs, floor=floor)
        return CostRow(Method("FAST-PCA", FastPCA(step_size=step)), made.costs, made.floors, made.halves, made.ends)

    never = np.inf
    further, cheaper = row(0.1, [50, 60, 70, never]), row(0.2, [50, 55, 65, never])
    assert best_rows([further, cheaper, row(0.3, [5, 6, never, never])]) == [cheaper]
    low, high = row(0.1, [never] * 4, floor=0.1), row(0.2, [never] * 4, floor=0.2)
    assert best_rows([high, low]) == [low]
    assert best_rows([row(0.1, [never] * 4, floor=np.nan), high]) == [high]


def test_line_is_the_median_with_the_quartiles():
    curves = [made_up([0.5, 0.1, 0.1]), made_up([0.4, 0.2]), made_up([0.6, np.nan, np.nan])]
    line = line_of(FAST_PCA, curves, "rounds")
    assert (line.cost[0], line.cost[-1]) == (1, 3)
    np.testing.assert_allclose([line.lower[0], line.median[0], line.upper[0]], [0.45, 0.5, 0.55])
    # A run that has ended keeps its last error; lost iterates count as the largest error there is.
    np.testing.assert_allclose([line.lower[-1], line.median[-1], line.upper[-1]], [0.15, 0.2, 0.6])


def test_csv_has_the_numbers_of_the_table():
    rows = [CostRow.of(METHODS[0], [falling(0.1), falling(0.2)]), CostRow.of(FAST_PCA, [falling(0.7, 30)] * 2)]
    lines = list(csv.DictReader(io.StringIO(as_csv(cost_columns([("part", rows)])))))
    assert len(lines) == len(rows) * len(TARGETS)
    for line in lines:
        (row,) = (row for row in rows if row.method.label == line["solver"])
        target = [f"{goal:g}" for goal in TARGETS].index(line["error"])
        for unit in UNITS:
            shown = cell(row, target, unit).split()[0]
            assert shown == (f"{float(line[unit]):,.0f}" if line[unit] else "-")
        assert float(line["least_error"]) == pytest.approx(row.floor, rel=1e-6)
        assert (line["part"], line["trials"], int(line["reached"])) == ("part", "2", row.reached()[target])
    assert {line["centralised"] for line in lines if line["solver"] == "OI"} == {"True"}
    assert {line["settings"] for line in lines if line["solver"] == "FAST-PCA"} == {"step_size=0.7"}


def test_csv_of_errors_has_every_recorded_point_of_every_trial():
    curves = [falling(0.5), falling(0.7, 30)]
    read = list(csv.DictReader(io.StringIO(as_csv(error_columns([("part", [(FAST_PCA, curves)])])))))
    assert {(row["part"], row["solver"], row["settings"]) for row in read} == {("part", "FAST-PCA", FAST_PCA.words)}
    for trial, curve in enumerate(curves):
        own = [row for row in read if row["trial"] == str(trial)]
        np.testing.assert_allclose([float(row["error"]) for row in own], curve.error, rtol=1e-6)
        for unit in ("iterations", "rounds", "matrices", "bytes"):
            assert [int(row[unit]) for row in own] == curve.cost(unit).tolist()


def test_captions_say_what_has_to_be_known():
    rows = [CostRow.of(METHODS[0], [falling(0.1)]), CostRow.of(FAST_PCA, [falling(0.7, 30)])]
    words = cost_caption(rows, "rounds")
    assert "- means never" in words
    assert "On the pooled data at a single node: OI; one unit per iteration, as the paper counts" in words
    assert cost_cells(rows[0], "bytes") == ["none"] * 4
    assert cost_cells(rows[1], "bytes")[0] == "208 B"
    assert "nothing is sent" in cost_caption(rows, "bytes")
    assert cost_table(rows, "rounds").row_count == 2


def test_unlike_nodes_try_the_stated_grids_and_count_what_is_solved():
    experiment = unlike_experiment()
    assert len(experiment.panels) == 18
    assert {panel.rounds for panel in experiment.panels} == {600}
    solvers = {method.solver.name for method in experiment.panels[0].methods}
    assert solvers >= {"fast-pca", "dsa", "deepca", "s-dot", "sa-dot", "seq-dist-pm"}
    assert solvers >= {"block-krylov", "tracked-subspace"} & SOLVERS.keys()
    assert "0.03, 0.1, 0.3, 1" in experiment.facts["grids"]
    tables = [[made_up_row("DeEPCA", [10, 20, np.inf, np.inf])], [made_up_row("DeEPCA", [30, np.inf, np.inf, np.inf])]]
    assert problems_solved(tables)["DeEPCA"] == [(2, 20.0), (1, 20.0), (0, np.inf), (0, np.inf)]


def test_words_of_a_method_are_what_the_command_line_takes():
    assert Method("x", DeEPCA(mixes=5)).words == "mixes=5"
    assert Method("x", SOLVERS["block-krylov"]()).words == "oversample=5"
    assert METHODS[0].words == ""
