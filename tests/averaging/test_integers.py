"""Averages in integers: what goes in comes out, the same bits in any order, and nothing wraps unseen."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenmesh import graphs
from eigenmesh.averaging import AllReduce, Gossip, Integers
from eigenmesh.averaging.integers import Scaled, Wide
from eigenmesh.errors import DataError, InputError
from eigenmesh.networks import Masking, Stacked

M = 7


def network(topology="cycle", over=None, n_nodes=M):
    averaging = Integers() if over is None else Integers(over)
    return Stacked(graphs.metropolis(graphs.topology(topology, n_nodes)), averaging)


@settings(max_examples=60)
@given(
    n_nodes=st.integers(1, 200),
    values=st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=20),
    seed=st.integers(0, 10**6),
)
def test_two_words_carry_any_sum_to_their_resolution(n_nodes, values, seed):
    wide, share = Wide(n_nodes), np.random.default_rng(seed).standard_normal((n_nodes, len(values)))
    parts = share * np.array(values)
    total = wide.decode(wide.encode(parts, range(n_nodes)).sum(axis=0, keepdims=True))[0]
    exact = parts.astype(np.longdouble).sum(axis=0)
    assert np.all(np.abs(total - exact) <= wide.resolution + 2.0**-52 * np.abs(exact))


@pytest.mark.parametrize("value", [0.0, 1.0, -1.0, 2.0**-64, -(2.0**-64), 3e9, -7e15, 123456789.0, -0.1])
def test_one_number_in_two_words_is_exact(value):
    wide = Wide(8)
    found = wide.decode(wide.encode(np.array([[value]]), [0]))[0, 0]
    assert found == np.rint(value * 2.0**64) * 2.0**-64


def test_moduli_below_the_limit_never_wrap():
    wide = Wide(100)
    largest = np.full((100, 1), np.nextafter(wide.limit, 0))
    for sign in (1, -1):
        total = wide.decode(wide.encode(sign * largest, range(100)).sum(axis=0, keepdims=True))
        assert total[0, 0] == pytest.approx(sign * 100 * wide.limit, rel=1e-15)


@settings(max_examples=40)
@given(order=st.permutations(range(M)), exponent=st.integers(-30, 30))
def test_scaled_sums_are_the_same_bits_in_any_order_and_as_precise_as_they_say(order, exponent):
    values = np.random.default_rng(0).uniform(-1, 1, (M, 5, 2)) * 2.0**exponent
    codec = Scaled.within(np.abs(values).sum(axis=0))
    words = codec.encode(values, range(M))
    total = np.zeros((5, 2), np.uint64)
    for node in order:
        total += words[node]
    assert (codec.decode(total) == codec.decode(words.sum(axis=0))).all()
    exact = values.astype(np.longdouble).sum(axis=0)
    assert np.all(np.abs(codec.decode(total) - exact) <= M * 2.0 ** (exponent + 2 - 62) + 2.0**-53 * np.abs(exact))


@pytest.mark.parametrize("over", [None, AllReduce()], ids=repr)
@pytest.mark.parametrize("topology", ["cycle", "star", "complete"])
def test_products_are_averaged_to_the_stated_accuracy(topology, over):
    rng = np.random.default_rng(1)
    rows = [rng.standard_normal((9, 12)) * np.geomspace(1, 1e-6, 12) for _ in range(M)]
    covariances = np.stack([part.T @ part for part in rows])
    pooled, block = covariances.mean(axis=0), np.linalg.qr(rng.standard_normal((12, 3)))[0]
    made = network(topology, over)
    made.learn_scales(np.diag(pooled).copy())
    off = made.mean(covariances @ block)[0] - pooled @ block
    size = made.scales.size
    average = np.linalg.norm(pooled @ block, axis=0)
    bound = made.size_of_products(np.zeros((M, 1, 3)), average)[0, 0]
    assert np.linalg.norm(covariances @ block, axis=1).mean(axis=0).max() <= bound <= size
    assert np.linalg.norm(off, axis=0).max() <= np.sqrt(M) * made.average.accuracy * size + 4e-16 * size
    assert made.mean(covariances @ block).tobytes() == network_on("path", np.diag(pooled), covariances @ block)


def network_on(topology, diagonal, products):
    other = network(topology)
    other.learn_scales(diagonal.copy())
    return other.mean(products).tobytes()


def test_a_number_beyond_its_scale_is_named_and_nothing_is_sent():
    made = network()
    made.learn_scales(np.ones(4))
    product = np.zeros((M, 4, 2))
    product[3, 2, 1] = 100.0
    with pytest.raises(DataError, match=r"node 3 would send 100 in row 2, beyond the common scale .* nothing is sent"):
        made.mean(product)
    assert made.traffic.messages == 0
    with pytest.raises(DataError, match="node 3 would send nan"):
        made.mean(np.where(product > 0, np.nan, 0.0))


def test_sums_too_large_for_two_words_are_named_and_nothing_is_sent():
    made = network()
    numbers = np.ones((M, 3))
    numbers[5, 1] = -1e19
    with pytest.raises(DataError, match=r"node 5 would send -1e\+19.*below 1.6\d*e\+17.*Divide the data"):
        made.mean(numbers)
    assert made.traffic.messages == 0


def test_products_need_scales_and_integers_a_sum():
    with pytest.raises(InputError, match="learn_scales"):
        network().size_of_products(np.ones((M, 1, 2)), np.ones((1, 1, 2)))
    with pytest.raises(InputError, match=r"over = Gossip.* must be Tree\(\) or AllReduce\(\)"):
        Integers(Gossip())


class Drawn:
    """Masks of one node, by a generator that all share: they cancel over the nodes."""

    def __init__(self, node):
        self.node, self.numbers = node, []

    def masked(self, number, words):
        self.numbers.append(number)
        drawn = np.random.default_rng(number).integers(0, 2**64, (M, words.size), dtype=np.uint64)
        return words + drawn[self.node] - drawn[(self.node + 1) % M]

    def hear(self, digest):
        """These masks are not bound to what nodes have heard."""


def test_masks_are_added_once_per_average_with_its_number_and_cancel():
    plain, masked = network(), network()
    masked.masking = Masking([Drawn(node) for node in range(M)])
    sent = []
    added = masked.masking.added
    masked.masking.added = lambda words: sent.append(added(words)) or sent[-1]
    numbers = np.random.default_rng(0).standard_normal((M, 3))
    assert masked.mean(numbers).tobytes() == plain.mean(numbers).tobytes()
    for made in (plain, masked):
        made.learn_scales(np.ones(4))
    product = np.random.default_rng(1).uniform(-0.5, 0.5, (M, 4, 2))
    assert masked.mean(product).tobytes() == plain.mean(product).tobytes()
    assert masked.mean(product).tobytes() == plain.mean(product).tobytes()
    assert [masks.numbers for masks in masked.masking.masks] == [[0, 1, 2]] * M
    assert not (sent[1] == sent[2]).any()


@pytest.mark.parametrize("over", [None, AllReduce()], ids=repr)
def test_the_root_gives_its_bits_to_all(over):
    made = network(over=over)
    values = np.random.default_rng(2).standard_normal((M, 4, 3))
    values[:, 0, 0] = [-0.0, 0.0, *[-0.0] * 5]
    found = made.broadcast(values)
    assert (found == found[0]).all()
    assert any(found[0].tobytes() == own.tobytes() for own in values)
    if over is None:
        assert (made.traffic.messages, made.traffic.bytes) == (M - 1, (M - 1) * 96)
