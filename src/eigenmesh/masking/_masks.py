"""The words that a site adds to its integers: ChaCha20 streams, one per pair of sites."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from eigenmesh.errors import InputError, import_extra
from eigenmesh.masking._graph import mask_graph
from eigenmesh.masking._keys import MaskContext, SiteKey, pair_key

# With two sites, each would find the other's numbers by subtraction.
MIN_SITES = 3
# Words that are made at a time, few enough to stay in the processor's cache.
CHUNK_WORDS = 1 << 15
# With one nonce, ChaCha20 gives 2^32 blocks of 8 words.
MAX_WORDS = 1 << 35


class Transcript:
    """Running hash of everything that a site has heard and acts on: totals, broadcasts and agreed maxima.

    ::

        h_0 = SHA-256("eigenmesh transcript 1\\n" + context + public keys),    h_{s+1} = SHA-256(h_s + SHA-256(numbers))

    Masks are bound to it, so that masks of sites that were told different numbers do not cancel. Sites that have heard
    the same have the same hash.
    """

    def __init__(self, context: MaskContext, publics: Iterable[bytes]) -> None:
        first = b"eigenmesh transcript 1\n" + context.encoded + b"".join(publics)
        self.hash = hashlib.sha256(first).digest()
        self._new = [self.hash]

    def hear(self, digest: bytes) -> None:
        """Add numbers that the site has received, by their SHA-256."""
        self.hash = hashlib.sha256(self.hash + digest).digest()
        self._new.append(self.hash)

    def news(self) -> tuple[bytes, ...]:
        """All hashes since the last call, for a site that compares them with those of others."""
        new, self._new = self._new, []
        return tuple(new)


class Masks(Protocol):
    """Hides one site's contribution to an average.

    Attributes
    ----------
    signed : bool
        Whether sites sign their keys and what they have heard. Otherwise masks hide numbers only from sites that follow
        the protocol.
    left : tuple of str
        Sites that have left, and whose numbers follow from the difference of sums with them and without them.
    """

    @property
    def signed(self) -> bool:
        """Whether sites sign their keys and what they have heard."""

    @property
    def left(self) -> tuple[str, ...]:
        """Sites that have left, and whose numbers follow from a difference of sums."""

    def masked(self, number: int, words: np.ndarray) -> np.ndarray:
        """The masked words that may be sent for the average with this ``number``, (n,) -> (n,) uint64.

        Numbers must increase, so that no mask is used twice.
        """

    def hear(self, digest: bytes) -> None:
        """Bind all later masks to numbers that the site has received, given by their SHA-256."""


class PairwiseMasks:
    """The sum over partners of the shared stream, added if the partner has a higher rank and subtracted if lower.

    ::

        words_i(t) = sum_{j > i} G(k_ij, h, t) - sum_{j < i} G(k_ij, h, t)  modulo 2^64,   sum_i words_i(t) = 0

    ``keys`` has the key of each partner by rank, and h is the present hash of the ``transcript``. G is the ChaCha20
    stream (RFC 8439) of the key HMAC-SHA256(k_ij, h); it takes 4 zero bytes and ``t`` (8 bytes) as nonce, block counter
    from 0, and reads the stream as little-endian words. The sum is 0 only if all sites have the same transcript.
    """

    signed = False
    left: tuple[str, ...] = ()

    def __init__(self, rank: int, keys: dict[int, bytes], transcript: Transcript) -> None:
        self.rank, self.transcript, self._keys, self._next = rank, transcript, dict(keys), 0
        self._ciphers = import_extra("cryptography.hazmat.primitives.ciphers", "masked", "masking")

    @property
    def partners(self) -> tuple[int, ...]:
        """The sites that share a mask with this one."""
        return tuple(self._keys)

    def hear(self, digest: bytes) -> None:
        """Bind all later masks to numbers that the site has received."""
        self.transcript.hear(digest)

    def masked(self, number: int, words: np.ndarray) -> np.ndarray:
        """The words plus the mask of one average, modulo 2^64: (n,) -> (n,) uint64."""
        return np.asarray(words + self.words(number, words.size))

    def words(self, number: int, count: int) -> np.ndarray:
        """The mask of one average, shape (count,); raises InputError unless its number is above all earlier ones."""
        if number < self._next:
            raise InputError(f"average {number} would be masked again; the next one is {self._next} or later.")
        if not 0 <= count <= MAX_WORDS or number >= 1 << 64:
            limits = f"at most {MAX_WORDS} words, and numbers below 2^64"
            raise InputError(f"{count} words for average {number} are out of bounds; allowed are {limits}.")
        self._next = number + 1
        total = np.zeros(count, np.uint64)
        zeros, made = bytes(8 * min(count, CHUNK_WORDS)), bytearray(8 * min(count, CHUNK_WORDS))
        for partner, key in self._keys.items():
            bound = hmac.digest(key, self.transcript.hash, "sha256")
            nonce = bytes(8) + number.to_bytes(8, "little")
            stream = self._ciphers.Cipher(self._ciphers.algorithms.ChaCha20(bound, nonce), mode=None).encryptor()
            combine = np.add if partner > self.rank else np.subtract
            for begin in range(0, count, CHUNK_WORDS):
                part = total[begin : begin + CHUNK_WORDS]
                stream.update_into(memoryview(zeros)[: part.nbytes], made)
                combine(part, np.frombuffer(made, "<u8", part.size), out=part)
        return total


def pairwise_masks(
    key: SiteKey, publics: Sequence[bytes], rank: int, context: MaskContext, partners: Sequence[int] | None = None
) -> PairwiseMasks:
    """The masks of the site with this rank, from its key and all public keys; ``partners`` are those of the graph."""
    _require_keys(key, publics, rank, context)
    keys = {}
    for partner in mask_graph(context).partners[rank] if partners is None else partners:
        first, second = min(rank, partner), max(rank, partner)
        keys[partner] = pair_key(key, (publics[first], publics[second]), (first, second), context)
    return PairwiseMasks(rank, keys, Transcript(context, publics))


def _require_keys(key: SiteKey, publics: Sequence[bytes], rank: int, context: MaskContext) -> None:
    names = context.names
    if len(names) < MIN_SITES:
        raise InputError(
            f"{len(names)} sites cannot be masked: each would find the other's numbers by subtraction; "
            f"use at least {MIN_SITES} sites, or no masks."
        )
    if len(publics) != len(names):
        raise InputError(f"{len(publics)} public keys for {len(names)} sites; give one for each.")
    if publics[rank] != key.public:
        raise InputError(f"the public key of {names[rank]} does not match its secret.")
    for place, public in enumerate(publics):
        first = publics.index(public)
        if first < place:
            raise InputError(f"{names[first]} and {names[place]} have the same public key; give each site its own.")
