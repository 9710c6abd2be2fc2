"""``Data`` for ``prepare`` behind a coordinator: all sites as one node, whose covariance is a sum that they answer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from eigenmesh import data, graphs
from eigenmesh.arrays import ITEM_BYTES, Array
from eigenmesh.averaging import Averaging
from eigenmesh.coordinators import verbs
from eigenmesh.coordinators.coordinator import Coordinator
from eigenmesh.data import CovarianceKind
from eigenmesh.errors import DataError, InputError, TransportError
from eigenmesh.fitting import Data, DataFacts, Measurement, Request, Size
from eigenmesh.networks import Network, Stacked, Traffic
from eigenmesh.solvers import Solver

# Largest ratio of the squared distance between centre and mean to the variance; that factor is lost in precision.
LARGEST_SHIFT = 100.0
# Bytes of answers that are made, sent and added up in a second.
ANSWERED_BYTES_S = 2e8
# A solver that typically needs this many products is refused.
MANY_PRODUCTS = 100


class FirstSums(NamedTuple):
    """The first sums, of all parts or of some, before anything is known.

    pooled : as of ``data.count_and_sum``; rows, n_bytes, stored : of all parts, estimated from those that answered;
    is_sparse : whether there are sparse parts; whole : whether all parts have answered.
    """

    pooled: np.ndarray
    n_parts: int
    rows: int
    n_bytes: int
    stored: int
    is_sparse: bool
    whole: bool


class AskedSites:
    """All sites behind a coordinator: their sums, checked and counted.

    Parameters
    ----------
    coordinator : Coordinator
        Whoever can ask all of them.
    fills : bool
        Whether entries may be missing, and count as the mean of their column.

    Attributes
    ----------
    traffic : Traffic
        Requests so far: each is a round of at most two messages for every part, one to it and one from it.
    feature_names : tuple of str or None
        Names of the columns, once they are known.
    last : pair of int
        Parts and rows of the last answer.
    """

    def __init__(self, coordinator: Coordinator, fills: bool = False) -> None:
        self.coordinator, self.fills, self.traffic = coordinator, fills, Traffic()
        self._columns, self.feature_names = coordinator.n_features, coordinator.feature_names
        self._counts: tuple[int, int] | None = None
        self.last = (0, 0)

    @cached_property
    def first(self) -> FirstSums:
        """The first sums: of some parts if all of them would take a pass over files."""
        pooled, facts = self.total("sums", some=True, fills=self.fills)
        parts, rows = self.last
        if pooled.shape != (1 + (3 if self.fills else 2) * (self._columns or 0),) or facts.shape != (3,):
            raise TransportError("the first answer of the sites has other sizes than its columns say.")
        n_parts = self.coordinator.n_parts or parts
        if parts == n_parts:
            self._require_same(self.last)
        # As if all parts were like those that have answered.
        share = n_parts / max(1, parts)
        stored, n_bytes, sparse = facts.tolist()
        rows, n_bytes, stored = (round(share * size) for size in (rows, n_bytes, stored))
        return FirstSums(pooled, n_parts, rows, n_bytes, stored, bool(sparse), parts == n_parts)

    def total(self, verb: str, *arrays: np.ndarray, some: bool = False, **head: Any) -> list[np.ndarray]:
        """Sums that all sites answer to a verb, or ``some`` of their parts: the arrays of the verb."""
        message = verbs.encode({"verb": verb, "n_features": self._columns, **head}, *arrays)
        try:
            answered = (self.coordinator.ask_some if some else self.coordinator.ask)(message)
            told, found = self._read(verb, answered)
            counts = told["parts"], told["rows"]
            if not some:
                self._require_same(counts)
        except BaseException:
            # An answer that is wrong ends the fit.
            self.coordinator.close()
            raise
        self.last = counts
        if self._columns is None:
            self._columns = told["n_features"]
            self.feature_names = None if told.get("columns") is None else tuple(map(str, told["columns"]))
        self.traffic.rounds += 1
        self.traffic.messages += 2 * counts[0]
        self.traffic.matrices += int(verb in ("product", "triangle"))
        self.traffic.bytes += counts[0] * (len(message) + len(answered))
        return found

    def _read(self, verb: str, answered: bytes) -> tuple[dict[str, Any], list[np.ndarray]]:
        """Head and arrays of an answer; raises what it says went wrong, or that it is none."""
        try:
            told, found = verbs.decode(answered)
        except verbs.BadMessageError as error:
            raise TransportError(f"the answer to {verb!r} is none: {error}") from None
        if "error" in told:
            raise self._refusal(verb, told)
        counts = [told.get(count) for count in ("parts", "rows", "n_features")]
        if not all(type(count) is int and count >= 0 for count in counts):
            raise TransportError(f"the answer to {verb!r} is none: it has no number of parts, rows and columns.")
        return told, found

    def _require_same(self, counts: tuple[int, int]) -> None:
        """Raise unless as many parts have answered as before, with as many rows."""
        wanted = self.coordinator.n_parts
        before = (wanted, None) if self._counts is None else self._counts
        for what, now, then in zip(("parts", "rows"), counts, before, strict=True):
            if then is not None and now != then:
                raise TransportError(
                    f"{now:,} {what} have answered, and {then:,} should have: a site is gone, or its rows have "
                    "changed. There is no result; fit again when all sites answer."
                )
        self._counts = counts

    def _refusal(self, verb: str, told: dict[str, Any]) -> Exception:
        """The error for an answer that is one, with the name of the site."""
        site, text = str(told.get("site")), str(told.get("text"))
        if told["error"] == "NotFiniteError":
            place = f"{site}, row {told['row']}, {self.column_label(int(told['column']))}"
            return DataError(f'{place} is {told["value"]}; drop or fill it, or pass missing="mean".')
        if told["error"] == "BadMessageError":
            return DataError(f"{site}{' has ' if text[:1].isdigit() or text.startswith('other') else ': '}{text}")
        return TransportError(f"{site} could not answer {verb!r}: {told['error']}: {text}")

    @property
    def n_features(self) -> int:
        """Number of columns d; asks the sites if nobody else knows."""
        if self._columns is None:
            _ = self.first
        return int(self._columns or 0)

    def column_label(self, column: int) -> str:
        return data.column_label(self.feature_names, column)


@dataclass(frozen=True, eq=False)
class AskedCovariance:
    """C = (Y - mu)^T (Y - mu) / (N - 1) of all rows, scaled on request, as that of one node: products are asked."""

    sites: AskedSites
    moments: data.Moments
    kind: CovarianceKind
    rounding_size: float = 0.0

    @property
    def n_features(self) -> int:
        return len(self.moments.mean)

    def place(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values, dtype=np.float64)

    def apply(self, X: Array) -> np.ndarray:
        data.require_numpy(X, self.kind)
        scale = self.moments.scale
        block = X[0] if scale is None else X[0] / scale[:, np.newaxis]
        (total,) = self._asked("product", block)
        if scale is not None:
            total = total / scale[:, np.newaxis]
        return np.asarray(total / (self.moments.n_samples - 1))[np.newaxis]

    def traces_beyond(self, U: np.ndarray) -> np.ndarray:
        scale = np.ones(self.n_features) if self.moments.scale is None else self.moments.scale
        (total,) = self._asked("beyond", U, 1 / scale)
        return np.asarray(total / (self.moments.n_samples - 1))

    def _asked(self, verb: str, *arrays: np.ndarray) -> list[np.ndarray]:
        about = centre_of(self.moments)
        found = self.sites.total(verb, about, *arrays, fills=self.moments.n_missing > 0)
        shape = arrays[0].shape if verb == "product" else (1,)
        if [array.shape for array in found] != [shape] or not np.isfinite(found[0]).all():
            raise TransportError(
                f"the answer to {verb!r} is not finite numbers of shape {shape}: a site has computed a wrong one."
            )
        return found


def centre_of(moments: data.Moments) -> np.ndarray:
    """The mean, and what it lacks in float64 if that matters: (1 or 2, d)."""
    return np.stack([moments.mean] if moments.rest is None else [moments.mean, moments.rest])


@dataclass(frozen=True, eq=False)
class AskedData(Data):
    """Samples behind a coordinator. To a solver all sites are one node."""

    sites: AskedSites
    weights: graphs.Weights = field(default_factory=lambda: graphs.metropolis(graphs.topologies.complete(1)))

    @property
    def facts(self) -> DataFacts:
        sites = self.sites
        n_parts = sites.coordinator.n_parts or sites.first.n_parts
        return DataFacts.of_rows(n_parts, sites.n_features, None, sites.feature_names)

    def count(self, masked: bool) -> tuple[Size, None]:
        """N is known only with the sums."""
        return self.facts.size, None

    def check(self, request: Request) -> None:
        """Raise if the solver exchanges messages hundreds of times."""
        solver, seconds = request.solver, self.sites.coordinator.request_s
        if solver is not None and solver.traits.expected_products >= MANY_PRODUCTS:
            cost = f"exchanges messages hundreds of times, and on this engine each exchange takes {seconds:.2g} s"
            raise InputError(f'solver {solver.name!r} {cost}; use solver="auto", or give it the computed array.')

    def network(self, averaging: Averaging, max_rounds: int) -> Network:
        """One node; requests are counted as its traffic."""
        network = Stacked(self.weights, averaging)
        network.meter.traffic = self.sites.traffic
        return network

    def choose_covariance(
        self, request: Request, solver: Solver, n_components: int, network: Network | None = None
    ) -> data.Choice:
        """The requested kind, or the fastest: one large answer, or many small ones that take a request each."""
        first, d, coordinator = self.sites.first, self.sites.n_features, self.sites.coordinator
        asked = request.covariance or (CovarianceKind.FORMED if solver.traits.sums_covariances else None)
        sizes = data.Sizes(first.rows, d, 1, first.stored * 12 if first.is_sparse else None)
        if asked is not None:
            return sizes.asked(asked)
        flops_s = request.costs.flops_s
        answered_s = _triangle_bytes(d) * first.n_parts / ANSWERED_BYTES_S
        asking = flops_s * (coordinator.request_s + answered_s), flops_s * coordinator.request_s
        columns, products = solver.columns(n_components, d), solver.traits.expected_products
        # Besides its answer, a site has the whole matrix and one more.
        most = 6 * coordinator.largest_answer
        chosen = data.choose_by_size(sizes, columns, products, most, asking=asking)
        return chosen if chosen.kind is CovarianceKind.FORMED else replace(chosen, kind=self._kind(None))

    def _kind(self, asked: CovarianceKind | None) -> CovarianceKind:
        """The kind of products at the sites: of rows that are kept or read anew, or of sparse rows."""
        if asked is CovarianceKind.CHUNKED:
            return asked
        return CovarianceKind.SPARSE if self.sites.first.is_sparse else CovarianceKind.MATRIX_FREE

    def measure(self, network: Network, choice: data.Choice, request: Request) -> Measurement:
        """Moments and a formed covariance by one sum if that is precise enough; otherwise moments, then the rest."""
        sites, forms, first = self.sites, choice.kind is CovarianceKind.FORMED, self.sites.first
        if forms and not sites.fills and first.pooled[0] > 0:
            found = formed_about(sites, first.pooled[1 : 1 + sites.n_features] / first.pooled[0], request.scale)
            if found is not None:
                return Measurement(*found)
        if choice.kind is not CovarianceKind.CHUNKED:
            sites.coordinator.keep(first.n_bytes, choice.asked and not forms)
        moments = moments_of(sites, request)
        if forms:
            exact = formed_about(sites, centre_of(moments), request.scale, moments)
            if exact is None:
                raise DataError("products of the columns overflow float64; divide large columns by a constant.")
            return Measurement(*exact)
        # What cancels where sparse rows are centred after the product.
        weighed = data.scaled_mean(moments)
        cancels = float(weighed @ weighed) if first.is_sparse else 0.0
        return Measurement(moments, AskedCovariance(sites, moments, self._kind(choice.kind), cancels))

    def close(self) -> None:
        self.sites.coordinator.close()


def _triangle_bytes(d: int) -> int:
    return ITEM_BYTES * d * (d + 1) // 2


def moments_of(sites: AskedSites, request: Request) -> data.Moments:
    """Pooled moments by one sum about 0, and by one about the mean where that would lose digits."""
    first = sites.first
    pooled = first.pooled if first.whole else sites.total("sums", fills=sites.fills)[0]
    if not np.isfinite(pooled[: 1 + sites.n_features]).all():
        names = data.column_labels(sites, ~np.isfinite(pooled[1 : 1 + sites.n_features]))
        raise DataError(f"sums overflow float64 in {names}; divide these columns by a constant.")

    def deviations(centring: data.Centring) -> np.ndarray:
        found, _ = sites.total("sums", centring.mean[np.newaxis], fills=sites.fills)
        return np.asarray(found[1 : 1 + 2 * sites.n_features].reshape(2, -1))

    return data.moments_by_sums(deviations, sites, pooled, scale=request.scale, missing=request.missing)


def formed_about(
    sites: AskedSites, centre: np.ndarray, scale: data.Scaling, known: data.Moments | None = None
) -> tuple[data.Moments, data.Formed] | None:
    """Moments and pooled covariance by one sum about a centre; None if it is too far from the mean, or overflows.

    With ``known`` moments the centre is their mean, and entries may be missing.
    """
    about, d = np.atleast_2d(centre), sites.n_features
    sums, packed = sites.total("triangle", about, fills=sites.fills)
    if sums.shape != (1 + d,) or packed.shape != (_triangle_bytes(d) // ITEM_BYTES,):
        raise TransportError("the answer to 'triangle' has other sizes than the columns of the sites.")
    if not (sums[0] >= 2 and np.isfinite(sums).all() and np.isfinite(packed).all()):
        return None
    n_samples, products = data.whole_count(float(sums[0])), unpacked(packed, d)
    if known is None:
        shift, squares = sums[1:] / n_samples, np.diagonal(products)
        variance = squares / n_samples - shift**2
        # A constant column differs from its mean by rounding.
        rounding = 64 * np.finfo(np.float64).eps * np.abs(about[0])
        if np.any(shift**2 > LARGEST_SHIFT * np.maximum(variance, 0.0) + rounding**2):
            return None
        known = data.moments_about(data.Moments(n_samples, about[0], squares), sums[1:], n_samples, sites, scale=scale)
        products -= n_samples * np.outer(shift, shift)
    products /= n_samples - 1
    if known.scale is not None:
        products /= np.outer(known.scale, known.scale)
    weighed = data.scaled_mean(known)
    return known, data.Formed(products[np.newaxis], float(weighed @ weighed) if sites.first.is_sparse else 0.0)


def unpacked(packed: np.ndarray, d: int) -> np.ndarray:
    """The symmetric matrix whose upper triangle is packed by rows: (d (d + 1) / 2,) -> (d, d)."""
    matrix, start = np.empty((d, d)), 0
    for row in range(d):
        matrix[row, row:] = matrix[row:, row] = packed[start : start + d - row]
        start += d - row
    return matrix
