"""Tables for the terminal: the numbers of what they are given, in lines that fit."""

from __future__ import annotations

import numpy as np
import pytest
from rich.console import Console

from eigenmesh import graphs
from eigenmesh.certificate import Certificate
from eigenmesh.networks import Stacked, Traffic
from eigenmesh.report.tables import averaging_table, components_table, facts_table, traffic_table


def printed(table) -> list[list[str]]:
    """Cells of the lines of a table, printed 80 wide."""
    console = Console(width=80, record=True, file=None, force_terminal=False, quiet=False)
    with console.capture() as capture:
        console.print(table)
    lines = capture.get().splitlines()
    assert all(len(line) <= 80 for line in lines)
    return [line.split() for line in lines if line.strip() and "─" not in line]


def certificate(k: int) -> Certificate:
    values = np.linspace(4.0, 1.0, k)
    return Certificate(values, values / 1e7, values, values / 1e6, (), False, 0.5, 0.0, 0.0, np.zeros(k), True)


def test_components_have_shares_that_add_up_and_bounds():
    rows = printed(components_table(certificate(4), total_variance=20.0, true_sines=np.full(4, 3e-8)))
    assert rows[0][0] == "component"
    assert rows[1] == ["1", "4", "20.00%", "20.00%", "4.0e-06", "3.0e-08"]
    assert rows[4] == ["4", "1", "5.00%", "50.00%", "1.0e-06", "3.0e-08"]


def test_many_components_are_cut_and_said_to_be():
    rows = printed(components_table(certificate(50), total_variance=200.0))
    assert rows[-1] == ["and", "30", "more"]
    assert len(rows) == 22


def test_traffic_is_listed_by_phase_and_in_all():
    phases = {"set-up": Traffic(2, 10, 1, 4000), "iterations": Traffic(1000, 20_000, 2000, 3_000_000)}
    rows = printed(traffic_table(phases["set-up"] + phases["iterations"], phases))
    assert rows[1] == ["set-up", "2", "10", "1", "4.0", "kB"]
    assert rows[-1] == ["all", "1,002", "20,010", "2,001", "3.0", "MB"]


@pytest.mark.parametrize("topology", ["cycle", "star", "complete", "grid"])
def test_averages_cost_what_a_network_counts(topology):
    weights = graphs.metropolis(graphs.topology(topology, 9))
    rows = {(row[0], row[-3]): row[-2:] for row in printed(averaging_table(weights))[1:]}
    from eigenmesh.averaging import Chebyshev, Gossip, Polynomial, Tree

    ways = {
        ("plain", "1e-06"): Gossip(1e-6),
        ("plain", "1e-12"): Gossip(1e-12),
        ("Chebyshev", "1e-06"): Chebyshev(1e-6),
        ("Chebyshev", "1e-12"): Chebyshev(1e-12),
        ("polynomial", "1e-06"): Polynomial(1e-6),
        ("polynomial", "1e-12"): Polynomial(1e-12),
        ("tree", "exact"): Tree(),
    }
    assert set(rows) == set(ways)
    for key, averaging in ways.items():
        network = Stacked(weights, averaging)
        network.mean(np.ones((9, 2)))
        assert rows[key] == [f"{network.traffic.rounds:,}", f"{network.traffic.messages:,}"]


def test_facts_keep_their_names_and_values():
    assert printed(facts_table({"nodes": "4", "spectral gap": "0.5"})) == [["nodes", "4"], ["spectral", "gap", "0.5"]]
