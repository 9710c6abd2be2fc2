"""Components from files of any tool: arrays, tables of loadings, models, and what PLINK 2 and scanpy write."""

from __future__ import annotations

import csv
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eigenmesh.data.formats.anndata import H5AD, index_of
from eigenmesh.data.formats.hdf5 import open_hdf5
from eigenmesh.data.formats.plink import Variant
from eigenmesh.data.table import kind_of, read_table
from eigenmesh.errors import DataError, UnreadableFileError
from eigenmesh.model import is_model, read_model

# The file of ``plink2 --pca allele-wts``.
ALLELE_WEIGHTS = ".allele"
# Columns of tables of loadings that name the features, as ``loadings_`` of an estimator does.
FEATURE_COLUMNS = ("feature", "variable", "gene", "")
# Where scanpy keeps loadings.
LOADINGS = "varm/PCs"


@dataclass(frozen=True, eq=False)
class NamedComponents:
    """Components as a file or a tool has them.

    Attributes
    ----------
    values : array of shape (K, d) or (d, K)
        Components in rows or in columns.
    feature_names : tuple of str or None
        Names of the d features, if the file has them.
    mean : array of shape (d,) or None
        The mean that samples are centred with, if the file has it.
    """

    values: np.ndarray
    feature_names: tuple[str, ...] | None = None
    mean: np.ndarray | None = None

    @property
    def count(self) -> int:
        """Number of components K."""
        return int(min(self.values.shape))

    def of(self, names: tuple[str, ...] | None, n_features: int, where: str) -> tuple[np.ndarray, np.ndarray | None]:
        """Components (K, d) and mean (d,) of features in the order of ``names``; errors name the file as ``where``."""
        values, own = self.values, self.feature_names
        if (len(own) if own else n_features) != values.shape[1]:
            values = values.T
        if own is None or names is None or own == names:
            if values.shape[1] != n_features:
                found = f"{self.values.shape[0]:,} x {self.values.shape[1]:,} numbers"
                raise DataError(f"{where} has {found}; one of both must be {n_features:,}, the features of the data.")
            return values, self.mean
        places = {name: place for place, name in enumerate(own)}
        lacking = [name for name in names if name not in places]
        if lacking:
            more = f" and {len(lacking) - 1:,} more" if len(lacking) > 1 else ""
            fix = "leave these columns of the data out, or call features alike in both"
            has = f"{where} has the features {', '.join(map(repr, own[:3]))}, .."
            raise DataError(f"{has}, but not {lacking[0]!r}{more}, which the data have; {fix}.")
        order = [places[name] for name in names]
        return values[:, order], None if self.mean is None else self.mean[order]


def read_components(path: Path) -> NamedComponents:
    """Components from .npy, .npz, .csv and other tables, models, .eigenvec.allele and .h5ad with ``varm["PCs"]``.

    In a table each row is a component, or each row is a feature whose name is in a first column called "feature".
    """
    if not path.is_file():
        raise UnreadableFileError(f"{path} does not exist; --components names the file of the components.")
    kind = kind_of(path)
    if kind == ALLELE_WEIGHTS:
        return _allele_weights(path)
    if kind == H5AD:
        with open_hdf5(path) as file:
            if LOADINGS not in file:
                raise UnreadableFileError(f"{path} has no {LOADINGS}; run scanpy.pp.pca and write it again.")
            return NamedComponents(
                file[LOADINGS][:].T.astype(float), tuple(index_of(file["var"], path, "var").tolist())
            )
    if kind == ".npz":
        return _of_archive(path)
    in_rows = kind in (".csv", ".tsv", ".txt") and _first_field(path).casefold() in FEATURE_COLUMNS
    table = read_table(path, id_column=0) if in_rows else read_table(path)
    values = np.asarray(table.X, dtype=float)
    if in_rows and table.ids is not None:
        return NamedComponents(values.T, tuple(map(str, table.ids)))
    return NamedComponents(values, table.feature_names)


def _of_archive(path: Path) -> NamedComponents:
    """Components of a model, or the array called "components" or "components_", or the only matrix of an archive."""
    if not zipfile.is_zipfile(path):
        raise UnreadableFileError(f"{path} is no .npz file; write it with numpy.savez or DecentralizedPCA.save.")
    with np.load(path, allow_pickle=False) as archive:
        names = archive.files
        if not is_model(names):
            matrices = [name for name in names if archive[name].ndim == 2]
            chosen = [name for name in ("components", "components_") if name in matrices] or matrices
            if len(chosen) != 1:
                raise UnreadableFileError(
                    f"{path} needs one matrix, or one called components; it has {', '.join(names) or 'nothing'}."
                )
            mean = next((archive[name] for name in ("mean", "mean_") if name in names), None)
            return NamedComponents(archive[chosen[0]].astype(float), mean=mean)
    model = read_model(path)
    return NamedComponents(model.components, model.feature_names, model.mean)


def _allele_weights(path: Path) -> NamedComponents:
    """Weights of the counted alleles; those of the other ones are their negatives."""
    with open(path, encoding="utf-8", newline="") as lines:
        rows = csv.DictReader(lines, delimiter="\t")
        fields = rows.fieldnames or ()
        numbers = [name for name in fields if name.startswith("PC")]
        if not numbers or not {"ID", "REF", "ALT", "A1"} <= set(fields):
            raise UnreadableFileError(f"{path} lacks ID, REF, ALT, A1 or PC1; write it with plink2 --pca allele-wts.")
        weights = {}
        for row in rows:
            variant = Variant("", row["ID"], "", (row["ALT"], row["REF"]))
            if row["A1"] == variant.counted:
                weights[variant.feature] = [float(row[name]) for name in numbers]
    return NamedComponents(np.array(list(weights.values())).T, tuple(weights))


def _first_field(path: Path) -> str:
    """The first field of the first line of a table, without quotes."""
    with open(path, encoding="utf-8-sig", errors="replace") as lines:
        return re.split(r"[,;\t]", lines.readline())[0].strip().strip('"')
