"""One suite for every solver: right answers, purity, libraries, traffic. A new solver is a new row of the table."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import array_api_strict
import numpy as np
import pytest
import torch

from eigenmesh import arrays as ea
from eigenmesh import graphs, run, solvers
from eigenmesh.averaging import Chebyshev
from eigenmesh.certificate.krylov import Basis, Projected
from eigenmesh.data import Formed
from eigenmesh.errors import InputError
from eigenmesh.networks import Stacked
from eigenmesh.settings import Request
from eigenmesh.solvers import (
    DSA,
    SADOT,
    SDOT,
    SOLVERS,
    BlockKrylov,
    DeEPCA,
    FastPCA,
    Krasulina,
    OneSum,
    OrthogonalIteration,
    Sanger,
    SequentialDistributedPower,
    SequentialPower,
    TrackedSubspace,
)
from eigenmesh.solvers.base import random_basis
from problems import angles, from_parts, make_problem, random_covariances

EASY = np.array([5.0, 3.0, 1.8, 1.0, 0.5, 0.25, 0.2, 0.1])
LIBRARIES = {"numpy": np, "torch": torch, "strict": array_api_strict}


Count = Callable[[Stacked, Any, int], int]


@dataclass(frozen=True)
class Row:
    """What is true of one solver.

    rounds : of iteration t = 0, 1, .. on a network, from the state before it.
    components : K in the tests that can choose.
    matrices : as rounds; left out, one a round.
    reaches : angle to the pooled components on an easy problem; up to 1e-6 the run is to end as converged.
    """

    solver: Any
    rounds: Count
    components: int = 3
    matrices: Count | None = None
    reaches: float = 1e-6


def average(network: Stacked, state: Any, t: int) -> int:
    return network.average.rounds


def fixed(count: int) -> Count:
    return lambda network, state, t: count


ROWS = [
    Row(BlockKrylov(), rounds=average),
    Row(TrackedSubspace(), rounds=lambda network, state, t: state.mixing.rounds),
    Row(
        OneSum(),
        # One average and the agreement on the eigenvalues; then it is done.
        rounds=lambda network, state, t: 0 if t else 2 * network.average.rounds,
        matrices=lambda network, state, t: 0 if t else network.average.rounds,
    ),
    Row(FastPCA(), rounds=fixed(1), matrices=fixed(2)),
    Row(DeEPCA(mixes=6), rounds=fixed(6)),
    Row(SDOT(), rounds=fixed(50)),
    Row(SADOT(), rounds=lambda network, state, t: min(t + 1, 50)),
    Row(DSA(), rounds=fixed(1), reaches=0.05),
    Row(OrthogonalIteration(), rounds=average),
    Row(SequentialPower(iterations=20), rounds=average),
    Row(SequentialDistributedPower(iterations=20), rounds=fixed(50)),
    Row(Krasulina(), rounds=average, components=1),
    Row(Sanger(), rounds=average),
]

every_solver = pytest.mark.parametrize("row", ROWS, ids=[row.solver.name for row in ROWS])


def start(covariance, n_nodes, d, k):
    return covariance.place(np.repeat(random_basis(d, k, seed=3)[np.newaxis], n_nodes, axis=0))


def copied(state) -> list[Any]:
    """What a state holds, arrays copied; of a basis its columns, not the room behind them, and of a projection T."""
    if type(state) is tuple:
        # One state for each copy of an average.
        return [field for own in state for field in copied(own)]
    plain = [(field.rows, field.present) if isinstance(field, Basis) else (field,) for field in state]
    plain = [(fields[0].matrix,) if isinstance(fields[0], Projected) else fields for fields in plain]
    return [np.array(field) if hasattr(field, "shape") else field for fields in plain for field in fields]


def equal(ours, theirs) -> bool:
    pairs = zip(ours, theirs, strict=True)
    return all(np.array_equal(a, b, equal_nan=True) if hasattr(a, "shape") else a == b for a, b in pairs)


def same_signs(X: np.ndarray, model: np.ndarray) -> np.ndarray:
    return X * np.sign(np.sum(X * model, axis=1, keepdims=True))


def test_every_solver_has_a_row():
    assert {row.solver.name for row in ROWS} == set(SOLVERS)
    assert all(type(row.solver) is SOLVERS[row.solver.name] for row in ROWS)
    assert {kind.__name__ for kind in SOLVERS.values()} <= set(solvers.__all__)


@every_solver
@pytest.mark.parametrize("topology", ["erdos_renyi", "cycle", "complete"])
def test_every_node_ends_with_the_pooled_components(row, topology):
    problem = make_problem(EASY, n_nodes=6, topology=topology, samples=1000, seed=2)
    result = run(row.solver, problem.covariance(), problem.network, row.components, max_rounds=30_000)
    assert angles(result.node_components, problem.vectors).max() < row.reaches
    assert np.allclose(result.explained_variance, problem.values[: row.components], rtol=row.reaches)
    assert result.converged == (row.reaches <= 1e-6)
    # One order and one sign everywhere.
    assert (np.einsum("ikd,kd->ik", result.node_components, result.components) > 0.99).all()
    # The certificate is never better than the truth.
    assert (result.certificate.error_bounds >= angles(result.node_components, problem.vectors).max(axis=0)).all()


@every_solver
@pytest.mark.parametrize("unlike", [False, True], ids=["like", "unlike"])
def test_one_component(row, unlike):
    problem = make_problem(EASY, n_nodes=6, topology="complete", unlike=unlike, samples=1000, seed=1)
    result = run(row.solver, problem.covariance(), problem.network, 1, max_rounds=30_000)
    # One that goes to a neighbourhood only makes no promise where nodes are unlike.
    assert angles(result.node_components, problem.vectors).max() < (row.reaches if row.reaches < 1e-3 else 0.3)


@every_solver
def test_one_node_is_ordinary_pca(row):
    X = np.random.default_rng(0).standard_normal((500, 8)) * np.sqrt(EASY) + 4
    problem = from_parts([X], "complete")
    result = run(row.solver, problem.covariance(), problem.network, row.components, max_rounds=30_000)
    assert result.converged
    assert angles(result.components, problem.vectors).max() < 1e-6
    assert result.traffic.bytes == 0


@every_solver
def test_averages_that_differ_in_the_last_bits_do_not_split_the_nodes(row):
    problem = make_problem(EASY, n_nodes=6, samples=1000, seed=2, averaging=Chebyshev(1e-10))
    result = run(row.solver, problem.covariance(), problem.network, row.components, max_rounds=30_000)
    assert angles(result.node_components, problem.vectors).max() < row.reaches


@every_solver
def test_the_same_seed_gives_the_same_bits(row):
    problem = make_problem(EASY, n_nodes=6, samples=200)
    covariance = problem.covariance()
    first, again = (run(row.solver, covariance, problem.network, row.components, max_rounds=400) for _ in range(2))
    assert (first.node_components == again.node_components).all()
    assert first.traffic == again.traffic
    assert first.stop_reason is again.stop_reason


@every_solver
def test_nothing_that_is_passed_in_is_written_to(row):
    covariance = random_covariances(7, 8, seed=0)
    network = Stacked(graphs.metropolis(graphs.topologies.erdos_renyi(7, seed=2)))
    basis = start(covariance, 7, 8, row.components)
    matrices, basis_before = covariance.matrices.copy(), basis.copy()
    state = row.solver.init(covariance, network, basis)
    for _ in range(4):
        before = copied(state)
        after = row.solver.step(covariance, network, state)
        row.solver.readout(state)
        row.solver.check(covariance, network, state)
        assert equal(copied(state), before)
        # The same state gives the same next state: nothing is kept outside of it.
        assert equal(copied(row.solver.step(covariance, network, state)), copied(after))
        state = after
    assert (covariance.matrices == matrices).all()
    assert (basis == basis_before).all()
    with pytest.raises(AttributeError):
        row.solver.name_of_no_field = 1


@every_solver
def test_every_library_runs_the_same_lines(row):
    # Like nodes, so that nothing wanders and rounding does not grow.
    reference = make_problem(EASY, n_nodes=6, samples=1000).covariance().matrices
    network = Stacked(graphs.metropolis(graphs.topologies.erdos_renyi(6, seed=2)))
    solver, seen = row.solver, {}
    for name, xp in LIBRARIES.items():
        matrices = xp.asarray(reference)
        covariance = Formed(matrices)
        state = solver.init(covariance, network, start(covariance, 6, 8, row.components))
        for _ in range(20):
            state = solver.step(covariance, network, state)
        check = solver.check(covariance, network, state)
        X = solver.readout(check.state)
        assert type(X) is type(matrices)
        assert X.dtype == matrices.dtype
        seen[name] = ea.to_numpy(X), check.residual
    for X, residual in seen.values():
        assert np.allclose(same_signs(X, seen["numpy"][0]), seen["numpy"][0], rtol=0, atol=1e-10)
        assert residual is None or np.allclose(residual, seen["numpy"][1], rtol=0, atol=1e-10)


@every_solver
def test_traffic_of_an_iteration_is_as_documented(row):
    covariance = random_covariances(9, 8, seed=0)
    network = Stacked(graphs.metropolis(graphs.topologies.erdos_renyi(9, seed=2)))
    state = row.solver.init(covariance, network, start(covariance, 9, 8, row.components))
    for t in range(52):
        before = network.traffic.copy()
        expected = tuple(count(network, state, t) for count in (row.rounds, row.matrices or row.rounds))
        state = row.solver.step(covariance, network, state)
        sent = network.traffic - before
        assert (sent.rounds, sent.matrices) == expected


@every_solver
def test_estimates_have_norm_one_from_the_start(row):
    problem = make_problem(EASY, n_nodes=6, samples=1000)
    covariance, solver = problem.covariance(), row.solver
    state = solver.init(covariance, problem.network, start(covariance, 6, 8, row.components))
    for _ in range(70):
        X = solver.readout(state)
        assert X.shape == (6, 8, row.components)
        assert np.allclose(np.linalg.norm(X, axis=1), 1)
        state = solver.step(covariance, problem.network, state)


def told(solver, problem, state):
    """The next look at a residual, which may take some iterations to come from all nodes."""
    covariance, network = problem.covariance(), problem.network
    check = solver.check(covariance, network, state)
    while check.residual is not None and np.isinf(check.residual).all():
        check = solver.check(covariance, network, solver.step(covariance, network, check.state))
    return check


@every_solver
def test_the_residual_it_tells_is_that_of_its_estimates(row):
    problem = make_problem(EASY, n_nodes=6, samples=1000)
    covariance, solver = problem.covariance(), row.solver
    C = covariance.matrices.mean(axis=0)
    state = solver.init(covariance, problem.network, start(covariance, 6, 8, row.components))
    for _ in range(69):
        state = solver.step(covariance, problem.network, state)
    # What was on its way so far is old.
    state = told(solver, problem, state).state
    before, check = solver.readout(state), told(solver, problem, solver.step(covariance, problem.network, state))
    assert check.healthy
    if check.residual is not None:
        Z = C @ before
        true = np.linalg.norm(Z - before * np.sum(before * Z, axis=1, keepdims=True), axis=1).max(axis=0)
        # An estimate: within a constant either way.
        assert (true <= 5 * check.residual + 1e-12).all()
        assert (check.residual <= 20 * true + 1e-12).all()


@every_solver
def test_a_name_makes_a_solver(row):
    solver = Request.parse(solver=row.solver.name).solver
    assert isinstance(solver, SOLVERS[row.solver.name])
    assert solver.name == row.solver.name


@pytest.mark.parametrize("bad", [0, -3, 2.5, True, "many", float("nan")])
@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (SDOT, "mixes"),
        (SADOT, "start"),
        (SADOT, "cap"),
        (DeEPCA, "mixes"),
        (SequentialPower, "iterations"),
        (SequentialDistributedPower, "iterations"),
        (SequentialDistributedPower, "mixes"),
    ],
)
def test_a_bad_count_is_refused(kind, field, bad):
    with pytest.raises(InputError, match=f"{field} = {bad!r} must be a whole number of at least 1"):
        kind(**{field: bad})


@pytest.mark.parametrize("bad", [0, -0.1, float("nan"), float("inf"), "fast", True])
@pytest.mark.parametrize(
    ("kind", "field"), [(DSA, "step_size"), (Sanger, "step_size"), (Krasulina, "step_size"), (SADOT, "growth")]
)
def test_a_bad_number_is_refused(kind, field, bad):
    with pytest.raises(InputError, match=f"{field} = {bad!r} must be a finite number above 0"):
        kind(**{field: bad})


def test_a_schedule_that_ends_before_it_begins_is_refused():
    with pytest.raises(InputError, match="cap = 5 must be at least start = 8"):
        SADOT(start=8, cap=5)


def test_krasulina_is_for_one_component():
    problem = make_problem(EASY, n_nodes=4, samples=50)
    with pytest.raises(InputError, match="n_components = 2 must be 1"):
        run(Krasulina(), problem.covariance(), problem.network, 2)
