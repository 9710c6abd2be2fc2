"""The page on the threat model claims what neighbours can work out; here they do."""

import numpy as np
import pytest

from eigenmesh import graphs, run
from eigenmesh.averaging import Polynomial, Tree
from eigenmesh.data import Shards, build_covariance, pooled_moments
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


def _spy(sizes, topology, averaging, spy, oversample=5):
    """Run with real messages; what the spy saw, and the true covariances."""
    rng = np.random.default_rng(1)
    scales = np.linspace(3, 0.3, D)
    parts = [rng.standard_normal((size, D)) * scales for size in sizes]
    shards = Shards.from_list(parts)
    weights = graphs.metropolis(topology)

    def work(transport):
        network, own = Peers(weights, transport, averaging), shards.take([transport.rank])
        moments = pooled_moments(own, network)
        if transport.rank != spy:
            run(BlockKrylov(oversample), build_covariance(own, moments), network, K, tol=1e-9)
            return None
        curious = Curious(transport, build_covariance)
        run(BlockKrylov(oversample), curious.covariance(own, moments), network, K, tol=1e-9)
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
