"""Scores of samples: centred, scaled and projected onto components, a piece at a time."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final, Literal, TypeAlias

import numpy as np

from eigenmesh.arrays import is_sparse, to_numpy
from eigenmesh.atomic_write import write_atomically
from eigenmesh.data.block import Block, Table, aligned
from eigenmesh.data.covariance import distances
from eigenmesh.data.moments import first_not_finite, stored
from eigenmesh.data.source import Samples, Source, as_source
from eigenmesh.data.table_options import TableOptions, column_label
from eigenmesh.errors import DataError, InputError

# Policy for missing entries: raise, use the pooled mean, or fit the scores to the other entries.
Filling: TypeAlias = Literal["error", "mean", "least-squares"]
LEAST_SQUARES: Final = "least-squares"
# Rows of a source that are made dense and centred at a time, as float64.
PIECE_BYTES = 32 * 2**20
# Directions of which less than this share is observed count as unknown.
LEAST_KNOWN = 1e-9


def kept_dtype(dtype: np.dtype) -> np.dtype:
    """float32 for float32, float64 for everything else, as in scikit-learn's transformers."""
    return np.dtype(np.float32 if dtype == np.float32 else np.float64)


@dataclass(frozen=True, eq=False)
class Projector:
    """The map y -> V (y - mean) / scale / spread onto components V (K, d); with ``fills``, a missing entry is the mean.

    mean, scale : (d,); spread : divisors of the scores, (K,), or None; solves : missing entries are predicted from the
    scores that best fit the observed entries.
    """

    components: np.ndarray
    mean: np.ndarray
    scale: np.ndarray | None = None
    fills: bool = False
    spread: np.ndarray | None = None
    solves: bool = False

    def standardised(self, X: Samples) -> np.ndarray:
        """(X - mean) / scale, dense and in float64: (n, d)."""
        dense = X.toarray() if is_sparse(X) else np.asarray(X)
        centred = dense - self.mean
        missing = ~np.isfinite(centred) if self.fills else None
        if missing is not None:
            centred = np.where(missing, 0.0, centred)
        Z = np.asarray(centred if self.scale is None else centred / self.scale)
        if self.solves and missing is not None:
            self._solve(Z, missing)
        return Z

    def _solve(self, Z: np.ndarray, missing: np.ndarray) -> None:
        """Replace the missing entries m of each row of Z by ``V_m^T t``, with scores t by least squares on the others.

        Z and missing are (n, d). V (K, d) is orthonormal, so that
        ``t = (V_o V_o^T)^-1 V_o z_o = (I - V_m V_m^T)^-1 V z`` for z with zeros at m.
        """
        V = self.components
        for row in np.flatnonzero(missing.any(axis=1)).tolist():
            V_m = V[:, missing[row]]
            observed = np.eye(len(V)) - V_m @ V_m.T
            # If the solution is not unique, the shortest one: scores of 0 for a row without entries.
            Z[row, missing[row]] = V_m.T @ (np.linalg.pinv(observed, rtol=LEAST_KNOWN, hermitian=True) @ (V @ Z[row]))

    def scores(self, X: Samples) -> np.ndarray:
        """Scores of samples in memory, dense or CSR: (n, d) -> (n, K)."""
        if is_sparse(X) and not self.fills:
            # Centred after the product, so that X is never made dense.
            loadings = self.components if self.scale is None else self.components / self.scale
            scores = np.asarray(X @ loadings.T) - self.mean @ loadings.T
        else:
            scores = self.standardised(X) @ self.components.T
        return np.asarray(scores if self.spread is None else scores / self.spread, dtype=kept_dtype(X.dtype))

    def scores_of_rows(self, rows: Samples, where: str) -> np.ndarray:
        """Scores of rows in memory, checked: (n, d) -> (n, K). Errors name them as ``where``."""
        return self.scores_of(as_source(rows.tocsr() if hasattr(rows, "tocsr") else rows, where), None, where)

    def scores_of(self, source: Source, names: tuple[str, ...] | None, where: str) -> np.ndarray:
        """Scores of a source of any size, its columns aligned with the names of the features: (n, d) -> (n, K)."""
        scores = np.zeros((source.shape[0], len(self.components)), dtype=kept_dtype(np.dtype(source.dtype)))
        for rows, columns, piece in self._pieces(source, names, where, whole_rows=self.solves):
            scores[rows] += self._part(columns).scores(piece)
        return scores

    def _part(self, columns: slice) -> Projector:
        """The contribution of some columns to the scores."""
        scale = None if self.scale is None else self.scale[columns]
        return replace(self, components=self.components[:, columns], mean=self.mean[columns], scale=scale)

    def distances_of(
        self, source: Source, variances: np.ndarray, names: tuple[str, ...] | None, where: str
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """T2, SPE and scores that are not divided by ``spread``: (n, d) -> (n,), (n,), (n, K), in float64."""
        n = source.shape[0]
        t2, spe, scores = np.empty(n), np.empty(n), np.empty((n, len(self.components)))
        for rows, _, piece in self._pieces(source, names, where, whole_rows=True):
            Z = self.standardised(piece)
            t2[rows], spe[rows], _ = distances(Z, self.components, variances)
            scores[rows] = Z @ self.components.T
        return t2, spe, scores

    def _pieces(
        self, source: Source, names: tuple[str, ...] | None, where: str, whole_rows: bool
    ) -> Iterator[tuple[slice, slice, Samples]]:
        """Triples (rows, columns, piece) of a source whose columns are aligned with the names of the features."""
        block = Block(aligned(source, self.components.shape[1], names, where, "the model"))
        for rows, columns, read in block.pieces(PIECE_BYTES, whole_rows=whole_rows):
            piece = read if is_sparse(read) else to_numpy(read)
            if not self.fills and not np.isfinite(stored(piece)).all():
                row, column, value = first_not_finite(piece)
                row, column = rows.start + row, columns.start + column
                place = block.place(row, column) or f"{where}: row {row}, {column_label(names, column)}"
                raise DataError(f'{place} is {value}; drop the row, or set missing="mean" (--missing mean).')
            yield rows, columns, piece


# Files of scores: .csv, .npy or .npz, with ids and labels.


KINDS = (".npz", ".npy", ".csv")


def scores_file(path: Path) -> Path:
    """The path; raises unless it has the suffix of a file of scores."""
    if path.suffix.lower() not in KINDS:
        raise InputError(f"{path} must end in {', '.join(KINDS)}, the formats of scores.")
    return path


def save_scores(
    path: Path, scores: np.ndarray, read: Table, options: TableOptions, more: Mapping[str, np.ndarray] | None = None
) -> Path:
    """Write scores (n, K), completely or not at all, with the ids and labels of their table; returns the path.

    In .csv ids come first and labels last, called as in ``options``; in .npz they are separate arrays; .npy has only
    the scores. ``more`` are further numbers of each sample by name, (n,) each, after the scores.
    """
    kind, others = path.suffix.lower(), dict(more or {})
    texts = {"ids": read.ids, "labels": read.labels}
    arrays = {name: _plain(values) for name, values in texts.items() if values is not None}

    def write(file: IO[bytes]) -> None:
        if kind == ".npy":
            np.save(file, scores)
        elif kind == ".npz":
            np.savez_compressed(file, scores=scores, **others, **arrays)  # type: ignore[arg-type]
        else:
            called = options.id_column, options.label_column
            usual = "id", "label"
            ids, labels = [name if isinstance(name, str) else other for name, other in zip(called, usual, strict=True)]
            numbers = {f"pc{k + 1}": column for k, column in enumerate(scores.T)} | others
            columns = [(ids, read.ids), *numbers.items(), (labels, read.labels)]
            _write_csv(file, [(name, column) for name, column in columns if column is not None])

    write_atomically(path, write)
    return path


def _plain(values: np.ndarray) -> np.ndarray:
    """Text instead of objects, which would need pickle."""
    return values.astype(np.str_) if values.dtype.kind == "O" else values


def _write_csv(file: IO[bytes], columns: list[tuple[str, np.ndarray]]) -> None:
    with io.TextIOWrapper(file, encoding="utf-8", newline="") as text:
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow([name for name, _ in columns])
        lines.writerows(zip(*(column.tolist() for _, column in columns), strict=True))


# Scores of samples that were not in the fit, without their shrinkage.
#
# Components are tilted towards the samples that they were fitted to, more strongly the more features there are per
# sample. So scores of other samples shrink towards zero.


def unshrunk(scores: np.ndarray, residuals: np.ndarray, singular_values: np.ndarray) -> np.ndarray:
    """Scores of new samples as if each had been in the fit: (n, K), (n,), (K,) -> (n, K).

    For each sample with scores t and residual norm g, the fitted samples, whose K singular values s are known, and the
    new one are decomposed together (online augmentation; Zhang, Dey and Lee 2020, Bioinformatics 36, 3439)::

        [diag(s)  t]
        [   0     g]  =  A S B^T,       (K + 1) x (K + 1)

    so that ``S B^T`` has new scores of both. The rotation and scale that turn those of the fitted samples into their
    old ones (Procrustes) are applied to those of the new sample. No model of the noise is needed.
    """
    K = scores.shape[1]
    joint = np.zeros((len(scores), K + 1, K + 1))
    joint[:, range(K), range(K)] = singular_values
    joint[:, :K, K], joint[:, K, K] = scores, residuals
    _, sizes, axes = np.linalg.svd(joint)
    augmented = sizes[:, :K, np.newaxis] * axes[:, :K, :]
    fitted, new = np.swapaxes(augmented[:, :, :K], -1, -2), augmented[:, :, K]
    # fitted (n, K samples, K scores) -> diag(s)
    left, spread, right = np.linalg.svd(np.swapaxes(fitted, -1, -2) * singular_values)
    size = np.sum(fitted**2, axis=(-2, -1))
    scale = np.divide(spread.sum(axis=-1), size, out=np.ones_like(size), where=size > 0)
    return np.asarray(scale[:, np.newaxis] * np.einsum("nk,nkl->nl", new, left @ right))
