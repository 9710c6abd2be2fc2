"""What the page "what each method reveals" says: enough columns of products are the whole covariance."""

from __future__ import annotations

import numpy as np
import pytest

from eigenmesh import graphs
from eigenmesh.data import Shards
from eigenmesh.fitting import NodeData, Request, fit, prepare
from eigenmesh.networks import Stacked

M = 5


def heard_in_a_masked_fit(d, k, monkeypatch):
    """Blocks that all nodes multiply, their pooled products, and the variances: what each of them hears. And C."""
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal((40 + 9 * node, d)) @ rng.standard_normal((d, d)) for node in range(M)]
    request = Request.parse(n_components=k, privacy="masked", solver="block-krylov", random_state=1)
    data = NodeData(Shards.from_list(parts), graphs.metropolis(graphs.topologies.star(M)))
    prepared = prepare(request, data)
    blocks, products = [], []
    multiplied, mean = type(prepared.covariance).apply, Stacked.mean

    def seen(covariance, X):
        blocks.append(np.array(X[0]))
        return multiplied(covariance, X)

    def received(network, array, bound=None):
        found = mean(network, array, bound)
        if bound is None:
            products.append(np.array(found[0]))
        return found

    monkeypatch.setattr(type(prepared.covariance), "apply", seen)
    monkeypatch.setattr(Stacked, "mean", received)
    result = fit(prepared).result
    assert result.certificate.disclosure.columns == sum(block.shape[1] for block in products)
    return blocks, products, prepared.moments.variance, np.cov(np.vstack(parts).T)


def solved(blocks, products, variances):
    """C from ``C V``, symmetry and its diagonal; the part that these do not determine is as small as possible."""
    V, R = np.linalg.qr(np.hstack(blocks))
    CV = np.linalg.solve(R.T, np.hstack(products).T).T
    d, c = V.shape
    Q = np.linalg.qr(V, mode="complete")[0][:, c:]
    # C = C P + P C (I - P) + Q S Q^T.
    known = CV @ V.T + V @ (CV.T @ Q) @ Q.T
    rows, columns = np.triu_indices(d - c)
    equations = Q[:, rows] * Q[:, columns] * np.where(rows == columns, 1, 2)
    found = np.linalg.lstsq(equations, variances - np.diagonal(known), rcond=None)[0]
    S = np.zeros((d - c, d - c))
    S[rows, columns] = S[columns, rows] = found
    return known + Q @ S @ Q.T


@pytest.mark.parametrize(("d", "products"), [(12, 1), (30, 3), (38, 3), (64, 6)])
def test_columns_of_products_give_the_covariance_from_d_less_root_2d_on(d, products, monkeypatch):
    blocks, heard, variances, C = heard_in_a_masked_fit(d, 5, monkeypatch)
    assert d - np.sqrt(2 * d) <= 10 * products
    error = [
        np.linalg.norm(solved(blocks[:p], heard[:p], variances) - C) / np.linalg.norm(C) for p in range(1, products + 1)
    ]
    assert error[-1] < 1e-6
    assert min(error[:-1], default=1) > 0.01
