"""partial_fit: after every batch the answer is that of all samples so far, certified, with few averages."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA, IncrementalPCA
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from eigenmesh import DecentralizedPCA, StreamingPCA
from eigenmesh.data.datasets import gaussian, power_law_spectrum
from eigenmesh.data.stream import RunningCovariance, RunningRows, RunningScatter
from eigenmesh.errors import DataError, InputError, TooFewSamplesError
from problems import angles

D, K, BATCH = 150, 4, 120


def stream(n_batches=8, seed=0):
    """Batches (120, 150) with a mean far from zero, which drifts, and the node of each row; node 3 is never asked."""
    rng = np.random.default_rng(seed)
    rows = gaussian(power_law_spectrum(D, 1.0), n_batches * BATCH, seed) + 30 * rng.standard_normal(D)
    rows += np.linspace(0, 1, len(rows))[:, np.newaxis] * rng.standard_normal(D)
    owners = rng.choice([0, 1, 2, 4], p=[0.1, 0.2, 0.3, 0.4], size=len(rows))
    return [(rows[k : k + BATCH], owners[k : k + BATCH]) for k in range(0, len(rows), BATCH)]


def sines(pca, X, weights=None):
    """Angles of the components of all nodes to those of the weighted covariance of X."""
    C = np.cov(X.T) if weights is None else weighted_covariance(X, weights)[1]
    truth = np.linalg.eigh(C)[1][:, ::-1][:, : pca.n_components_]
    return max(angles(each, truth).max() for each in pca.node_components_)


def weighted_covariance(X, weights):
    total = weights.sum()
    mean = weights @ X / total
    return mean, (X - mean).T @ ((X - mean) * weights[:, np.newaxis]) / (total - 1)


def follow(pca, batches):
    for X, nodes in batches:
        pca.partial_fit(X, nodes=nodes)
    return pca


def test_every_batch_is_certified_in_few_averages():
    pca, seen, averages = StreamingPCA(K, n_nodes=5, topology="complete"), [], []
    for X, nodes in stream():
        pca.partial_fit(X, nodes=nodes)
        seen.append(X)
        assert pca.result_.converged
        assert pca.certificate_.seed_drawn
        assert sines(pca, np.vstack(seen)) <= pca.certificate_.error_bound <= 1e-6
        assert np.allclose(pca.mean_, np.vstack(seen).mean(axis=0), rtol=1e-13)
        averages.append(pca.traffic_.rounds)
    assert pca.n_samples_seen_ == pca.n_samples_ == len(np.vstack(seen))
    # An average takes two rounds, and the exchange of maxima that ends the certificate one.
    assert np.mean(averages[4:]) - 1 <= 2 * 5 < averages[0] - 1
    assert pca.result_.traffic_by_phase["set-up"].rounds == 2


@pytest.mark.parametrize("scale", [False, True])
def test_the_last_answer_is_that_of_fit_on_everything_in_any_order(scale):
    batches = stream(5)
    whole = np.vstack([X for X, _ in batches])
    fitted = DecentralizedPCA(K, n_nodes=5, tol=1e-10, scale=scale).fit(whole)
    rng = np.random.default_rng(1)
    turned = [(X, rng.permutation(nodes)) for X, nodes in (batches[k] for k in rng.permutation(5))]
    for order in (batches, turned):
        pca = follow(StreamingPCA(K, n_nodes=5, tol=1e-10, scale=scale), order)
        assert np.abs(pca.components_ - fitted.components_).max() < 1e-9
        for name in (
            "explained_variance_",
            "mean_",
            "noise_variance_",
            "singular_values_",
            "explained_variance_ratio_",
        ):
            assert np.allclose(getattr(pca, name), getattr(fitted, name), rtol=1e-10), name
        assert (pca.scale_ is None) if not scale else np.allclose(pca.scale_, fitted.scale_, rtol=1e-12)


def test_two_averages_a_batch_follow_far_closer_than_incremental_pca():
    pca = StreamingPCA(K, n_nodes=5, topology="complete", averages_per_batch=2)
    theirs = IncrementalPCA(K)
    batches = sorted(stream(12), key=lambda batch: batch[0][0, 0])
    for X, nodes in batches:
        pca.partial_fit(X, nodes=nodes)
        theirs.partial_fit(X)
    # Two averages, then maxima: each goes up a tree and down again.
    assert pca.traffic_.rounds == 6
    truth = PCA(K).fit(np.vstack([X for X, _ in batches])).components_.T
    ours, other = (np.mean(angles(each.components_, truth) ** 2) for each in (pca, theirs))
    assert ours < 1e-7 < 1e-3 * other
    # So few products cannot rule out that something was missed, and that is said.
    assert "nothing is certified" in pca.certificate_.warnings[0]


def test_a_direction_that_appears_is_found_at_once():
    rng = np.random.default_rng(3)
    pca = StreamingPCA(K, n_nodes=5)
    for tick in range(6):
        X = rng.standard_normal((BATCH, D)) * np.where(np.arange(D) < 60, np.linspace(3, 1, D), 0.0)
        if tick == 5:
            X[:, 140] += 40 * rng.standard_normal(BATCH)
        pca.partial_fit(X, nodes=rng.integers(0, 5, BATCH))
        assert pca.result_.converged
    assert np.argmax(np.abs(pca.components_[0])) == 140


def test_forgetting_is_direct_weighting():
    batches, weights = stream(6), []
    pca = StreamingPCA(K, n_nodes=5, tol=1e-9, forgetting=0.8)
    for X, nodes in batches:
        weights = [0.8 * w for w in weights] + [np.ones(len(X))]
        pca.partial_fit(X, nodes=nodes)
    seen, weights = np.vstack([X for X, _ in batches]), np.concatenate(weights)
    mean, C = weighted_covariance(seen, weights)
    assert np.allclose(pca.mean_, mean, rtol=1e-12)
    assert np.allclose(pca.explained_variance_, np.linalg.eigvalsh(C)[::-1][:K], rtol=1e-12)
    assert sines(pca, seen, weights) < 1e-9
    assert pca.n_samples_seen_ == len(seen) > pca.n_samples_ == round(weights.sum())


def test_a_window_is_fit_on_what_is_in_it(tmp_path):
    batches = stream(6)
    inside = np.vstack([X for X, _ in batches[-3:]])
    for settings in ({}, {"store": tmp_path}):
        pca = follow(StreamingPCA(K, n_nodes=5, tol=1e-9, window=3, **settings), batches)
        assert sines(pca, inside) < 1e-9
        assert np.allclose(pca.mean_, inside.mean(axis=0), rtol=1e-13)
        assert (pca.n_samples_, pca.n_samples_seen_) == (3 * BATCH, 6 * BATCH)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) == inside.nbytes
    again = pickle.loads(pickle.dumps(pca))
    del pca
    assert sines(follow(again, batches[:2]), np.vstack([X for X, _ in [batches[-1], *batches[:2]]])) < 1e-9
    del again
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("settings", [{}, {"forgetting": 0.7}, {"scale": True}])
def test_rows_in_files_give_the_answer_of_moments(tmp_path, settings):
    moments, rows = (
        follow(StreamingPCA(K, n_nodes=5, tol=1e-9, store=store, **settings), stream(4)) for store in (None, tmp_path)
    )
    assert np.abs(moments.components_ - rows.components_).max() < 1e-8
    assert np.allclose(moments.explained_variance_, rows.explained_variance_, rtol=1e-12)
    assert np.allclose(moments.noise_variance_, rows.noise_variance_, rtol=1e-12)


def test_more_components_than_samples_wait_and_say_so():
    pca = StreamingPCA(3, n_nodes=2)
    rows = np.random.default_rng(0).standard_normal((9, 6))
    for row in rows[:3]:
        with pytest.warns(ConvergenceWarning, match="nothing is fitted yet"):
            pca.partial_fit(row[np.newaxis])
        with pytest.raises(NotFittedError):
            pca.transform(rows)
    pca.partial_fit(rows[3:])
    assert sines(pca, rows) < 1e-6
    assert pca.n_samples_seen_ == 9


@pytest.mark.parametrize(("rank", "k"), [(89, 1), (89, 4), (89, 25), (20, 4), (20, 20)])
def test_fewer_samples_than_features(rank, k):
    # After each batch the solver has used up the range of the samples before it has as many directions as it may keep.
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, rank)) @ np.linalg.qr(rng.standard_normal((200, rank)))[0].T
    pca = StreamingPCA(k, n_nodes=4, topology="cycle", random_state=0)
    for end in (30, 60, 90):
        pca.partial_fit(X[end - 30 : end])
        assert pca.result_.converged
        assert sines(pca, X[:end]) <= pca.certificate_.error_bound <= 1e-6


def test_threads_give_the_answer_of_the_simulation():
    batches = stream(3)
    here = follow(StreamingPCA(K, n_nodes=5, tol=1e-9), batches)
    threads = follow(StreamingPCA(K, n_nodes=5, tol=1e-9, transport="threads"), batches)
    assert np.abs(here.components_ - threads.components_).max() < 1e-8
    assert abs(threads.n_iter_ - here.n_iter_) <= 1
    assert threads.node_components_.shape == (5, K, D)


def test_a_stream_can_be_saved_and_goes_on():
    batches = stream(4)
    pca = follow(StreamingPCA(K, n_nodes=5, random_state=0), batches[:2])
    again = pickle.loads(pickle.dumps(pca))
    for each in (pca, again):
        follow(each, batches[2:])
    assert (pca.components_ == again.components_).all()
    assert pca.result_.seed != follow(StreamingPCA(K, n_nodes=5, random_state=0), batches[:1]).result_.seed


def test_names_and_parts():
    frame = pd.DataFrame(np.random.default_rng(0).standard_normal((40, 3)), columns=["a", "b", "c"])
    pca = StreamingPCA(2).partial_fit(frame, nodes=["north", "south"] * 20)
    pca.partial_fit(frame[:5], nodes=["south"] * 5)
    assert pca.node_names_ == ("north", "south")
    assert list(pca.feature_names_in_) == ["a", "b", "c"]
    assert list(pca.get_feature_names_out()) == ["streamingpca0", "streamingpca1"]
    named = frame.assign(site=["north", "south"] * 20)
    by_column = StreamingPCA(2).partial_fit(named, nodes="site")
    by_column.partial_fit(named[1:10:2], nodes="site")
    assert by_column.node_names_ == ("north", "south")
    assert by_column.n_samples_seen_ == 45
    assert np.array_equal(by_column.transform(named), by_column.transform(frame))
    with pytest.raises(InputError, match="X has no column 'place' for nodes="):
        by_column.partial_fit(named, nodes="place")
    with pytest.raises(DataError, match="row 2 has no entry in nodes"):
        StreamingPCA(2).partial_fit(named.assign(site=[*"ab", None, *"a" * 37]), nodes="site")
    rows = frame.to_numpy()
    parts = StreamingPCA(2).partial_fit([rows[:30], rows[:0], rows[30:]]).partial_fit([rows[:0], rows[:5], rows[:0]])
    assert np.allclose(np.abs(parts.components_), np.abs(pca.components_), atol=1e-6)
    assert parts.n_nodes_ == 3


def test_a_change_raises_the_alarm_within_one_batch_and_quiet_batches_do_not():
    rng, alarms = np.random.default_rng(5), []
    pca = StreamingPCA(3, n_nodes=4, on_alarm=alarms.append)
    spread = np.array([6.0, 5.0, 4.0, *np.linspace(2, 0.5, 17)])
    for tick in range(41):
        X = rng.standard_normal((100, 20)) * spread
        if tick == 40:
            X[:, 12] += 5 * rng.standard_normal(100)
        pca.partial_fit(X, nodes=rng.integers(0, 4, 100))
        if tick < 40:
            assert not alarms
        if 0 < tick < 40:
            assert 0 <= pca.batch_.variance_lost < 0.1
    assert [alarm.batch for alarm in alarms] == [40]
    assert alarms[0] == pca.batch_
    assert "limit of SPE" in alarms[0].message
    assert np.argmax(pca.batch_residuals_) == 12
    # What was sent for it went with the moments.
    assert pca.result_.traffic_by_phase["set-up"].rounds <= 6


def test_weak_changes_of_real_data_raise_the_alarm_within_one_batch():
    X, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    pca = StreamingPCA(8, n_nodes=4, averages_per_batch=2)
    for _ in range(40):
        pca.partial_fit(X[rng.integers(0, len(X), 100)])
        assert pca.batch_ is None or not pca.batch_.alarm
    usual, ones = X[rng.integers(0, len(X), 100)], X[labels == 1][:100]
    turned = usual.reshape(-1, 8, 8).transpose(0, 2, 1).reshape(-1, 64)
    for changed in (ones, turned, usual + 1.5 * rng.standard_normal(usual.shape)):
        again = pickle.loads(pickle.dumps(pca)).partial_fit(changed)
        assert again.batch_.alarm
    assert "its mean SPE is" in again.batch_.message


def test_limits_hold_one_percent_of_gaussian_samples():
    rng = np.random.default_rng(0)
    spread = np.array([6.0, 5.0, 4.0, *np.linspace(2, 0.5, 17)])
    pca = StreamingPCA(3, n_nodes=4)
    for _ in range(4):
        pca.partial_fit(rng.standard_normal((2000, 20)) * spread)
    monitor = pca._stream.monitor
    t2, spe, squares = monitor.statistics(rng.standard_normal((50000, 20)) * spread)
    assert 0.008 < np.mean(t2 > monitor.t2_limit) < 0.012
    assert 0.006 < np.mean(spe > monitor.spe_limit) < 0.016
    assert np.allclose(squares.sum(axis=1), spe)


BATCH_0 = np.random.default_rng(0).standard_normal((30, 6))


@pytest.mark.parametrize(
    ("batch", "settings", "message"),
    [
        (BATCH_0[:, :5], {}, "6 features"),
        (np.where(np.eye(30, 6) > 0, np.nan, BATCH_0), {}, "row 0, column 0 is nan"),
        ([BATCH_0, BATCH_0], {}, "for 2 nodes, but the stream has 3"),
        (BATCH_0, {"nodes": [7] * 30}, "node 7 is not a node of the stream"),
        (BATCH_0, {"nodes": [0] * 29}, "one entry for each of 30"),
        (BATCH_0, {"batch": "monday"}, "batch 'monday' was counted before"),
    ],
    ids=["columns", "nan", "parts", "node", "nodes", "twice"],
)
def test_a_bad_batch_is_refused_and_not_counted(batch, settings, message):
    pca = StreamingPCA(2, n_nodes=3).partial_fit(BATCH_0, batch="monday")
    before = pca.components_
    with pytest.raises(ValueError, match=message):
        pca.partial_fit(batch, **settings)
    assert pca.n_samples_seen_ == 30
    assert (pca.partial_fit(BATCH_0, batch="tuesday").components_ == before).mean() < 1
    assert pca.n_samples_ == 60
    assert issubclass(DataError, ValueError)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"forgetting": 0.0}, "forgetting = 0.0 must be"),
        ({"forgetting": 1.1}, "forgetting = 1.1 must be"),
        ({"averages_per_batch": 1}, "averages_per_batch = 1 must be"),
        ({"missing": "mean"}, "needs all samples at once"),
        ({"privacy": "masked", "n_nodes": 2}, "2 nodes cannot be masked"),
        ({"window": 2, "device": "cpu"}, "keep rows in NumPy"),
        ({"window": 0}, "window = 0 must be"),
        ({"store": "no such folder"}, "must be a folder that exists"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        StreamingPCA(2, **settings).partial_fit(BATCH_0)


def test_fit_begins_a_new_stream():
    pca = StreamingPCA(2, n_nodes=2).partial_fit(BATCH_0, batch="monday").fit(BATCH_0[:20])
    assert pca.n_samples_ == pca.n_samples_seen_ == 20
    pca.partial_fit(BATCH_0[20:], batch="monday")
    assert pca.n_samples_ == pca.n_samples_seen_ == 30
    whole = DecentralizedPCA(2, n_nodes=2).fit(BATCH_0)
    np.testing.assert_allclose(pca.explained_variance_, whole.explained_variance_)


def test_fit_on_too_few_samples_raises_and_leaves_the_stream_as_it_was():
    pca = StreamingPCA(2, n_nodes=2).partial_fit(BATCH_0)
    components = pca.components_
    with pytest.raises(TooFewSamplesError, match="n_components = 2"):
        pca.fit(BATCH_0[:2])
    assert pca.components_ is components
    assert pca.partial_fit(BATCH_0[:2]).n_samples_seen_ == 32


# Steps of an eighth at 2^40, whose last digit in float64 is 2^-12: every sum and difference of two of them is exact.
FAR = np.random.default_rng(0).integers(-24, 25, (1200, 4)) * np.array([0.5, 0.375, 0.25, 0.125]) + 2.0**40


@pytest.mark.parametrize("empty", [RunningScatter.empty(4), RunningRows(4)], ids=lambda running: type(running).__name__)
def test_rows_that_hardly_move_a_large_mean_are_not_lost(empty):
    running = empty
    for row in FAR:
        running = running.ticked(row[np.newaxis], 1.0)
    centred = (FAR - 2.0**40).astype(np.longdouble)
    mean = centred.mean(axis=0)
    scatter = (centred - mean).T @ (centred - mean)
    np.testing.assert_allclose(running.mean_from(np.full(4, 2.0**40)), mean.astype(float), rtol=1e-12)
    np.testing.assert_allclose(running.squares, np.diag(scatter).astype(float), rtol=1e-12)
    np.testing.assert_allclose(running.product(np.eye(4)), scatter.astype(float), rtol=0, atol=1e-12 * scatter.max())


@pytest.mark.parametrize("window", [None, 1000])
def test_a_stream_of_single_rows_with_a_large_mean_is_exact(window):
    rows = FAR[:150]
    pca = StreamingPCA(2, n_nodes=2, topology="complete", window=window)
    pca.partial_fit(rows[:20], nodes=np.arange(20) % 2)
    for t, row in enumerate(rows[20:]):
        pca.partial_fit(row[np.newaxis], nodes=np.array([t % 2]))
    assert pca.result_.converged
    assert sines(pca, rows - 2.0**40) <= pca.certificate_.error_bound <= 1e-9
    assert np.allclose(pca.explained_variance_, np.linalg.eigvalsh(np.cov((rows - 2.0**40).T))[:1:-1], rtol=1e-12)


def test_sums_of_many_batches_count_in_the_certificate():
    running = RunningScatter.empty(4)
    for row in FAR:
        running = running.ticked(row[np.newaxis], 1.0)
    covariance = RunningCovariance([running], running.mean, 1.0)
    assert covariance.rounding_size == pytest.approx(1199 / 16 * running.squares.sum())
    forgetful = RunningScatter.empty(4)
    for row in FAR:
        forgetful = forgetful.ticked(row[np.newaxis], 0.9)
    assert forgetful.rounded == pytest.approx(10)
