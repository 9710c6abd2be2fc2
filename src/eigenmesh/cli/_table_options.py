"""The options for reading tables, shared by all commands that read one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from eigenmesh.cli._options import DATA, option, takes_options
from eigenmesh.data import TableOptions
from eigenmesh.errors import InputError

LIST = "names, or numbers from 0, separated by commas"
Text = str | None
# Parameters of a command, in the order of its help.
OPTIONS: dict[str, Any] = {
    "columns": Annotated[Text, option(DATA, "A,B,..", f"Use these columns, in this order: {LIST}.")],
    "drop": Annotated[Text, option(DATA, "A,B,..", f"Leave these columns out: {LIST}.")],
    "id_column": Annotated[
        Text, option(DATA, "NAME", "Column with the names of the samples; it is copied to the scores.")
    ],
    "label_column": Annotated[Text, option(DATA, "NAME", "Column of labels: its name, or its number from 0.")],
    "weight_column": Annotated[
        Text, option(DATA, "NAME", "Column of sample weights: how many samples a row stands for; 1 by default.")
    ],
    "category": Annotated[
        list[str] | None,
        option(
            DATA, "NAME=A,B,..", "A column of categories and its levels, one column of 0 and 1 each. Can be repeated."
        ),
    ],
    "header": Annotated[
        Text, option(DATA, "auto|yes|no", "Whether the first line has names; by default if a field is not a number.")
    ],
    "delimiter": Annotated[Text, option(DATA, "SIGN", "Separator of fields; detected by default. tab for a tab.")],
    "decimal": Annotated[Text, option(DATA, ".|,", "Decimal mark; detected by default.")],
    "layer": Annotated[Text, option(DATA, "NAME", "Dataset of a .h5 file, or layer of a .h5ad file; X by default.")],
    "encoding": Annotated[Text, option(DATA, "NAME", "Encoding of text files, such as latin-1; UTF-8 by default.")],
}


def takes_table(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter ``table`` of a command by all options of tables; it gets a TableOptions."""
    return takes_options("table", OPTIONS, read_options)(command)


def read_options(
    *, columns: str | None, drop: str | None, category: Sequence[str] | None, delimiter: str | None, **texts: str | None
) -> TableOptions:
    """The typed texts as TableOptions."""
    lists = {
        name: None if text is None else list(map(_column, _words(text) or [""]))
        for name, text in (("columns", columns), ("drop", drop))
    }
    special = {name: _column(text) for name, text in texts.items() if text is not None and name.endswith("_column")}
    plain = {name: text for name, text in texts.items() if not name.endswith("_column")}
    sign = "\t" if delimiter in ("tab", r"\t") else delimiter
    return TableOptions.of(**lists, **special, **plain, delimiter=sign, categories=dict(map(_category, category or ())))


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _column(text: str) -> str | int:
    """A column by its name, or by its number from 0."""
    return int(text) if text.isdecimal() else text


def _category(text: str) -> tuple[str, list[str]]:
    name, equals, levels = text.partition("=")
    if not equals or not _words(levels):
        raise InputError(f"--category {text} must be a column and its levels, such as --category sex=f,m.")
    return name.strip(), _words(levels)
