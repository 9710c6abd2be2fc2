"""Simulated nodes, threads, MPI ranks and torch ranks have the same bits: every solver, averaging and graph."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from networks.bits_runs import GRAPHS, PAIRS, SCENARIOS, SIZES, fits
from transports.engines import ENGINES, launch, row

ALL_REDUCE = "an all-reduce adds in the engine's own order"


def reason(engine, averaging):
    """Why an engine may differ from the simulation with this averaging, or has none of it; None if it must not."""
    if averaging != "allreduce":
        return None
    return ALL_REDUCE if ENGINES[engine].reduces else "no all-reduce"


@cache
def ended(engine):
    names = [f"{solver}-{averaging}" for solver, averaging in PAIRS if not reason(engine, averaging)]
    with TemporaryDirectory() as folder:
        return launch(ENGINES[engine], len(SIZES), "networks.bits_runs", names, Path(folder))


@cache
def simulated(solver, averaging):
    return fits(solver, averaging)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("solver", "averaging"), PAIRS)
@pytest.mark.parametrize("engine", [row("threads"), row("mpi"), row("torch")])
def test_every_engine_has_the_bits_of_the_simulation(engine, solver, averaging):
    if missing := ENGINES[engine].missing():
        pytest.skip(missing)
    if differs := reason(engine, averaging):
        pytest.skip(differs)
    assert ended(engine).status == 0, ended(engine).output
    due = simulated(solver, averaging)
    for rank in range(len(SIZES)):
        results = ended(engine).results[rank]
        for graph in GRAPHS:
            name = f"{solver}-{averaging}/{graph}"
            assert results[name].tobytes() == due[graph].tobytes(), (rank, graph, results[name], due[graph])
            if f"{graph}/nodes" in due:
                own = due[f"{graph}/nodes"][[rank]]
                assert results[f"{name}/nodes"].tobytes() == np.ascontiguousarray(own).tobytes(), (rank, graph)
                # Where nodes differ in their last digits, the answer of a simulation is that of the first.
                assert rank or results[f"{name}/first"].tobytes() == due[f"{graph}/first"].tobytes(), graph


def test_all_pairs_are_in_the_table():
    assert len(SCENARIOS) == len(PAIRS)
