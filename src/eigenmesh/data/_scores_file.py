"""Files of scores: .csv, .npy or .npz, with ids and labels."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np

from eigenmesh._atomic_write import write_atomically
from eigenmesh.data._block import Table
from eigenmesh.data._table_options import TableOptions
from eigenmesh.errors import InputError

KINDS = (".npz", ".npy", ".csv")
# Rows to write at a time.
AT_ONCE = 10_000
OptionalColumn: TypeAlias = np.ndarray | None


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
    kind = path.suffix.lower()
    names = zip((options.id_column, options.label_column), ("id", "label"), strict=True)
    called = [name if isinstance(name, str) else usual for name, usual in names]
    others: dict[str, Any] = dict(more or {})
    write_atomically(path, lambda file: _write(file, kind, scores, others, read.ids, read.labels, *called))
    return path


def _write(
    file: IO[bytes],
    kind: str,
    scores: np.ndarray,
    more: dict[str, Any],
    ids: OptionalColumn,
    labels: OptionalColumn,
    id_name: str,
    label_name: str,
) -> None:
    if kind == ".npy":
        np.save(file, scores)
    elif kind == ".npz":
        texts: dict[str, Any] = {"ids": ids, "labels": labels}
        arrays: dict[str, Any] = {name: _plain(each) for name, each in texts.items() if each is not None}
        np.savez_compressed(file, scores=scores, **more, **arrays)
    else:
        names = [*(f"pc{k + 1}" for k in range(scores.shape[1])), *more]
        names = [*([id_name] if ids is not None else []), *names, *([label_name] if labels is not None else [])]
        _write_csv(file, names, [part for part in (ids, *scores.T, *more.values(), labels) if part is not None])


def _plain(values: np.ndarray) -> np.ndarray:
    """Text instead of objects, which would need pickle."""
    return values.astype(np.str_) if values.dtype.kind == "O" else values


def _write_csv(file: IO[bytes], names: list[str], columns: list[np.ndarray]) -> None:
    for start in range(0, max(1, len(columns[0])), AT_ONCE):
        text = io.StringIO(newline="")
        lines = csv.writer(text, lineterminator="\n")
        if start == 0:
            lines.writerow(names)
        lines.writerows(zip(*(column[start : start + AT_ONCE].tolist() for column in columns), strict=True))
        file.write(text.getvalue().encode())
