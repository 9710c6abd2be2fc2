"""Arrays of NumPy and sparse matrices of SciPy: .npy and .npz."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from eigenmesh.data.block import MatrixColumns, Table, table_of
from eigenmesh.data.source import Samples, as_source
from eigenmesh.data.table_options import TableOptions
from eigenmesh.errors import UnreadableFileError
from eigenmesh.model import is_model

# Names of samples and of labels in an archive.
SAMPLES = ("X", "data", "images")
LABELS = ("y", "labels", "label", "site", "target")


def read_npy(file: Path, options: TableOptions) -> Table:
    """Table of a memory-mapped .npy file."""
    source = as_source(np.lib.format.open_memmap(file, mode="r"), str(file))
    return table_of(MatrixColumns(source, str(file)), options, str(file))


def read_npz(file: Path, options: TableOptions) -> Table:
    """Table of a sparse matrix, or of an archive of arrays with labels and names."""
    if not zipfile.is_zipfile(file):
        # NumPy takes such a file for a pickle, and its error explains how to load that despite the danger.
        raise ValueError("it is not a zip file, or only the beginning of one")
    # NumPy would not close a file that it cannot read.
    with open(file, "rb") as content, np.load(content, allow_pickle=False) as archive:
        if is_model(archive.files):
            fix = f"to project samples onto its components: eigenmesh transform SAMPLES --model {file} --out scores.csv"
            raise UnreadableFileError(f"{file} is a saved model, which has no samples; {fix}")
        if {"format", "shape", "data"} <= set(archive.files):
            source, labels = as_source(scipy.sparse.load_npz(file), str(file)), None
        else:
            X = _find_samples(archive, file)
            names = archive["feature_names"] if "feature_names" in archive.files else np.empty(0)
            feature_names = tuple(str(name) for name in names) if names.shape == X.shape[1:] else None
            source, labels = as_source(X, str(file), feature_names), _find_labels(archive, len(X))
    table = table_of(MatrixColumns(source, str(file)), options, str(file))
    return replace(table, labels=labels) if table.labels is None else table


def _find_samples(archive: Any, file: Path) -> Samples:
    matrices = [name for name in SAMPLES if name in archive.files][:1]
    matrices = matrices or [name for name in archive.files if archive[name].ndim == 2]
    if len(matrices) != 1:
        wanted, found = ", ".join(SAMPLES), ", ".join(archive.files) or "nothing"
        raise UnreadableFileError(f"{file} needs one 2-D array, or one of the names {wanted}; it has {found}.")
    return archive[matrices[0]]


def _find_labels(archive: Any, n_samples: int) -> np.ndarray | None:
    for name in LABELS:
        labels = archive[name] if name in archive.files else np.empty(())
        if labels.shape != (n_samples,):
            continue
        if f"{name}_names" in archive.files and labels.dtype.kind in "iu":
            return np.asarray(archive[f"{name}_names"][labels])
        return np.asarray(labels)
    return None
