"""A simulated node multiplies with its own rows only: what others hold is NaN whenever it is its turn."""

import numpy as np
import pytest
import scipy.sparse

from eigenmesh import DecentralizedPCA
from eigenmesh.data import MatrixFree, RandomSplit, Shards

N_NODES = 5


class Hidden:
    """Samples whose reads show the rows of one node only: in a read of rows of several nodes the others are NaN."""

    feature_names, in_memory = None, True

    def __init__(self, X, owner):
        self.X, self.owner, self.reads = X, owner, 0
        self.shape, self.dtype = X.shape, X.dtype
        self.n_stored = X.nnz if scipy.sparse.issparse(X) else None

    def read(self, rows):
        self.reads += 1
        owners, piece = self.owner[rows], self.X[rows].copy()
        strange = np.flatnonzero(owners != owners[:1])
        if scipy.sparse.issparse(piece):
            for row in strange:
                piece.data[piece.indptr[row] : piece.indptr[row + 1]] = np.nan
        else:
            piece[strange] = np.nan
        return piece


def samples(n, d):
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, d)) * np.geomspace(3, 0.3, d) + rng.standard_normal(d)


def owners(n):
    owner = np.empty(n, dtype=int)
    for node, rows in enumerate(RandomSplit(2).rows(n, N_NODES)):
        owner[rows] = node
    return owner


@pytest.mark.parametrize("averaging", ["tree", "polynomial", "integers"])
@pytest.mark.parametrize(
    "X",
    [
        samples(900, 8),
        samples(300, 200),
        samples(60, 300),
        scipy.sparse.csr_array(np.maximum(samples(90, 60), 1.0) - 1),
    ],
    ids=["formed", "formed one by one", "from the rows", "sparse"],
)
def test_no_read_and_no_product_has_rows_of_two_nodes(X, averaging):
    hidden = Hidden(X, owners(X.shape[0]))
    fit = DecentralizedPCA(3, topology="cycle", averaging=averaging, random_state=0).fit
    found = fit(Shards.from_array(hidden, N_NODES, RandomSplit(2)))
    assert hidden.reads
    assert found.result_.converged
    plain = fit(Shards.from_array(X, N_NODES, RandomSplit(2)))
    assert found.components_.tobytes() == plain.components_.tobytes()
    np.testing.assert_array_equal(found.certificate_.error_bounds, plain.certificate_.error_bounds)


@pytest.mark.filterwarnings("ignore:stopped after")
@pytest.mark.parametrize("solver", ["block-krylov", "fast-pca", "tracked-subspace", "one-sum"])
def test_rows_in_memory_are_nan_to_others(monkeypatch, solver):
    X, owner = samples(200, 12), owners(200)
    settings = {"solver": solver, "covariance": "chunked", "topology": "cycle", "averaging": "tree", "tol": 1e-3}
    settings |= {"random_state": 0, "max_rounds": 200}
    fit = DecentralizedPCA(3, **settings).fit
    plain, apply, turns = fit(X, nodes=owner), MatrixFree.apply, set()

    def in_turn(covariance, blocks):
        (block,) = covariance.rows
        (node,) = set(owner[block.rows])
        turns.add(node)
        kept = X[owner != node]
        X[owner != node] = np.nan
        try:
            return apply(covariance, blocks)
        finally:
            X[owner != node] = kept

    monkeypatch.setattr(MatrixFree, "apply", in_turn)
    found = fit(X, nodes=owner)
    assert turns == set(range(N_NODES))
    assert found.node_components_.tobytes() == plain.node_components_.tobytes()
