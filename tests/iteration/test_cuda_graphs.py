"""Replayed iterations: the same states, traffic and answers as plain ones.

Without a GPU the steps are recorded by PyTorch's tracer: it replays the operations on arrays and nothing of Python,
with every number as it was, which is what a CUDA graph does. What only a GPU can show is skipped without one.
"""

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from eigenmesh import arrays as _gpu
from eigenmesh import arrays as ea
from eigenmesh import graphs, run
from eigenmesh.arrays import _one_product, _piece_count, inner_products
from eigenmesh.data import Centring, Formed, MatrixFree, Place
from eigenmesh.iteration import cuda_graphs as capture
from eigenmesh.iteration.cuda_graphs import PlainSteps, ReplayedSteps, steps_of
from eigenmesh.iteration.stopping import StopReason
from eigenmesh.networks import Stacked, Traffic
from eigenmesh.networks.stacked import DENSE_ON_GPU, _at_once
from eigenmesh.solvers import (
    DSA,
    SADOT,
    SDOT,
    SOLVERS,
    BlockKrylov,
    DeEPCA,
    FastPCA,
    Krasulina,
    OrthogonalIteration,
    Sanger,
    SequentialPower,
)
from eigenmesh.solvers.base import random_basis
from problems import angles, with_spectrum

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is seen by PyTorch")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]

VALUES = [5.0, 3.0, 1.8, 1.0, 0.5, 0.25, 0.2, 0.1]
RUN = (FastPCA(), DSA(), Sanger(), DeEPCA(), SDOT(mixes=8), OrthogonalIteration())
REPLAYED = (*RUN, Krasulina())
each_replayed = pytest.mark.parametrize("solver", REPLAYED, ids=lambda solver: solver.name)


class Tracer:
    """A recorder that keeps the operations on arrays alone."""

    def __init__(self) -> None:
        self.recordings = 0

    def __call__(self, action, times, device):
        self.recordings += 1
        traced = make_fx(lambda: action(times))()
        return lambda: traced() and None


def make(device="cpu", n_nodes=5, dtype="float64", unlike=0.3):
    covariance, axes = with_spectrum(VALUES, n_nodes=n_nodes, unlike=unlike)
    weights = graphs.metropolis(graphs.topologies.cycle(n_nodes))
    matrices = torch.asarray(covariance.matrices.astype(dtype), device=device)
    return Formed(matrices), Stacked(weights), axes


def begin(solver, covariance, network):
    k = 1 if solver.name == "krasulina" else 3
    basis = random_basis(covariance.n_features, k, 0)
    start = covariance.place(np.repeat(basis[np.newaxis], network.n_nodes, axis=0))
    return solver.init(covariance, network, start)


def assert_same(state, expected, tolerance=1e-13):
    for name, value in expected._asdict().items():
        given = getattr(state, name)
        if isinstance(value, torch.Tensor):
            assert torch.allclose(given, value, rtol=0, atol=tolerance), name
        else:
            assert given == value, name


def pair(solver, device="cpu", **settings):
    """Plain and replayed steps of one problem, each on a network of its own, and the start."""
    covariance, plain, _ = make(device, **settings)
    replayed = Stacked(plain.weights)
    state = begin(solver, covariance, plain)
    plain.meter.traffic = Traffic()
    if device == "cpu":
        steps = ReplayedSteps(PlainSteps(solver, covariance, replayed), Tracer())
    else:
        steps = steps_of(solver, covariance, replayed, state.X)
        assert isinstance(steps, ReplayedSteps)
    return PlainSteps(solver, covariance, plain), plain, steps, replayed, state


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@each_replayed
def test_replayed_states_and_traffic_are_those_of_plain_steps(solver, device):
    plain, plain_network, replayed, network, state = pair(solver, device)
    expected = state
    for _ in range(7):
        expected, state = plain(expected), replayed(state)
        assert_same(state, expected)
        assert network.traffic == plain_network.traffic
    assert network.traffic.rounds > 0


@pytest.mark.parametrize("device", DEVICES)
def test_a_kept_state_stays_and_a_start_can_be_gone_back_to(device):
    _, _, replayed, _, start = pair(FastPCA(), device)
    kept = replayed.kept(replayed(start))
    before = ea.to_numpy(kept.X).copy()
    state = kept
    for _ in range(3):
        state = replayed(state)
    assert (ea.to_numpy(kept.X) == before).all()
    assert np.abs(ea.to_numpy(state.X) - before).max() > 1e-3
    # Neither the first state nor a kept one has been written on: the same path again.
    assert_same(replayed(start), kept, tolerance=0)
    state = kept
    for _ in range(3):
        state = replayed(state)
    again = replayed.kept(state)
    assert_same(replayed(replayed(replayed(kept))), again, tolerance=0)


@pytest.mark.parametrize("device", DEVICES)
def test_a_mended_state_is_taken_over_whole(device):
    plain, _, replayed, _, state = pair(FastPCA(), device)
    expected = plain(plain(state))
    state = replayed.kept(replayed(replayed(state)))
    # As `check` does: a better anchor, then a new start with half the step.
    expected = expected._replace(anchor=expected.X, best=0.5)
    state = state._replace(anchor=state.X, best=0.5)
    expected, state = plain(expected), replayed(state)
    assert_same(state, expected)
    state = replayed.kept(state)
    expected = plain(expected._replace(X=expected.anchor, step_size=expected.step_size / 2))
    state = replayed(state._replace(X=state.anchor, step_size=state.step_size / 2))
    assert_same(state, expected)


def test_a_step_is_recorded_anew_only_when_a_number_that_it_uses_changes():
    covariance, network, _ = make()
    tracer, solver = Tracer(), FastPCA()
    steps = ReplayedSteps(PlainSteps(solver, covariance, network), tracer)
    state = begin(solver, covariance, network)
    for best in (3.0, 2.0, 1.0):
        state = steps(state._replace(best=best))
    assert (tracer.recordings, state.best) == (1, 1.0)
    state = steps(steps(state._replace(step_size=0.01)))
    assert (tracer.recordings, state.step_size) == (2, 0.01)


@pytest.mark.parametrize("device", DEVICES)
def test_many_iterations_at_once_are_a_few_recordings_and_the_same_states(device):
    plain, plain_network, replayed, network, state = pair(FastPCA(), device)
    # In parts of 16, and 2 more one by one; what is asked for once is not recorded.
    for n, lengths in ((1, set()), (50, {16, 1}), (7, {16, 1}), (50, {16, 1}), (7, {16, 1, 7})):
        expected, state = plain(state, n), replayed(state, n)
        assert_same(state, expected)
        assert network.traffic == plain_network.traffic
        assert {length for length, recording in replayed._recordings.items() if recording} == lengths
        state = replayed.kept(state)


@each_replayed
def test_the_replay_key_names_the_numbers_that_a_step_uses_and_no_others(solver):
    covariance, network, _ = make()
    state = solver.step(covariance, network, begin(solver, covariance, network))
    expected = solver.step(covariance, network, state)
    for name, value in state._asdict().items():
        if isinstance(value, torch.Tensor):
            continue
        changed = solver.step(covariance, network, state._replace(**{name: 1.5 * value if np.isfinite(value) else 1.0}))
        alike = all(
            torch.equal(getattr(changed, field), array)
            for field, array in expected._asdict().items()
            if isinstance(array, torch.Tensor)
        )
        assert alike == (name not in solver.traits.replay_key), name


class Swapping(FastPCA):
    """A made-up solver whose step hands arrays of the old state on in other places."""

    def step(self, covariance, network, state):
        return state._replace(X=network.mix(state.H), S=state.X, H=state.S)


@pytest.mark.parametrize("device", DEVICES)
def test_arrays_that_change_places_are_not_written_over_before_they_are_read(device):
    plain, _, replayed, _, state = pair(Swapping(step_size=0.1), device)
    state = state._replace(S=2 * state.X, H=3 * state.X)
    expected = state
    for _ in range(4):
        expected, state = plain(expected), replayed(state)
        assert_same(state, expected)


@pytest.fixture(params=DEVICES)
def both_runs(request, monkeypatch):
    """A function that runs a solver on a problem twice, with plain and with replayed steps."""

    def run_both(solver, covariance, network, k, **settings):
        with monkeypatch.context() as patch:
            patch.setattr(capture, "on_gpu", lambda array: False)
            expected = run(solver, covariance, Stacked(network.weights), k, **settings)
        if request.param == "cpu":
            # CPU tensors take the way of CUDA tensors, with the tracer in place of the graph.
            monkeypatch.setattr(capture, "on_gpu", lambda array: True)
            monkeypatch.setattr(capture, "cuda_graph", Tracer())
        return run(solver, covariance, network, k, **settings), expected

    run_both.device = request.param
    return run_both


@pytest.mark.slow
@pytest.mark.parametrize("solver", RUN, ids=lambda solver: solver.name)
@pytest.mark.parametrize("with_reference", [False, True], ids=["alone", "reference"])
def test_a_run_is_the_same_when_replayed(solver, with_reference, both_runs):
    covariance, network, axes = make(both_runs.device, unlike=0.02)
    reference = axes[:, :3] if with_reference else None
    # A few hundred rounds show every length of a recording; only the error needs more of them.
    budget = 600 if with_reference else 200
    result, expected = both_runs(solver, covariance, network, 3, max_rounds=budget, reference=reference)
    assert_same_run(result, expected)
    assert result.history[-1].error < 1e-3 or not with_reference


@pytest.mark.parametrize("solver", [FastPCA(step_size=0.01), SDOT(mixes=3)], ids=lambda solver: solver.name)
@pytest.mark.parametrize(("check_every", "max_rounds"), [(7, 25), (None, 33), (40, 20), (1, 4)])
def test_a_run_ends_with_its_budget_when_replayed(solver, check_every, max_rounds, both_runs):
    covariance, network, _ = make(both_runs.device)
    settings = {"check_every": check_every, "max_rounds": max_rounds, "tol": 1e-12}
    result, expected = both_runs(solver, covariance, network, 3, **settings)
    assert result.stop_reason is StopReason.MAX_ROUNDS
    assert_same_run(result, expected)


class Hasty(FastPCA):
    """FAST-PCA whose automatic step begins far too long."""

    def init(self, covariance, network, basis, seed=0):
        state = super().init(covariance, network, basis)
        return state._replace(step_size=40 * state.step_size)


@pytest.mark.slow
def test_a_run_that_shortens_its_step_is_the_same_when_replayed(both_runs):
    covariance, network, axes = make(both_runs.device)
    result, expected = both_runs(Hasty(), covariance, network, 3, max_rounds=3000)
    assert len({record.step_size for record in result.history}) > 3
    assert_same_run(result, expected)
    assert angles(result.node_components, axes).max() < 1e-6


@pytest.mark.parametrize("kind", [Sanger, FastPCA])
def test_a_run_that_diverges_ends_with_its_last_sound_state_when_replayed(kind, both_runs):
    covariance, network, _ = make(both_runs.device)
    result, expected = both_runs(kind(step_size=5.0), covariance, network, 3)
    assert result.stop_reason is StopReason.DIVERGED
    assert np.isfinite(result.node_components).all()
    assert_same_run(result, expected)


def assert_same_run(result, expected, tolerance=1e-12):
    assert (result.iterations, result.stop_reason) == (expected.iterations, expected.stop_reason)
    assert (result.traffic, result.traffic_by_phase) == (expected.traffic, expected.traffic_by_phase)
    assert np.allclose(result.node_components, expected.node_components, rtol=0, atol=tolerance)
    for name in ("rounds", "residual", "error", "step_size"):
        given, wanted = ([getattr(record, name) for record in one.history] for one in (result, expected))
        assert np.allclose(given, wanted, rtol=1e-6, atol=1e-12, equal_nan=True), name


def test_without_a_gpu_every_step_is_a_plain_one():
    for solver in (cls() for cls in SOLVERS.values()):
        covariance, network, _ = make()
        for placed in (covariance, Formed(covariance.matrices.numpy())):
            start = placed.place(np.zeros((network.n_nodes, covariance.n_features, 1)))
            assert isinstance(steps_of(solver, placed, network, start), PlainSteps)


@pytest.mark.parametrize("device", DEVICES)
def test_a_recording_outlives_other_uses_of_the_network(device):
    # Another dtype on the same network must not take the memory of the mixing matrix that the recording reads.
    plain, _, replayed, network, state = pair(FastPCA(), device, dtype="float32")
    expected, state = plain(state), replayed(state)
    matrices = list(network._operators.values())
    for _ in range(3):
        network.lazy_mix(state.X.double(), state.S.double())
        expected, state = plain(expected), replayed(state)
        assert_same(state, expected, tolerance=1e-6)
    kept = list(network._operators.values())
    assert all(any(one is other for other in kept) for one in matrices)
    assert len(kept) > len(matrices)


@pytest.mark.parametrize("d", [1, 7, 64, 97, 784, 1024])
def test_cut_sums_are_the_plain_products(d):
    rng = np.random.default_rng(d)
    X, Z = (torch.asarray(rng.standard_normal((4, d, 3))) for _ in range(2))
    assert d % _piece_count(d) == 0
    for products, squares in (_one_product(X, Z), inner_products(X, Z)):
        assert np.allclose(products, np.swapaxes(X.numpy(), 1, 2) @ Z.numpy(), rtol=0, atol=1e-12)
        assert np.allclose(squares, (X.numpy() ** 2).sum(axis=1), rtol=1e-13)
    assert _piece_count(1024) == 8


@pytest.mark.parametrize("device", DEVICES)
def test_fused_products_are_the_plain_ones(device, monkeypatch):
    # CPU tensors know the same operations, so they may be taken for those of a GPU here.
    monkeypatch.setattr(_gpu, "on_gpu", lambda array: True)
    rng = np.random.default_rng(0)
    X, S = (rng.standard_normal((4, 9, 3)) for _ in range(2))
    C, small = rng.standard_normal((4, 9, 9)), rng.standard_normal((4, 3, 3))
    C = C + C.mT
    there = [torch.asarray(array.copy(), device=device) for array in (C, X, S, small)]
    product = ea.symmetric_product(there[0], there[1])
    assert np.allclose(product.cpu(), C @ X, rtol=0, atol=1e-13)
    # What a product gives is laid out by columns; it can be written over all the same.
    changed = ea.subtract_product(product, there[1], there[3])
    assert np.allclose(changed.cpu(), C @ X - X @ small, rtol=0, atol=1e-13)
    assert changed.data_ptr() == product.data_ptr()
    assert np.allclose(ea.add_scaled(there[1], 0.3, there[2]).cpu(), X + 0.3 * S, rtol=0, atol=1e-15)


def test_several_arrays_mixed_at_once_are_each_the_product():
    rng = np.random.default_rng(0)
    W = torch.asarray(rng.standard_normal((6, 6)))
    X, S, values = (torch.asarray(rng.standard_normal((6, *shape))) for shape in ((5, 2), (5, 2), (3,)))
    for arrays in ((X,), (X, S), (X, values, S)):
        for mixed, array in zip(_at_once(W, arrays), arrays, strict=True):
            assert mixed.shape == array.shape
            assert np.allclose(mixed, np.tensordot(W, array, axes=1), rtol=0, atol=1e-13)


def test_arrays_that_were_mixed_together_are_not_copied_to_be_mixed_again():
    rng = np.random.default_rng(0)
    W = torch.asarray(rng.standard_normal((6, 6)))
    X, S = mixed = _at_once(W, tuple(torch.asarray(rng.standard_normal((6, 5, 2))) for _ in range(2)))
    columns = [array.mT for array in mixed]
    assert all(column.is_contiguous() for column in columns)
    assert ea.stacked(columns).data_ptr() == X.data_ptr()
    for others in ([X.mT], [S.mT, X.mT], [X.mT, X.mT], [X, S], [X.mT, S.mT.clone()]):
        given = ea.stacked(others)
        assert torch.equal(given, torch.stack(others))
        assert (given.data_ptr() == X.data_ptr()) == (len(others) == 1)


@needs_gpu
@pytest.mark.parametrize("solver", RUN, ids=lambda solver: solver.name)
def test_a_run_on_the_gpu_gives_the_angles_of_numpy(solver):
    there, network, _ = make("cuda", unlike=0.02)
    here = Formed(there.matrices.cpu().numpy())
    expected = run(solver, here, Stacked(network.weights), 3, tol=1e-6, max_rounds=600)
    result = run(solver, there, network, 3, tol=1e-6, max_rounds=600)
    assert (result.iterations, result.traffic) == (expected.iterations, expected.traffic)
    assert np.allclose(result.node_components, expected.node_components, rtol=0, atol=1e-12)


@needs_gpu
@pytest.mark.parametrize("n_nodes", [300, DENSE_ON_GPU + 88], ids=["dense", "sparse"])
def test_many_nodes_with_factors_on_the_gpu(n_nodes):
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal((30, 8)) * np.sqrt(VALUES) for _ in range(n_nodes)]
    network = Stacked(graphs.metropolis(graphs.topologies.regular(n_nodes, degree=6, seed=0)))
    centring = Centring(np.zeros(8))
    expected = run(FastPCA(), MatrixFree(tuple(rows), centring), Stacked(network.weights), 3, max_rounds=100)
    there = MatrixFree(tuple(torch.asarray(part, device="cuda") for part in rows), centring, Place.named("cuda"))
    result = run(FastPCA(), there, network, 3, max_rounds=100)
    assert np.allclose(result.node_components, expected.node_components, rtol=0, atol=1e-10)
    assert result.traffic == expected.traffic


@needs_gpu
def test_solvers_that_decide_in_python_are_not_replayed():
    covariance, network, _ = make("cuda")
    start = covariance.place(np.zeros((network.n_nodes, covariance.n_features, 1)))
    for solver in (SADOT(), SequentialPower(), BlockKrylov()):
        assert not isinstance(steps_of(solver, covariance, network, start), ReplayedSteps)
    assert isinstance(steps_of(FastPCA(), covariance, network, start), ReplayedSteps)
