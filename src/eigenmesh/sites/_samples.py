"""A site's samples, read as its site.toml says."""

from __future__ import annotations

from dataclasses import replace

from eigenmesh.data._files import read_table
from eigenmesh.data._table import Table
from eigenmesh.errors import DataError
from eigenmesh.estimator._saved_model import require_order
from eigenmesh.sites._site import DataFile


def read_samples(data: DataFile) -> Table:
    """The table of the file, with the label column taken out and the names of its columns checked, in order."""
    table = read_table(data.file, label_column=data.label_column)
    if data.feature_names is None:
        return table
    n_features = table.X.shape[1]
    if len(data.feature_names) != n_features:
        raise DataError(
            f"{data.file} has {n_features} columns but data.feature_names has {len(data.feature_names)} names; "
            "make them equal."
        )
    if table.feature_names is not None:
        require_order(table.feature_names, data.feature_names, str(data.file), "data.feature_names")
    return replace(table, feature_names=data.feature_names)
