"""The page on the threat model claims what neighbours can work out; here they do."""

import numpy as np
import pytest
from scipy import stats

from eigenmesh import graphs, run
from eigenmesh.averaging import Integers, Polynomial, Tree
from eigenmesh.averaging._fixed_point import Scaled
from eigenmesh.data import Shards, build_covariance, pooled_moments
from eigenmesh.fitting._privacy import add_masks
from eigenmesh.masking import MaskContext, PairwiseMasks, SiteKey, pair_key, pairwise_masks
from eigenmesh.networks import Peers
from eigenmesh.sites._audit_summary import RunSummary
from eigenmesh.solvers import BlockKrylov
from eigenmesh.transports import run_threads

D, K, M = 40, 5, 4


class Curious:
    """A site that follows the protocol and keeps what it multiplies and what each neighbour sends."""

    def __init__(self, transport, covariance_of):
        self.seen: list[tuple[np.ndarray, dict[int, np.ndarray]]] = []
        self._transport, self._exchange = transport, transport.exchange
        transport.exchange = self._listen
        self._covariance_of, self._block = covariance_of, None

    def covariance(self, shards, moments):
        covariance = self._covariance_of(shards, moments)
        apply = covariance.apply

        def watched(X):
            self._block = X[0].copy()
            return apply(X)

        object.__setattr__(covariance, "apply", watched)
        return covariance

    def _listen(self, arrays, links):
        received = self._exchange(arrays, links)
        if self._block is not None:
            matrices = {
                sender: theirs[0][0].copy()
                for sender, theirs in received.items()
                if theirs[0].ndim == 3 and theirs[0].shape[1:] == self._block.shape
            }
            # The first messages after a product are products; later ones of the same average are mixtures.
            self.seen.append((self._block, matrices))
            self._block = None
        return received


def _spy(sizes, topology, averaging, spy, oversample=5, masked=False):
    """Run with real messages; what the spy saw, and the true covariances. Integers are shown by their public scales."""
    rng = np.random.default_rng(1)
    scales = np.linspace(3, 0.3, D)
    parts = [rng.standard_normal((size, D)) * scales for size in sizes]
    shards = Shards.from_list(parts)
    weights = graphs.metropolis(topology)

    def work(transport):
        network, own = Peers(weights, transport, averaging), shards.take([transport.rank])
        if masked:
            add_masks(network)
        moments = pooled_moments(own, network, resolution=network.resolution)
        network.learn_scales(moments.diagonal)
        if transport.rank != spy:
            run(BlockKrylov(oversample), build_covariance(own, moments), network, K, tol=1e-9)
            return None
        curious = Curious(transport, build_covariance)
        run(BlockKrylov(oversample), curious.covariance(own, moments), network, K, tol=1e-9)
        if network.integers:
            scaled = Scaled.within(network.scales.rows[:, np.newaxis])
            return [(B, {one: scaled.decode(words) for one, words in sent.items()}) for B, sent in curious.seen]
        return curious.seen

    seen = run_threads(M, work)[spy]
    X = np.vstack(parts)
    centred = [part - X.mean(axis=0) for part in parts]
    return seen, [M / (len(X) - 1) * part.T @ part for part in centred]


def _worked_out(seen, victim):
    """C = Y (B^T Y)^+ Y^T from the products Y = C B that were seen, and how many columns there were."""
    pairs = [(block, sent[victim]) for block, sent in seen if victim in sent]
    B, Y = (np.concatenate(part, axis=1) for part in zip(*pairs, strict=True))
    return Y @ np.linalg.pinv((B.T @ Y + Y.T @ B) / 2, rcond=1e-10, hermitian=True) @ Y.T, B.shape[1]


def _off(found, true):
    return np.linalg.norm(found - true) / np.linalg.norm(true)


@pytest.mark.parametrize("size", [12, 300])
def test_the_parent_in_a_tree_works_out_the_covariance_of_a_leaf(size):
    seen, true = _spy((200, size, 200, 200), graphs.star(M), Tree(), spy=0)
    found, columns = _worked_out(seen, victim=1)
    assert columns >= min(D, size)
    assert _off(found, true[1]) < 1e-6


def test_few_samples_are_worked_out_from_few_columns():
    seen, true = _spy((200, 12, 200, 200), graphs.star(M), Tree(), spy=0)
    found, columns = _worked_out(seen[:2], victim=1)
    assert columns == 2 * (K + 5) < D
    assert _off(found, true[1]) < 1e-6
    # With many samples the same two products are not enough.
    seen, true = _spy((200, 300, 200, 200), graphs.star(M), Tree(), spy=0)
    assert _off(_worked_out(seen[:2], victim=1)[0], true[1]) > 0.01


def test_the_squares_that_go_before_the_run_spare_the_last_columns():
    """Sums of squares are the diagonal of C, and settle what products with n < d columns leave open."""
    seen, true = _spy((200, 300, 200, 200), graphs.star(M), Tree(), spy=0, oversample=6)
    found, columns = _worked_out(seen[:3], victim=1)
    assert RunSummary(n_features=D, n_samples=300).enough_columns <= columns < D
    assert _off(found, true[1]) > 1e-4
    # C = found + P S P^T, with P the dimensions that were not seen, and the diagonal known.
    B = np.concatenate([block for block, _ in seen[:3]], axis=1)
    P = np.linalg.svd(B)[0][:, columns:]
    rows, others = np.triu_indices(P.shape[1])
    equations = P[:, rows] * P[:, others] * np.where(rows == others, 1, 2)
    S = np.zeros((P.shape[1],) * 2)
    S[rows, others] = np.linalg.lstsq(equations, np.diag(true[1]) - np.diag(found), rcond=None)[0]
    S = S + np.triu(S, 1).T
    assert _off(found + P @ S @ P.T, true[1]) < 1e-6


def test_polynomial_averaging_shows_products_to_every_neighbour():
    seen, true = _spy((200, 12, 200, 200), graphs.cycle(M), Polynomial(), spy=0)
    for neighbour in (1, 3):
        assert _off(_worked_out(seen, neighbour)[0], true[neighbour]) < 1e-6


# How often an attack on masked numbers is made, each time with other keys.
DRAWS = 8


def _overlap(found, true):
    """Cosine between two matrices: 1 for the true covariance, and for noise about 1 / d."""
    return float(np.vdot(found, true) / (np.linalg.norm(found) * np.linalg.norm(true)))


def _of_noise(blocks, sizes, true, count=200, seed=0):
    """Overlaps that the same attack reaches on random numbers in the place of products, of these sizes by row."""
    rng, overlaps = np.random.default_rng(seed), []
    for _ in range(count):
        numbers = [sizes * rng.uniform(-1, 1, B.shape) for B in blocks]
        overlaps.append(_overlap(_worked_out([(B, {1: Y}) for B, Y in zip(blocks, numbers, strict=True)], 1)[0], true))
    return overlaps


def _sizes(seen, victim=1):
    """What the words of each row stand for at most, a power of 2 that is public: (d, 1)."""
    largest = np.max([np.abs(sent[victim]).max(axis=1, keepdims=True) for _, sent in seen if victim in sent], axis=0)
    return 2.0 ** np.ceil(np.log2(largest))


@pytest.fixture(scope="module")
def masked_runs():
    """What a parent has seen of a leaf in so many runs with masks, and the true covariance of the leaf."""
    runs = [_spy((200, 12, 200, 200), graphs.star(M), Integers(), spy=0, masked=True) for _ in range(DRAWS)]
    return [seen for seen, _ in runs], runs[0][1][1]


def test_integers_alone_show_the_parent_what_numbers_show():
    seen, true = _spy((200, 12, 200, 200), graphs.star(M), Integers(), spy=0)
    assert _overlap(_worked_out(seen, victim=1)[0], true[1]) > 1 - 1e-9


def test_with_masks_the_parent_and_every_other_neighbour_have_noise(masked_runs):
    """Overlaps of repeated draws are those of random words: Kolmogorov and Smirnov cannot tell them apart."""
    runs, true = masked_runs
    found = [_overlap(_worked_out(seen, victim=1)[0], true) for seen in runs]
    noise = _of_noise([B for B, sent in runs[0] if 1 in sent], _sizes(runs[0]), true)
    assert stats.ks_2samp(found, noise).pvalue > 1e-6
    assert max(map(abs, found)) < 0.5


def test_masked_words_are_evenly_spread(masked_runs):
    """Chi-square over leading bytes, and Kolmogorov-Smirnov, of all that the parent got from the leaf in these runs."""
    sizes = _sizes([pair for seen in masked_runs[0] for pair in seen])
    parts = [sent[1] / sizes for seen in masked_runs[0] for _, sent in seen if 1 in sent]
    shares = np.concatenate([part.ravel() + 1 for part in parts]) / 2
    assert shares.size > 10_000
    counts = np.bincount((shares * 256).astype(int), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-6
    assert stats.kstest(shares, "uniform").pvalue > 1e-6


def test_all_sites_but_two_together_have_noise():
    """They strip every mask that one of them shares; the one between the last two stays."""
    rng = np.random.default_rng(5)
    samples = rng.standard_normal((12, D)) * np.linspace(3, 0.3, D)
    true = samples.T @ samples
    scaled = Scaled.within(np.full((D, 1), np.trace(true)))
    names = tuple(f"site{place}" for place in range(M))
    found, open_ = [], []
    for draw in range(40):
        context, keys = MaskContext("attack", draw, b"", names), [SiteKey.generate(rng.bytes(32)) for _ in names]
        publics = [key.public for key in keys]
        victim, pairs, bare = pairwise_masks(keys[0], publics, 0, context), [], []
        known = {
            other: pair_key(keys[other], (publics[0], publics[other]), (0, other), context) for other in range(2, M)
        }
        colluding = PairwiseMasks(0, known)
        for number in range(2):
            B = np.linalg.qr(rng.standard_normal((D, K + 5)))[0]
            words = scaled.encode((true @ B)[np.newaxis], [0])[0]
            left = victim.masked(number, words.ravel()) - colluding.words(number, words.size)
            pairs.append((B, {0: scaled.decode(left.reshape(words.shape))}))
            bare.append((B, {0: scaled.decode(words)}))
        found.append(_overlap(_worked_out(pairs, 0)[0], true))
        open_.append(_overlap(_worked_out(bare, 0)[0], true))
    noise = _of_noise([B for B, _ in pairs], np.full((D, 1), 1.0), true)
    assert min(open_) > 1 - 1e-9
    assert stats.ks_2samp(found, noise).pvalue > 1e-6
    assert max(map(abs, found)) < 0.5


def test_with_one_site_left_over_nothing_is_hidden():
    """All others together know every key that it shares."""
    rng = np.random.default_rng(6)
    context = MaskContext("attack", 0, b"", ("a", "b", "c"))
    keys = [SiteKey.generate(rng.bytes(32)) for _ in context.names]
    publics = [key.public for key in keys]
    words = rng.integers(0, 2**64, 9, np.uint64)
    masked = pairwise_masks(keys[0], publics, 0, context).masked(0, words)
    known = {other: pair_key(keys[other], (publics[0], publics[other]), (0, other), context) for other in (1, 2)}
    assert np.array_equal(masked - PairwiseMasks(0, known).words(0, 9), words)
