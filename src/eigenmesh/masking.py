"""The words that a site adds to its integers: ChaCha20 streams, one per pair of sites."""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Protocol

import numpy as np

from eigenmesh.errors import InputError, import_extra

# Keys for masks: one X25519 key pair per site and run. Two sites derive their shared key from their two pairs.


KEY_BYTES = 32
SALT = b"eigenmesh masks 1"


@dataclass(frozen=True)
class SiteKey:
    """The X25519 key pair (RFC 7748) of one site, made for one run and one membership.

    Parameters
    ----------
    secret_bytes : the secret, 32 bytes.
    """

    secret_bytes: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret_bytes) != KEY_BYTES:
            raise InputError(f"the secret of a site key has {len(self.secret_bytes)} bytes; X25519 takes {KEY_BYTES}.")

    @classmethod
    def generate(cls, entropy: bytes | None = None) -> SiteKey:
        """A new key, from ``entropy`` (32 bytes) or from the operating system's random numbers."""
        return cls(secrets.token_bytes(KEY_BYTES) if entropy is None else entropy)

    @cached_property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        public: bytes = self._private.public_key().public_bytes_raw()
        return public

    def shared(self, public: bytes) -> bytes:
        """The X25519 secret shared with another site's public key. Raises InputError for a degenerate key."""
        try:
            secret: bytes = self._private.exchange(_curve().X25519PublicKey.from_public_bytes(public))
        except ValueError as error:
            raise InputError(f"{public.hex()} is not usable as a public key: {error}") from error
        return secret

    @cached_property
    def _private(self) -> Any:
        return _curve().X25519PrivateKey.from_private_bytes(self.secret_bytes)


@dataclass(frozen=True)
class MaskContext:
    """What masks are bound to.

    Parameters
    ----------
    run : the run.
    epoch : its epoch, counted from 0.
    manifest : the digest of its manifest.
    names : its members in rank order.
    """

    run: str
    epoch: int
    manifest: bytes
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.epoch < 1 << 64:
            raise InputError(f"epoch {self.epoch} is out of bounds; epochs are counted from 0, in 64 bits.")
        if len(set(self.names)) < len(self.names) or not all(self.names):
            raise InputError(f"the site names {', '.join(self.names)} are not unique; give each site its own name.")

    @property
    def encoded(self) -> bytes:
        """Run, epoch, manifest digest and all names, each after its length."""
        fields = (self.run.encode(), self.epoch.to_bytes(8, "little"), self.manifest)
        return _joined(*fields, *(name.encode() for name in self.names))


def pair_key(key: SiteKey, publics: tuple[bytes, bytes], ranks: tuple[int, int], context: MaskContext) -> bytes:
    """The ChaCha20 key (32 bytes) of two sites, given in rank order; ``key`` belongs to one of them.

    ::

        HKDF-SHA256(X25519 secret, salt = "eigenmesh masks 1", info = context, then name and public key of each)

    Parameters
    ----------
    key : of one of the two sites.
    publics : the public keys of both.
    ranks : of both, in rank order.
    context : what the key is bound to.
    """
    hkdf = import_extra("cryptography.hazmat.primitives.kdf.hkdf", "masked", "masking")
    hashes = import_extra("cryptography.hazmat.primitives.hashes", "masked", "masking")
    other = publics[1] if key.public == publics[0] else publics[0]
    named = (part for rank, public in zip(ranks, publics, strict=True) for part in (context.names[rank], public))
    info = context.encoded + _joined(*(part.encode() if isinstance(part, str) else part for part in named))
    derived: bytes = hkdf.HKDF(hashes.SHA256(), KEY_BYTES, SALT, info).derive(key.shared(other))
    return derived


def _joined(*fields: bytes) -> bytes:
    """Fields, each after its length in 4 bytes (little-endian), so that different lists never give the same bytes."""
    return b"".join(len(one).to_bytes(4, "little") + one for one in fields)


def _curve() -> Any:
    return import_extra("cryptography.hazmat.primitives.asymmetric.x25519", "masked", "masking")


# Which sites share a mask: all pairs, or in a large network the edges of a random regular graph.
#
# All sites draw the same graph.


# Up to this many sites, every pair shares a mask.
ALL_PAIRS_UP_TO = 50
SWAPS_PER_EDGE = 10


@dataclass(frozen=True)
class MaskGraph:
    """The partners of each site, by rank.

    Without the colluding sites, the graph falls into connected parts. The colluders can find the sum over each part.

    Parameters
    ----------
    partners : of each site, by rank.
    """

    partners: tuple[tuple[int, ...], ...]

    @property
    def degree(self) -> int:
        """The smallest number of partners of a site."""
        return min(map(len, self.partners))

    @property
    def is_complete(self) -> bool:
        """Whether every pair of sites shares a mask."""
        return self.degree == len(self.partners) - 1

    @property
    def tolerated(self) -> int:
        """How many sites may collude, whichever they are, and still find only one sum over all others, two or more.

        It is M - 2 with all pairs, and otherwise one less than the vertex connectivity of the graph.
        """
        if self.is_complete:
            return len(self.partners) - 2
        import networkx as nx

        edges = [(first, second) for first, row in enumerate(self.partners) for second in row]
        return int(nx.node_connectivity(nx.Graph(edges))) - 1

    def chance(self, colluders: int) -> float:
        """Expected number of sites whose partners all collude, if c = ``colluders`` sites collude at random.

        ::

            sum_i (M - c) / M  binom(M - 1 - k_i, c - k_i) / binom(M - 1, c)

        It bounds the probability that a site is exposed, with no honest partner. That a larger part is cut off is much
        less likely.
        """
        others = len(self.partners) - 1
        if not 0 <= colluders <= others - 1:
            raise InputError(f"{colluders} of {others + 1} sites cannot collude; give 0 .. {others - 1}.")
        ways = sum(math.comb(others - len(row), colluders - len(row)) for row in self.partners if len(row) <= colluders)
        return (1 - colluders / (others + 1)) * (ways / math.comb(others, colluders))

    @property
    def rule(self) -> str:
        """Which sites share a mask, in words that are the same for all graphs of this size."""
        return "all pairs" if self.is_complete else f"{self.degree} partners, drawn from the context"

    @property
    def collusion(self) -> str:
        """How many sites must collude to learn more than sums over all sites."""
        sites = len(self.partners)
        if self.is_complete:
            return f"the numbers of two honest sites stay hidden from {self.tolerated} that collude"
        return (
            f"a site has no honest partner with a probability below {self.chance(sites // 3):.1g} if a third collude "
            f"at random, {self.chance(sites // 2):.1g} if half do"
        )

    def __str__(self) -> str:
        sites = len(self.partners)
        if self.is_complete:
            return f"all pairs of {sites} sites; {self.tolerated} may collude"
        return f"{self.degree} partners for each of {sites} sites; any {self.tolerated} may collude; {self.collusion}"


def mask_rule(sites: int) -> str:
    """Which of this many sites share a mask, in words that are the same at all of them."""
    return graph_of_size(sites).rule


def graph_of_size(sites: int) -> MaskGraph:
    """A graph of this many sites, as an example: the graphs of all runs have its degree."""
    return mask_graph(MaskContext("", 0, b"", tuple(map(str, range(sites)))))


@lru_cache(maxsize=8)
def mask_graph(context: MaskContext) -> MaskGraph:
    """All pairs if there are at most 50 sites. Otherwise a random graph of degree k = 2 ceil(log2 M), from the context.

    Parameters
    ----------
    context : has the names of the sites, and is what the graph is drawn from.
    """
    sites = len(context.names)
    if sites <= ALL_PAIRS_UP_TO:
        rows = [[other for other in range(sites) if other != rank] for rank in range(sites)]
    else:
        rows = _shuffled(sites, 2 * math.ceil(math.log2(sites)), context.encoded)
    return MaskGraph(tuple(map(tuple, rows)))


def _shuffled(sites: int, degree: int, seed: bytes) -> list[list[int]]:
    """A random graph: a ring where each site is linked to the next degree / 2 on either side, then random swaps.

    A swap turns two edges (a, b), (c, d) into (a, d), (c, b), unless that makes a loop or a double edge. It keeps all
    degrees.
    """
    edges = [(rank, (rank + step) % sites) for rank in range(sites) for step in range(1, degree // 2 + 1)]
    taken = {frozenset(edge) for edge in edges}
    draw = _draws(seed)
    for _ in range(SWAPS_PER_EDGE * len(edges)):
        one, two = next(draw) % len(edges), next(draw) % len(edges)
        (a, b), (c, d) = edges[one], edges[two]
        new = frozenset((a, d)), frozenset((c, b))
        if a != d and c != b and not taken.intersection(new):
            taken -= {frozenset((a, b)), frozenset((c, d))}
            taken |= set(new)
            edges[one], edges[two] = (a, d), (c, b)
    rows: list[list[int]] = [[] for _ in range(sites)]
    for first, second in edges:
        rows[first].append(second)
        rows[second].append(first)
    return [sorted(row) for row in rows]


def _draws(seed: bytes) -> Iterator[int]:
    """Numbers below 2^64: the first 8 bytes (little-endian) of SHA-256 of the digest of the seed and a count."""
    digest, count = hashlib.sha256(b"eigenmesh mask graph\n" + seed).digest(), 0
    while True:
        word = hashlib.sha256(digest + count.to_bytes(8, "little")).digest()[:8]
        yield int.from_bytes(word, "little")
        count += 1


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

    Parameters
    ----------
    context : what the masks are bound to.
    publics : the public keys of all sites, by rank.
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

    signed: bool
    left: tuple[str, ...]

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

    Here k_ij is the key of two partners, and h the present hash of the transcript. G is the ChaCha20
    stream (RFC 8439) of the key HMAC-SHA256(k_ij, h). It takes 4 zero bytes and ``t`` (8 bytes) as nonce, block counter
    from 0, and reads the stream as little-endian words. The sum is 0 only if all sites have the same transcript.

    Parameters
    ----------
    rank : of the site.
    keys : the key of each partner, by rank.
    transcript : of what the site has heard.
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

    def masked_pairs(self, number: int, words: np.ndarray) -> np.ndarray:
        """Integers modulo 2^128, as ``sum_of_pairs`` adds them, plus the mask of one average: (2 n,) -> (2 n,) uint64.

        The stream of a partner is read as all low words, then all high words.
        """
        self._require_unused(number, words.size)
        masked, zeros = words, bytes(words.nbytes)
        for partner, key in self._keys.items():
            stream = np.frombuffer(self._stream(key, number).update(zeros), "<u8")
            masked = sum_of_pairs(masked, stream if partner > self.rank else _negative_pairs(stream))
        return masked

    def words(self, number: int, count: int) -> np.ndarray:
        """The mask of one average, shape (count,). Raises InputError unless its number is above all earlier ones."""
        self._require_unused(number, count)
        total = np.zeros(count, np.uint64)
        zeros, made = bytes(8 * min(count, CHUNK_WORDS)), bytearray(8 * min(count, CHUNK_WORDS))
        for partner, key in self._keys.items():
            stream = self._stream(key, number)
            combine = np.add if partner > self.rank else np.subtract
            for begin in range(0, count, CHUNK_WORDS):
                part = total[begin : begin + CHUNK_WORDS]
                stream.update_into(memoryview(zeros)[: part.nbytes], made)
                combine(part, np.frombuffer(made, "<u8", part.size), out=part)
        return total

    def _require_unused(self, number: int, count: int) -> None:
        """Raise if an average of this number was masked, or a later one."""
        if number < self._next:
            raise InputError(f"average {number} would be masked again; the next one is {self._next} or later.")
        if not 0 <= count <= MAX_WORDS or number >= 1 << 64:
            limits = f"at most {MAX_WORDS} words, and numbers below 2^64"
            raise InputError(f"{count} words for average {number} are out of bounds; allowed are {limits}.")
        self._next = number + 1

    def _stream(self, key: bytes, number: int) -> Any:
        """Turns zeros into the stream of one pair of sites for one average."""
        bound = hmac.digest(key, self.transcript.hash, "sha256")
        nonce = bytes(8) + number.to_bytes(8, "little")
        return self._ciphers.Cipher(self._ciphers.algorithms.ChaCha20(bound, nonce), mode=None).encryptor()


def sum_of_pairs(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The sum of integers modulo 2^128, each two words of 64 bits, with carries from low to high: (2 n,) uint64.

    If low and high words were added apart, the total would also show how many carries there are, which depends on the
    numbers of the single sites: with a guess of all samples of one site, one could see whether it is right.

    Parameters
    ----------
    first, second : array of shape (2 n,)
        Integers, all low words first.
    """
    (low, high), (more, more_high) = np.split(first, 2), np.split(second, 2)
    total = low + more
    return np.concatenate([total, high + more_high + (total < low)])


def _negative_pairs(words: np.ndarray) -> np.ndarray:
    """The negative of integers modulo 2^128: (2 n,) uint64."""
    low, high = np.split(words, 2)
    return np.concatenate([~low + np.uint64(1), ~high + (low == 0)])


def pairwise_masks(
    key: SiteKey, publics: Sequence[bytes], rank: int, context: MaskContext, partners: Sequence[int] | None = None
) -> PairwiseMasks:
    """The masks of one site.

    Parameters
    ----------
    key : of the site.
    publics : the public keys of all sites, by rank.
    rank : of the site.
    context : what the masks are bound to.
    partners : the sites that share a mask with it. By default they are those of the graph.
    """
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
    for second, public in enumerate(publics):
        first = publics.index(public)
        if first < second:
            raise InputError(f"{names[first]} and {names[second]} have the same public key; give each site its own.")


# What a run has revealed, and to whom, in plain sentences.


OPEN = "neighbours see what a node adds to an average"


@dataclass(frozen=True)
class Disclosure:
    """What all nodes know after a run, about all samples together and about those of one node.

    Attributes
    ----------
    n_nodes : int
        How many nodes masked their numbers; 0 if nothing was masked.
    n_features : int
        d.
    columns : int
        How many columns of products with the pooled covariance all nodes have received.
    whole : bool
        Whether they have received the pooled covariance itself, by one sum.
    by_columns : bool
        Whether each node has its own columns of the same samples; d is then the length of a vector that they send,
        N - 1.
    signed : bool
        Whether nodes sign their keys and what they have heard; see ``Masks``.
    left : tuple of str
        Nodes that left during the run.
    """

    n_nodes: int = 0
    n_features: int = 0
    columns: int = 0
    whole: bool = False
    by_columns: bool = False
    signed: bool = False
    left: tuple[str, ...] = ()

    @property
    def masked(self) -> bool:
        """Whether any average of the run was masked."""
        return self.n_nodes > 0

    @property
    def of_all_samples(self) -> str:
        """What all nodes know about the pooled samples, in addition to the result."""
        return known_of_all(self.columns, self.n_features, self.by_columns, self.whole)

    @property
    def of_one_that_left(self) -> str:
        """What all others know about one node that left."""
        own = "number of columns, total variance" if self.by_columns else "N, mean, variances"
        return f"{own}, and products on the dimensions that both results show: from the difference of two sums"

    @property
    def _condition(self) -> str:
        return "" if self.signed else ", if all nodes follow the protocol"

    def numbers(self) -> dict[str, Any]:
        """The disclosure as JSON values."""
        if not self.masked:
            return {"mode": "open", "of_one_site": OPEN}
        graph = graph_of_size(self.n_nodes)
        return {
            "mode": "masked",
            "masks": graph.rule,
            "colluders": graph.collusion,
            "of_all_samples": self.of_all_samples,
            "columns": self.columns,
            "of_one_site": f"nothing{', except of those that left' if self.left else ''}{self._condition}",
        }

    @property
    def words(self) -> tuple[str, ...]:
        """Sentences for a reader; none after an open run."""
        if not self.masked:
            return ()
        one = "any other single node" if self.left else "any single node"
        collusion = graph_of_size(self.n_nodes).collusion
        words = [
            f"Masked: nobody has learned a number of {one}{self._condition}; {collusion}.",
            f"All nodes now know {self.of_all_samples}.",
        ]
        if self.left:
            known = f"The others can work out what a node that leaves has sent: {self.of_one_that_left}."
            words.insert(0, f"{', '.join(self.left)} left during the run. {known}")
        return tuple(words)


def known_of_all(columns: int, n_features: int, by_columns: bool = False, whole: bool = False) -> str:
    """What columns of products with the pooled covariance, and the moments, reveal about all samples together.

    Parameters
    ----------
    columns : how many all nodes have received.
    n_features : d, or N - 1 if ``by_columns``.
    by_columns : whether each node has its own columns of the same samples.
    whole : whether they have received the covariance itself.
    """
    known = min(columns, n_features)
    where = "all" if known == n_features else f"at most {known:,} of"
    products = "by one sum" if whole else f"by {columns:,} columns of products"
    moments, matrix = "N, mean, variances", "covariance"
    if by_columns:
        moments, matrix = "scores of all samples, number of columns, total variance", "Gram matrix"
    return f"{moments}, and the pooled {matrix} on {where} {n_features:,} dimensions, {products}"
