"""The attacks that succeed on open messages, on masked ones: a parent, neighbours and M - 2 colluders have noise.

Each attack is made in repeated draws of the keys. Its overlaps with the true covariance are compared with those of the
same attack on random words by the test of Kolmogorov and Smirnov, and the same attack on an open run succeeds.
"""

import numpy as np
import pytest
from scipy import stats

from attacks import M, of_noise, off, overlap, sizes_of_words, watched, worked_out
from eigenmesh import graphs
from eigenmesh.averaging import Integers, Polynomial
from eigenmesh.masking import MaskContext, PairwiseMasks, SiteKey, Transcript, pair_key, pairwise_masks

DRAWS, SIZES = 20, (200, 12, 200, 200)
# On a path the second site is the root: the third has it as its parent, and the fourth as its child.
PARENT, VICTIM, CHILD = 1, 2, 3
INNER = (200, 200, 12, 200)


def is_noise(found, blocks, run, true):
    """Whether overlaps of repeated draws cannot be told from those of random words."""
    noise = of_noise(blocks, sizes_of_words(run.scaled), true)
    return stats.ks_2samp(found, noise).pvalue > 1e-6 and max(map(abs, found)) < 0.5


@pytest.fixture(scope="module")
def masked_runs():
    """What a parent has seen of a leaf in so many runs with masks."""
    return [watched(SIZES, graphs.star(M), Integers(), (0,), masked=True) for _ in range(DRAWS)]


def test_integers_alone_show_the_parent_what_numbers_show():
    run = watched(SIZES, graphs.star(M), Integers(), (0,))
    assert overlap(worked_out(run.products(0), victim=1)[0], run.true[1]) > 1 - 1e-9


def test_with_masks_the_parent_has_noise(masked_runs):
    first, true = masked_runs[0], masked_runs[0].true[1]
    found = [overlap(worked_out(run.products(0), victim=1)[0], true) for run in masked_runs]
    assert is_noise(found, [B for B, sent in first.products(0) if 1 in sent], first, true)


def test_masked_words_are_evenly_spread(masked_runs):
    """Chi-square over leading bytes, and Kolmogorov-Smirnov, of all that the parent got from the leaf in these runs."""
    words = np.concatenate([one.got[1][0].ravel() for run in masked_runs for one in run.seen[0] if one.got.get(1)])
    assert words.size > 10_000
    counts = np.bincount((words >> np.uint64(56)).astype(int), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-6
    assert stats.kstest(words / 2.0**64, "uniform").pvalue > 1e-6


@pytest.mark.parametrize("topology", [graphs.path(M), graphs.cycle(M)], ids=["child", "beside the tree"])
def test_a_neighbour_that_is_not_the_parent_gets_pooled_sums_or_nothing(topology):
    """In an open run that weighs what it receives, the same neighbour works out the covariance."""
    open_ = watched(INNER, topology, Polynomial(), (CHILD,))
    assert overlap(worked_out(open_.products(CHILD), VICTIM)[0], open_.true[VICTIM]) > 1 - 1e-9
    run = watched(INNER, topology, Integers(), (0, CHILD), masked=True)
    got = [one.got.get(VICTIM, []) for one in run.seen[CHILD]]
    if topology.number_of_edges() == M:
        # Of the links of a ring one is not in the tree: no product goes over it.
        assert not any(got)
        return
    assert sum(map(len, got)) > 3
    sums = [one.got[PARENT] for one in run.seen[0]]
    for arrays, total in zip(got, sums, strict=True):
        # The same bits as go to a site at the other end of the network.
        assert [array.tobytes() for array in arrays] == [array.tobytes() for array in total]
    pooled = [(one.block, {VICTIM: run.decoded(one.got[VICTIM][0]) / M}) for one in run.seen[CHILD]]
    assert off(worked_out(pooled, VICTIM)[0], sum(run.true) / M) < 1e-6


def of_colluders(run):
    """What the parent and the child of a site know of its products: they take out what they sent and their masks."""
    left = []
    for above, below in zip(run.seen[PARENT], run.seen[CHILD], strict=True):
        if not above.got.get(VICTIM):
            continue
        words = above.got[VICTIM][0] - below.sent[0]
        if run.keys[PARENT]:
            known = {one: run.keys[one][VICTIM] for one in (PARENT, CHILD)}
            masks = PairwiseMasks(VICTIM, known, above.heard)
            words = words - masks.words(above.number, words.size).reshape(words.shape)
        left.append((above.block, {VICTIM: run.decoded(words)}))
    return left


def test_all_sites_but_two_together_have_noise():
    """All neighbours of the victim collude: what is left is its mask with the one site that does not, M - 2 in all."""
    assert M - len((PARENT, CHILD)) == 2
    open_ = watched(INNER, graphs.path(M), Integers(), (PARENT, CHILD))
    assert overlap(worked_out(of_colluders(open_), VICTIM)[0], open_.true[VICTIM]) > 1 - 1e-9
    runs = [watched(INNER, graphs.path(M), Integers(), (PARENT, CHILD), masked=True) for _ in range(DRAWS)]
    products = [of_colluders(run) for run in runs]
    found = [overlap(worked_out(one, VICTIM)[0], runs[0].true[VICTIM]) for one in products]
    assert is_noise(found, [B for B, _ in products[0]], runs[0], runs[0].true[VICTIM])


def test_with_one_site_left_over_nothing_is_hidden():
    """All others together know every key that it shares."""
    rng = np.random.default_rng(6)
    context = MaskContext("attack", 0, b"", ("a", "b", "c"))
    keys = [SiteKey.generate(rng.bytes(32)) for _ in context.names]
    publics = [key.public for key in keys]
    words = rng.integers(0, 2**64, 9, np.uint64)
    masked = pairwise_masks(keys[0], publics, 0, context).masked(0, words)
    known = {other: pair_key(keys[other], (publics[0], publics[other]), (0, other), context) for other in (1, 2)}
    assert np.array_equal(masked - PairwiseMasks(0, known, Transcript(context, publics)).words(0, 9), words)
