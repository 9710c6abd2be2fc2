"""Curves: what it cost to get where, on made-up histories."""

from __future__ import annotations

import numpy as np
import pytest
from small import made_up

from eigenmesh.events import Record
from eigenmesh.experiments.runs import KEPT_POINTS, TARGETS, UNITS, curve_of, goal, thinned


def test_cost_is_that_of_the_first_iteration_at_or_below_the_target():
    curve = made_up([0.5, 0.01, 0.02, 1e-4, 1e-5], rounds=[3, 6, 9, 12, 15], matrices=[6, 12, 18, 24, 30])
    assert curve.cost_to_reach(1e-2, "rounds") == 6
    assert curve.cost_to_reach(1e-2, "matrices") == 12
    assert curve.cost_to_reach(1e-4, "rounds") == 12
    assert curve.cost_to_reach(1e-4, "iterations") == 4
    assert curve.cost_to_reach(1e-6, "rounds") == np.inf
    assert curve.floor == 1e-5


def test_lost_iterates_reach_nothing_and_have_no_floor():
    curve = made_up([0.5, np.nan, np.nan])
    assert curve.cost_to_reach(0.6, "rounds") == 1
    assert curve.cost_to_reach(0.1, "rounds") == np.inf
    assert curve.floor == 0.5
    assert np.isnan(made_up([np.nan]).floor)


def test_error_at_a_cost_is_that_of_the_last_iteration_paid_for():
    curve = made_up([0.5, 0.2, 0.1], rounds=[10, 20, 30])
    found = curve.error_at("rounds", np.array([5, 10, 19.9, 20, 1000]))
    np.testing.assert_array_equal(found, [np.nan, 0.5, 0.5, 0.2, 0.1])


@pytest.mark.parametrize("seed", range(5))
def test_thinning_keeps_costs_and_floor_to_the_last_digit(seed):
    rng = np.random.default_rng(seed)
    errors = np.exp(-np.arange(20_000) / 700 + rng.normal(scale=0.5, size=20_000))
    curve = made_up(errors, rounds=np.cumsum(rng.integers(1, 5, size=20_000)))
    small = thinned(curve)
    assert len(small.error) <= 2 * KEPT_POINTS + len(TARGETS) + 1
    assert (small.iterations[0], small.iterations[-1], small.floor) == (1, 20_000, curve.floor)
    for unit in UNITS:
        for target in TARGETS:
            assert small.cost_to_reach(target, unit) == curve.cost_to_reach(target, unit)


def test_a_method_without_a_network_counts_one_unit_an_iteration():
    history = [Record(iteration, 0, 0, 0, 0, np.nan, 1.0 / iteration, np.nan) for iteration in (1, 2, 3)]
    alone, sending = curve_of(history, alone=True), curve_of(history, alone=False)
    for unit in ("iterations", "rounds", "matrices"):
        np.testing.assert_array_equal(alone.cost(unit), [1, 2, 3])
    assert not alone.bytes.any()
    assert not sending.rounds.any()


def test_targets_are_written_short():
    assert [goal(target) for target in TARGETS] == ["1e-2", "1e-4", "1e-6", "1e-10"]
