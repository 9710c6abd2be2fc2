"""The parts that a network holds, each alone: its meter, its integer codec, and what carries messages over time."""

import numpy as np
import pytest

from eigenmesh import graphs
from eigenmesh.averaging import Gossip, Integers, LinearRound
from eigenmesh.errors import InputError
from eigenmesh.networks import Meter, Stacked, Traffic
from eigenmesh.networks.changing import AllHere, OneHere
from eigenmesh.networks.codec import ProductScales, format_of
from eigenmesh.transports import run_threads

M = 5
RING = graphs.metropolis(graphs.topologies.cycle(M))
MIXING = LinearRound(RING.matrix)


def test_a_meter_counts_each_message_with_all_that_is_in_it():
    meter = Meter()
    # One node's part: a matrix of 4 x 2 numbers and a vector of 3.
    arrays = np.zeros((M, 4, 2)), np.zeros((M, 3), dtype=np.float32)
    assert meter.count_rounds(MIXING, arrays, rounds=3, extra=8) == 8 + 8 * (8 + 3)
    assert meter.traffic == Traffic(3, 3 * 2 * M, 3, 3 * 2 * M * 96)
    assert meter.by_link() == {link: (3, 3 * 96) for i in range(M) for link in ((i, (i + 1) % M), (i, (i - 1) % M))}


def test_an_all_reduce_uses_no_link():
    meter = Meter()
    meter.count(2 * (M - 1), (np.zeros((M, 3)),))
    assert meter.traffic == Traffic(1, 2 * (M - 1), 0, 2 * (M - 1) * 24)
    assert meter.by_link() == {}


def test_a_paused_meter_keeps_its_counts():
    meter = Meter()
    meter.count_rounds(MIXING, (np.zeros((M, 3)),))
    counted, over_links = meter.traffic.copy(), meter.by_link()
    with meter.paused():
        meter.count_rounds(MIXING, (np.zeros((M, 7)),), rounds=9)
        assert meter.traffic.rounds == 10
    assert (meter.traffic, meter.by_link()) == (counted, over_links)


def test_counts_add_up_and_can_be_taken_apart():
    one, other = Traffic(1, 2, 3, 4), Traffic(10, 20, 30, 40)
    assert (one + other) - other == one
    shared = one
    one += other
    # In place: what shares the counts sees them grow.
    assert shared == Traffic(11, 22, 33, 44)


def test_a_codec_takes_the_format_of_what_is_known():
    network = Stacked(RING, Integers())
    parts = np.random.default_rng(0).uniform(-1, 1, (M, 3))
    wide = format_of(None, None, M)
    assert wide.encode(parts, range(M)).shape == (M, 6)
    scaled = format_of(np.abs(parts).sum(axis=0), None, M)
    total = scaled.decode(scaled.encode(parts, range(M)).sum(axis=0))
    np.testing.assert_allclose(total, parts.sum(axis=0), rtol=0, atol=1e-15)
    with pytest.raises(InputError, match=r"call network\.learn_scales first"):
        network.size_of_products(parts, np.full((1, 1), 0.5))
    network.learn_scales(np.ones(3))
    scales = ProductScales.of(np.ones(3), M)
    # One word for each number of a product, by the scale of its row.
    assert format_of(None, scales, M).encode(parts[:, :, np.newaxis] / M, range(M)).shape == (M, 3, 1)
    assert 0 < float(network.size_of_products(parts, np.full((1, 1), 0.5))[0, 0]) <= scales.size


def test_maxima_on_a_piggyback_are_those_of_the_values_and_end_with_them():
    network, values = Stacked(RING), np.random.default_rng(0).standard_normal((M, 3))
    assert not network.piggybacking
    network.piggyback(values)
    for _ in range(network.flood_rounds):
        assert network.piggybacked() is None
        network.mix(np.zeros((M, 2)))
    assert (network.piggybacked() == values.max(axis=0)).all()
    assert not network.piggybacking
    assert network.piggybacked() is None
    # The values were in each message besides the two numbers that were mixed.
    assert network.traffic.bytes == network.traffic.messages * (2 + 3) * 8


def test_maxima_that_travel_with_an_average_do_not_move_a_piggyback_on():
    network = Stacked(RING, Gossip(1e-3))
    network.piggyback(np.zeros((M, 3)))
    for _ in range(4):
        network.common_mean_and_maximum(np.ones((M, 2)), np.ones((M, 1)))
    assert network.piggybacking
    assert network.piggybacked() is None


@pytest.mark.parametrize("seed", range(3))
def test_one_node_gets_what_all_nodes_in_one_process_would(seed):
    rng = np.random.default_rng(seed)
    linked = (rng.random((M, M)) < 0.5) | np.eye(M, dtype=bool)
    weights, values = np.where(linked, rng.random((M, M)), 0.0), rng.standard_normal((M, 4))
    here = AllHere(M)
    (stack,) = here.received(linked, (values,))
    sums, maxima = here.sums(weights, stack), here.maxima(linked, stack)

    def node(transport):
        one = OneHere(transport)
        (received,) = one.received(linked, (values[[transport.rank]],))
        return one.ids, one.sums(weights, received), one.maxima(linked, received)

    for rank, (ids, own_sums, own_maxima) in enumerate(run_threads(M, node)):
        assert tuple(ids) == (rank,)
        assert own_sums.tobytes() == sums[[rank]].tobytes()
        assert (own_maxima == maxima[[rank]]).all()
