"""The seam to array libraries."""

import numpy as np
import pytest
import scipy.sparse

from eigenmesh.arrays import SMALL_FOR_BLAS, is_sparse, qr_in_place


@pytest.mark.parametrize(("d", "k"), [(15, 15), (550, 15), (20_000, 3), (5_000, 100)])
def test_tall_matrices_are_factored_in_pieces_for_which_blas_uses_one_thread(monkeypatch, d, k):
    sizes, whole = [], np.linalg.qr
    monkeypatch.setattr(np.linalg, "qr", lambda A, **rest: sizes.append(A.size) or whole(A, **rest))
    A = np.random.default_rng(0).standard_normal((1, k, d)).mT
    A[:, :, -1] = A[:, :, 0]
    Q = A.copy()
    R = qr_in_place(Q)
    np.testing.assert_allclose(Q @ R, A, atol=1e-13)
    np.testing.assert_allclose(Q.mT @ Q, np.eye(k)[np.newaxis], atol=1e-13)
    assert np.array_equal(R, np.triu(R))
    assert max(sizes, default=0) <= max(SMALL_FOR_BLAS, 4 * k * k)


@pytest.mark.parametrize("kind", ["csr_array", "csc_matrix", "coo_array", "lil_matrix", "dok_array"])
def test_what_is_sparse_for_scipy_is_sparse(kind):
    value = getattr(scipy.sparse, kind)(np.eye(3))
    assert is_sparse(value)
    assert is_sparse(type("Mine", (type(value),), {})(np.eye(3)))


@pytest.mark.parametrize("value", [np.eye(3), [[1.0]], None, "csr", scipy.sparse.csr_array])
def test_what_is_not_sparse_for_scipy_is_not(value):
    assert not is_sparse(value)
    assert not scipy.sparse.issparse(value)
