"""Alarms of a stream: means of T2 and SPE beside those of quiet batches, by batches of any size."""

import numpy as np
import pytest

from eigenmesh import StreamingPCA
from eigenmesh.data import Moments
from eigenmesh.fitting.monitor import NUMBERS, Monitor, Sums

K, D = 3, 12
# Shape of the distribution of T2 and SPE: degrees of freedom.
FREEDOM = np.array([K, 7.0])


def numbers(values):
    """What nodes add up about a batch of T2 and SPE, (n, 2), with nobody beyond a limit."""
    sums = values.sum(axis=0), (values**2).sum(axis=0)
    return np.concatenate([[len(values), 0, 0], *sums, *sums, np.zeros(K + D)])


def summed(values):
    return Sums.of(numbers(values)[:NUMBERS])


def checked(watch, values):
    return watch.checked(0, watch.read(numbers(values))[0], 0.0)


def drawn(rng, n, scale=1.0):
    """T2 with mean K, and SPE with mean 7."""
    return scale * rng.chisquare(FREEDOM, size=(n, 2))


def monitor(quiet):
    """One whose components were fitted to so many samples that they do not move any more."""
    moments = Moments(10**9, np.zeros(D), np.full(D, (7.0 + K) / D))
    return Monitor(np.eye(K, D), np.ones(K), moments, quiet)


def false_alarms(rng, quiet, n, batches, spread=0.0):
    watch = monitor(quiet)
    scales = np.exp(spread * rng.standard_normal(batches))
    return np.mean([checked(watch, drawn(rng, n, scale)).alarm for scale in scales])


@pytest.mark.parametrize("n", [1, 20, 500])
@pytest.mark.parametrize("n_quiet", [200, 20_000])
def test_quiet_batches_of_any_size_raise_the_alarm_once_in_five_hundred(n, n_quiet):
    rates = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        rates.append(false_alarms(rng, summed(drawn(rng, n_quiet)), n, batches=100))
    assert np.mean(rates) < 0.007


@pytest.mark.parametrize(("n", "scale"), [(20, 2.0), (100, 1.5), (100, 0.6), (5000, 1.05)])
def test_a_mean_that_is_off_raises_the_alarm_the_sooner_the_more_samples_there_are(n, scale):
    rng = np.random.default_rng(0)
    watch = monitor(summed(drawn(rng, 10**5)))
    found = [checked(watch, drawn(rng, n, scale)) for _ in range(100)]
    assert np.mean([event.alarm for event in found]) > 0.9
    assert np.mean(["its mean SPE is" in event.message for event in found]) > 0.8


def test_batches_that_have_always_differed_are_quiet():
    rng, quiet = np.random.default_rng(0), summed(drawn(np.random.default_rng(1), 50))
    for scale in np.exp(0.1 * rng.standard_normal(300)):
        quiet = quiet.plus(monitor(quiet).read(numbers(drawn(rng, 500, scale)))[0])
    assert false_alarms(rng, quiet, 500, batches=300, spread=0.1) < 0.015
    # As if they were one long batch, they would not be.
    together = summed(np.vstack([drawn(rng, 500, scale) for scale in np.exp(0.1 * rng.standard_normal(100))]))
    assert false_alarms(rng, together, 500, batches=200, spread=0.1) > 0.1


def test_a_batch_without_samples_and_the_first_one_are_quiet():
    rng = np.random.default_rng(0)
    assert not checked(monitor(summed(drawn(rng, 100))), np.zeros((0, 2))).alarm
    assert not checked(monitor(summed(np.zeros((0, 2)))), drawn(rng, 100, 50.0)).alarm


def test_all_components_leave_only_rounding_which_is_no_reason_for_an_alarm():
    rng, alarms = np.random.default_rng(0), []
    pca = StreamingPCA(4, n_nodes=2, averages_per_batch=2, on_alarm=alarms.append)
    for _ in range(15):
        pca.partial_fit(rng.standard_normal((100, 4)) * [4, 3, 2, 1] + 1000)
    assert not alarms
    # Without the rule there is one: residuals are not zero, and differ.
    assert pca._stream.monitor.quiet.mean[1] > 0


def test_a_few_samples_far_out_do_not_move_the_mean():
    rng = np.random.default_rng(0)
    quiet = summed(drawn(rng, 1000))
    moments = Moments(10**9, np.zeros(D), np.full(D, (7.0 + K) / D))
    watch = Monitor(np.eye(K, D), np.ones(K), moments, quiet)
    rows = rng.standard_normal((100, D)) * np.sqrt([1.0] * K + [7.0 / (D - K)] * (D - K))
    rows[:2] *= 1e3
    # They are on both sides of the mean.
    rows[1] = -rows[0]
    event = watch.checked(0, watch.read(watch.node_sums(rows))[0], 0.0)
    assert event.spe_share == 0.02
    assert not event.alarm
    # All of them, moved by half a standard deviation, are not far out, but their mean is.
    event = watch.checked(0, watch.read(watch.node_sums(rows + 0.5 * np.eye(D)[0]))[0], 0.0)
    assert event.message.startswith("T2 of its mean is")
