"""The page on the threat model claims what neighbours can work out; here they do."""

import numpy as np
import pytest

from attacks import D, K, M, off, watched, worked_out
from eigenmesh import graphs
from eigenmesh.averaging import Polynomial, Tree
from eigenmesh.sites._audit_summary import RunSummary


def _spy(sizes, topology, averaging, spy, **settings):
    """What one site saw of the products of its neighbours, and the true covariances."""
    run = watched(sizes, topology, averaging, (spy,), **settings)
    return run.products(spy), run.true


@pytest.mark.parametrize("size", [12, 300])
def test_the_parent_in_a_tree_works_out_the_covariance_of_a_leaf(size):
    seen, true = _spy((200, size, 200, 200), graphs.star(M), Tree(), spy=0)
    found, columns = worked_out(seen, victim=1)
    assert columns >= min(D, size)
    assert off(found, true[1]) < 1e-6


def test_few_samples_are_worked_out_from_few_columns():
    seen, true = _spy((200, 12, 200, 200), graphs.star(M), Tree(), spy=0)
    found, columns = worked_out(seen[:2], victim=1)
    assert columns == 2 * (K + 5) < D
    assert off(found, true[1]) < 1e-6
    # With many samples the same two products are not enough.
    seen, true = _spy((200, 300, 200, 200), graphs.star(M), Tree(), spy=0)
    assert off(worked_out(seen[:2], victim=1)[0], true[1]) > 0.01


def test_the_squares_that_go_before_the_run_spare_the_last_columns():
    """Sums of squares are the diagonal of C, and settle what products with n < d columns leave open."""
    seen, true = _spy((200, 300, 200, 200), graphs.star(M), Tree(), spy=0, oversample=6)
    found, columns = worked_out(seen[:3], victim=1)
    assert RunSummary(n_features=D, n_samples=300).enough_columns <= columns < D
    assert off(found, true[1]) > 1e-4
    # C = found + P S P^T, with P the dimensions that were not seen, and the diagonal known.
    B = np.concatenate([block for block, _ in seen[:3]], axis=1)
    P = np.linalg.svd(B)[0][:, columns:]
    rows, others = np.triu_indices(P.shape[1])
    equations = P[:, rows] * P[:, others] * np.where(rows == others, 1, 2)
    S = np.zeros((P.shape[1],) * 2)
    S[rows, others] = np.linalg.lstsq(equations, np.diag(true[1]) - np.diag(found), rcond=None)[0]
    S = S + np.triu(S, 1).T
    assert off(found + P @ S @ P.T, true[1]) < 1e-6


def test_polynomial_averaging_shows_products_to_every_neighbour():
    seen, true = _spy((200, 12, 200, 200), graphs.cycle(M), Polynomial(), spy=0)
    for neighbour in (1, 3):
        assert off(worked_out(seen, neighbour)[0], true[neighbour]) < 1e-6
