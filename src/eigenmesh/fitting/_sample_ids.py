"""Check by keyed hashes of sample ids that nodes with different columns have the same samples in the same order."""

import contextlib
import hashlib

import numpy as np

from eigenmesh.data._feature_shards import FeatureShards
from eigenmesh.errors import DataError, TransportError
from eigenmesh.networks import Network

# Bytes of a hash, and bytes per float64 in a message: it represents 48 bits exactly.
HASH_BYTES, WORD = 30, 6
FIX = "give all nodes the same samples in the same order, for example sorted by their ids"


def agree_on_samples(network: Network, shards: FeatureShards, shares: np.ndarray) -> np.ndarray:
    """Average of the shares of all nodes, after checking that all have the same samples: (nodes, n) -> (n,).

    One node draws a key for this fit, so that hashes cannot be compared with those of other fits. Then maxima of the
    hash and its negative show whether the nodes agree, in messages whose size does not depend on N, which all nodes
    have compared before. Only if ids differ does that node send a hash for every row, so that each other node can
    report the first row that differs, to its own operator only.
    """
    drawn = np.stack([_words(network.private_bytes(HASH_BYTES)) for _ in network.ids])
    keys = [_text(words) for words in network.from_root(drawn)]
    own = np.stack([_facts(shards, position, key) for position, key in enumerate(keys)])
    averaged, agreed = network.common_mean_and_worst(shares, np.hstack([own, -own]))
    largest, smallest = agreed[0].reshape(2, -1) * [[1], [-1]]
    has_ids, *hashes = (largest != smallest).tolist()
    if has_ids:
        raise DataError("some nodes have ids of their samples and some have none; give id_column at all nodes or none.")
    if any(hashes):
        _name_the_difference(network, shards, keys)
    return np.asarray(averaged[0])


def _facts(shards: FeatureShards, position: int, key: bytes) -> np.ndarray:
    """Whether there are ids, and their hash, as numbers: (1 + words,)."""
    ids = shards.sample_ids[position]
    digest = bytes(HASH_BYTES) if ids is None else _digests(ids, key)[-1]
    return np.array([ids is not None, *_words(digest)], dtype=float)


def _name_the_difference(network: Network, shards: FeatureShards, keys: list[bytes]) -> None:
    """Raise at every node, with the first row where its ids differ from those of the node that drew the key."""
    own = np.array([_prefixes(shards, position, key) for position, key in enumerate(keys)])
    compared = network.from_root(own)
    message = f"ids of samples at another node differ from those at this node; {FIX}."
    for position in range(len(own)):
        different = np.flatnonzero(own[position] != compared[position])
        if len(different):
            label, row = shards.node_label(position), int(different[0])
            message = f"ids of samples differ, at {label} from row {row} on (counted from 0); {FIX}."
            break
    # Wait for all nodes, so that none ends the fit before each has compared its ids.
    with contextlib.suppress(TransportError):
        network.worst(np.zeros((len(own), 1)))
    raise DataError(message)


def _prefixes(shards: FeatureShards, position: int, key: bytes) -> list[float]:
    """For each row, one number that identifies all ids up to it."""
    ids = shards.sample_ids[position]
    return [] if ids is None else [_words(digest)[0] for digest in _digests(ids, key)]


def _digests(ids: np.ndarray, key: bytes) -> list[bytes]:
    """Keyed hashes of the first 1, 2, .. ids as text."""
    running, digests = hashlib.blake2b(key=key, digest_size=HASH_BYTES), []
    for value in ids.tolist():
        text = str(value).strip().encode()
        running.update(len(text).to_bytes(8, "big") + text)
        digests.append(running.digest())
    return digests


def _words(data: bytes) -> list[float]:
    return [float(int.from_bytes(data[start : start + WORD], "big")) for start in range(0, len(data), WORD)]


def _text(words: np.ndarray) -> bytes:
    return b"".join(int(word).to_bytes(WORD, "big") for word in words)
