"""Whether nodes with other columns hold the same samples in the same order, by keyed hashes of their ids."""

import contextlib
import hashlib

import numpy as np

from eigenmesh.data._feature_shards import FeatureShards
from eigenmesh.errors import DataError, TransportError
from eigenmesh.networks import Network

# Bytes of a hash, and bytes per number on the way: float64 holds 48 bits exactly.
HASH_BYTES, WORD = 30, 6
FIX = "give all nodes the same samples in the same order, for example sorted by their ids"


def agree_on_samples(network: Network, shards: FeatureShards, shares: np.ndarray) -> np.ndarray:
    """The average of the shares of all nodes, once it is known that they hold the same samples: (nodes, n) -> (n,).

    The key is drawn for this fit by one node, so that hashes can be compared in this fit alone. What is sent next are
    maxima of N, precision and hash, each with its negative: they show whether nodes agree, and take messages of one
    size whatever N is. Only where ids differ does that node send a hash for every position, so that each other node
    can name the first that differs, to its own operator alone.
    """
    drawn = np.stack([_words(network.private_bytes(HASH_BYTES)) for _ in network.ids])
    keys = [_text(words) for words in network.from_root(drawn)]
    here = np.stack([_facts(shards, position, key) for position, key in enumerate(keys)])
    averaged, agreed = network.common_mean_and_worst(shares, np.hstack([here, -here]))
    largest, smallest = agreed[0].reshape(2, -1) * [[1], [-1]]
    single, n_samples, has_ids, *hashes = (largest != smallest).tolist()
    if n_samples:
        between = f"{smallest[1]:,.0f} and {largest[1]:,.0f}, here {shards.n_samples:,}"
        raise DataError(f"nodes have different numbers of samples, between {between}; {FIX}.")
    if single:
        raise DataError(f"some nodes hold float32, others wider numbers (here {shards.dtype}); convert all to one.")
    if has_ids:
        raise DataError("some nodes have ids of their samples and some have none; give id_column at all nodes or none.")
    if any(hashes):
        _name_the_difference(network, shards, keys)
    return np.asarray(averaged[0])


def _facts(shards: FeatureShards, position: int, key: bytes) -> np.ndarray:
    """Precision, N, whether there are ids, and their hash, as numbers: (3 + words,)."""
    ids = shards.sample_ids[position]
    digest = bytes(HASH_BYTES) if ids is None else _digests(ids, key)[-1]
    return np.array([shards.dtype == np.float32, shards.n_samples, ids is not None, *_words(digest)], dtype=float)


def _name_the_difference(network: Network, shards: FeatureShards, keys: list[bytes]) -> None:
    """Raise at every node: with the first position at which its ids differ from those of the node that has the key."""
    own = np.array([_prefixes(shards, position, key) for position, key in enumerate(keys)])
    compared = network.from_root(own)
    found = f"ids of samples at another node differ from those here; {FIX}."
    for position in range(len(own)):
        apart = np.flatnonzero(own[position] != compared[position])
        if len(apart):
            label, row = shards.node_label(position), int(apart[0])
            found = f"ids of samples differ, at {label} from row {row} on (counted from 0); {FIX}."
            break
    # A maximum needs all nodes: none ends the fit before each has compared. Then it does not matter who ends it first.
    with contextlib.suppress(TransportError):
        network.worst(np.zeros((len(own), 1)))
    raise DataError(found)


def _prefixes(shards: FeatureShards, position: int, key: bytes) -> list[float]:
    """One number for the ids up to each row."""
    ids = shards.sample_ids[position]
    return [] if ids is None else [_words(digest)[0] for digest in _digests(ids, key)]


def _digests(ids: np.ndarray, key: bytes) -> list[bytes]:
    """Keyed hashes of the first 1, 2, .. ids as text."""
    running, found = hashlib.blake2b(key=key, digest_size=HASH_BYTES), []
    for value in ids.tolist():
        text = str(value).strip().encode()
        running.update(len(text).to_bytes(8, "big") + text)
        found.append(running.digest())
    return found


def _words(data: bytes) -> list[float]:
    return [float(int.from_bytes(data[start : start + WORD], "big")) for start in range(0, len(data), WORD)]


def _text(words: np.ndarray) -> bytes:
    return b"".join(int(word).to_bytes(WORD, "big") for word in words)
