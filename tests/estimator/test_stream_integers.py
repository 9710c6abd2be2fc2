"""Streams with averages in integers: the same bits on any network, and masks that show three nodes' change at least."""

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning

from eigenmesh import StreamingPCA
from problems import angles

D, K, M = 40, 3, 4


def batches(n_batches=4, seed=0):
    """Rows (60, 40) and their nodes."""
    rng = np.random.default_rng(seed)
    spread = np.linspace(4, 1, D)
    return [(rng.standard_normal((60, D)) * spread + 5, rng.integers(0, M, 60)) for _ in range(n_batches)]


def followed(given=None, **settings):
    pca = StreamingPCA(K, n_nodes=M, random_state=0, **settings)
    for X, nodes in given or batches():
        pca.partial_fit(X, nodes=nodes)
    return pca


def bits(pca):
    found = pca.components_, pca.mean_, pca.explained_variance_, pca.certificate_.error_bounds, pca.batch_residuals_
    return [np.asarray(one).tobytes() for one in found]


@pytest.mark.parametrize("settings", [{}, {"scale": True}, {"forgetting": 0.9}])
def test_the_same_bits_on_any_network_with_any_engine_and_with_masks(settings):
    first = followed(averaging="integers", topology="cycle", **settings)
    assert first.result_.converged
    assert first.n_iter_ + 1 <= 5
    if not settings:
        X = np.vstack([rows for rows, _ in batches()])
        assert angles(first.components_, PCA(K).fit(X).components_.T).max() <= first.certificate_.error_bound <= 1e-6
    for other in (
        {"averaging": "integers", "topology": "star"},
        {"averaging": "integers", "topology": "cycle", "transport": "threads"},
        {"privacy": "masked", "topology": "path"},
        {"privacy": "masked", "topology": "path", "transport": "threads"},
    ):
        assert bits(followed(**other, **settings)) == bits(first), other


def test_masks_wait_until_three_nodes_have_new_samples():
    given, rng = batches(2), np.random.default_rng(1)
    pca = followed(given, privacy="masked")
    before = pca.components_
    alone = rng.standard_normal((30, D))
    with pytest.warns(ConvergenceWarning, match="are not in the components yet: 1 nodes have 10 new samples"):
        pca.partial_fit(alone, nodes=np.full(30, 2))
    assert (pca.components_ == before).all()
    assert (pca.n_samples_, pca.n_samples_seen_, pca.batch_) == (120, 150, None)
    # With these two others have new samples too; all that waited is in, and what is said of it is of all three.
    pca.partial_fit(rng.standard_normal((20, D)), nodes=np.repeat([0, 1], 10))
    assert (pca.n_samples_, pca.n_samples_seen_, pca.batch_.samples) == (170, 170, 50)
    assert pca.result_.converged
    # The directions that the last batch has kept are products that all nodes know.
    assert pca.certificate_.disclosure.columns >= D


def test_small_units_are_resolved_or_refused():
    small = [(1e-3 * X, nodes) for X, nodes in batches()]
    X = np.vstack([rows for rows, _ in small])
    pca = followed(small, averaging="integers")
    assert angles(pca.components_, PCA(K).fit(X).components_.T).max() <= pca.certificate_.error_bound <= 1e-6
    with pytest.raises(ValueError, match="multiply the data by a constant"):
        followed([(1e-9 * X, nodes) for X, nodes in batches()], averaging="integers")
