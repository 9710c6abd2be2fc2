"""The options that say how tables are read, for every command that reads one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from eigenmesh.cli._options import DATA, option, takes_options
from eigenmesh.data import TableOptions
from eigenmesh.errors import InputError

LIST = "names, or numbers from 0, with commas between"
Text = str | None
# Parameters of a command, in the order of its help.
OPTIONS: dict[str, Any] = {
    "columns": Annotated[Text, option(DATA, "A,B,..", f"Use these columns, in this order: {LIST}.")],
    "drop": Annotated[Text, option(DATA, "A,B,..", f"Leave these columns out: {LIST}.")],
    "id_column": Annotated[Text, option(DATA, "NAME", "Column that names the samples; it is carried into scores.")],
    "label_column": Annotated[Text, option(DATA, "NAME", "Column of labels: its name, or its number from 0.")],
    "weight_column": Annotated[
        Text, option(DATA, "NAME", "Column that says how many samples a row stands for; 1 if absent.")
    ],
    "category": Annotated[
        list[str] | None,
        option(
            DATA, "NAME=A,B,..", "A column of categories and its levels, one column of 0 and 1 each. Can be repeated."
        ),
    ],
    "delimiter": Annotated[
        Text, option(DATA, "SIGN", "What separates fields; found by itself if absent. tab for a tab.")
    ],
    "decimal": Annotated[Text, option(DATA, ".|,", "Decimal mark; found by itself if absent.")],
    "layer": Annotated[Text, option(DATA, "NAME", "Dataset of a .h5 file, or layer of a .h5ad file; X if absent.")],
    "encoding": Annotated[Text, option(DATA, "NAME", "Of text files, such as latin-1; UTF-8 if absent.")],
}


def takes_table(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command all options of tables in the place of its parameter ``table``, a TableOptions."""
    return takes_options("table", OPTIONS, read_options)(command)


def read_options(
    *, columns: str | None, drop: str | None, category: Sequence[str] | None, delimiter: str | None, **texts: str | None
) -> TableOptions:
    """What was typed, as the library takes it."""
    lists = {
        name: None if text is None else list(map(_column, _words(text) or [""]))
        for name, text in (("columns", columns), ("drop", drop))
    }
    beside = {name: _column(text) for name, text in texts.items() if text is not None and name.endswith("_column")}
    plain = {name: text for name, text in texts.items() if not name.endswith("_column")}
    sign = "\t" if delimiter in ("tab", r"\t") else delimiter
    return TableOptions.of(**lists, **beside, **plain, delimiter=sign, categories=dict(map(_category, category or ())))


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
