"""Reads a site's samples as its site.toml says."""

from dataclasses import replace

from eigenmesh.data import Block, Table, read_table
from eigenmesh.data._table import require_columns
from eigenmesh.sites._site import DataFile


def read_samples(data: DataFile) -> Table:
    """The table of the file without the label column, the names of its columns checked in order."""
    table = read_table(data.file, label_column=data.label_column)
    if data.feature_names is None:
        return table
    names = data.feature_names
    require_columns(table.source, len(names), names, str(data.file), "data.feature_names")
    return replace(table, source=Block(table.source, names=names))
