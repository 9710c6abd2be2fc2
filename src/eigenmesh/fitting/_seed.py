"""A seed that the data cannot depend on: drawn at run time by all nodes together.

Each node first commits to a number: it sends ``SHA-256(node, salted fingerprint of its data, nonce)``. Then all nodes
reveal fingerprint and nonce, check them against the commitments, and take the hash of all nonces. As long as one node
draws at random, nobody can steer the seed, or choose samples that exploit it.
"""

import hashlib

import numpy as np

from eigenmesh.arrays import to_numpy
from eigenmesh.data import Covariance
from eigenmesh.errors import TransportError
from eigenmesh.fitting._tables import gather_bytes
from eigenmesh.networks import Network
from eigenmesh.settings import DRAWN_FROM


def draw_seed(network: Network, covariance: Covariance) -> int:
    """A fresh seed: drawn by this process if it holds all nodes, otherwise by all nodes together.

    It has 62 random bits, below 2^63 so that TOML can store it, and is marked as drawn: passed in again, it repeats the
    run.
    """
    if len(network.ids) == network.n_nodes:
        drawn = int.from_bytes(network.private_bytes(8), "big")
    else:
        # A product with a fixed block identifies the samples.
        block = np.random.default_rng(0).standard_normal((1, covariance.n_features, 2))
        summary = np.ascontiguousarray(to_numpy(covariance.apply(covariance.place(block)))).tobytes()
        drawn = agree_on_seed(network, summary)
    return DRAWN_FROM + drawn % DRAWN_FROM


def agree_on_seed(network: Network, summary: bytes) -> int:
    """One seed for all nodes, by two exchanges of maxima; ``summary`` identifies this node's samples.

    If a node reveals nothing, or something other than it had committed to, the fit ends with an error that names it.
    """
    (rank,) = network.ids
    nonce, salt = network.private_bytes(32), network.private_bytes(32)
    # The salt is never sent, so nobody can test guessed samples against the fingerprint.
    secret = hashlib.sha256(salt + summary).digest() + nonce
    committed = gather_bytes(network, {rank: _commitment(rank, secret)})
    revealed = gather_bytes(network, {rank: secret})
    for node, (commitment, shown) in enumerate(zip(committed, revealed, strict=True)):
        if shown is None or commitment != _commitment(node, shown):
            problem = "revealed no number" if shown is None else "revealed another number than it had committed to"
            raise TransportError(f"node {node} {problem} for the common seed; the fit ends.")
    nonces = b"".join(shown[32:] for shown in revealed if shown is not None)
    return int.from_bytes(hashlib.sha256(b"seed" + nonces).digest()[:8], "big")


def _commitment(node: int, secret: bytes) -> bytes:
    return hashlib.sha256(b"commit %d " % node + secret).digest()
