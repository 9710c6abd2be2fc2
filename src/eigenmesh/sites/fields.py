"""Reads tables of a TOML file field by field, and writes them. Every error names the file, the line and the field."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from eigenmesh.errors import InputError, UnknownNameError, UnreadableFileError
from eigenmesh.settings import Allowed, Setting
from eigenmesh.words import canonical_name

# The settings of a thousand sites are far smaller. A data file given by mistake is refused at once.
MAX_BYTES = 4 * 2**20
# Column at which the comment of a written table begins.
COMMENT_COLUMN = 33
# In the place of a default: the field must be given.
REQUIRED: Any = object()

P = ParamSpec("P")
T = TypeVar("T")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_list_of(kinds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda values: isinstance(values, list) and all(map(kinds, values))


TEXT = Allowed("a string in quotes, and not empty", _is_text)
TEXTS = Allowed('a list of strings, such as ["one", "two"]', _is_list_of(_is_text))
COLUMNS = Allowed(
    'a list of names or numbers of columns, such as ["age", "bmi"]',
    _is_list_of(lambda value: isinstance(value, str | int) and not isinstance(value, bool)),
)
NA_VALUES = Allowed(
    'a list of texts or numbers, such as ["unknown", -999]',
    _is_list_of(lambda value: isinstance(value, str | int | float) and not isinstance(value, bool)),
)
PAIRS = Allowed(
    'a list of pairs, such as [["one", "two"], ["two", "three"]]',
    _is_list_of(lambda value: TEXTS.accepts(value) and len(value) == 2),
)


def at_least(least: float, below: float) -> Allowed:
    """Numbers from ``least`` to below another bound."""
    return Allowed(
        f"a number from {least:g} to below {below:g}",
        lambda value: isinstance(value, int | float) and not isinstance(value, bool) and least <= value < below,
        python=float,
    )


class Fields:
    """One table of a TOML file.

    Parameters
    ----------
    path : Path
        The file, for errors.
    text : str
        The text of the file, in which the lines of fields are found.
    content : dict
        The fields of the table.
    header : str
        The name of the table; "" for the top of the file.
    index : int
        Which one it is of several tables with the same header.
    """

    def __init__(self, path: Path, text: str, content: dict[str, Any], header: str = "", index: int = 0) -> None:
        self.path, self.content, self.header = path, content, header
        self._text, self._index = text, index

    @classmethod
    def read(cls, path: Path, what: str) -> Fields:
        """The top table of a TOML file. ``what`` describes the expected file in errors."""
        try:
            if path.is_file() and path.stat().st_size > MAX_BYTES:
                raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
            text = path.read_text(encoding="utf-8-sig")
            return cls(path, text, tomllib.loads(text))
        except FileNotFoundError as error:
            raise UnreadableFileError(f"{path} does not exist; give the path of {what}.") from error
        except OSError as error:
            raise UnreadableFileError(f"{path} cannot be read: {error.strerror}; give the path of {what}.") from error
        except ValueError as error:
            raise UnreadableFileError(f"{path} is not TOML: {error}; {what} is a short TOML file.") from error

    def __contains__(self, key: str) -> bool:
        return key in self.content

    def require_known(self, known: Sequence[str]) -> None:
        """Raise for the first unknown field, with the closest known one."""
        for key in self.content:
            if key not in known:
                raise UnknownNameError(f"field in {self.line(key)}{self._in_table()}", key, known)

    def line(self, key: str) -> str:
        """The file and, if it can be found, the line of a field."""
        number = _line_of(self._text, self.header, self._index, key)
        return str(self.path) if number is None else f"{self.path}, line {number}"

    def error(self, key: str, message: str) -> InputError:
        """An error about a field."""
        return InputError(f"{self.line(key)}: {self._full_name(key)} {message}")

    def wrong(self, key: str, wanted: str) -> InputError:
        """An error about the value of a field."""
        return self.error(key, f"= {self.content[key]!r} {wanted}")

    def checked(self, key: str, check: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of ``check``. Its errors get the line of the field."""
        try:
            return check(*args, **kwargs)
        except InputError as error:
            raise self.error(key, f"is not valid: {error}") from error

    def value(self, key: str, *allowed: Allowed, default: Any = REQUIRED) -> Any:
        """The value of a field, which must be of one of the allowed kinds. Names as the library writes them."""
        if key not in self.content:
            if default is REQUIRED:
                where = self.line("") if self.header else str(self.path)
                raise InputError(f"{where}: {self._full_name(key)} is missing; add {key}{self._in_table()}.")
            return default
        value = self.content[key]
        for names in allowed:
            # Where only names are allowed, the error for another text suggests the nearest one.
            if names.known and isinstance(value, str) and (len(allowed) == 1 or names.accepts(value)):
                return canonical_name(f"{self._full_name(key)} in {self.line(key)}", value, names.known)
        if not any(one.accepts(value) for one in allowed):
            words = ", or ".join(one.words for one in sorted(allowed, key=lambda one: bool(one.known)))
            # TOML writes them in another way than Python.
            words = words.replace("True or False", "true or false, without quotes")
            raise self.wrong(key, f"must be {words}.")
        return value

    def setting(self, key: str, row: Setting) -> Any:
        """The value of a setting of the table, or its default."""
        return self.value(key, *(one for one in row.allowed if one.written), default=row.default_at("site"))

    def text(self, key: str) -> str:
        """A string."""
        return str(self.value(key, TEXT))

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings."""
        return tuple(self.value(key, TEXTS))

    def parsed(self, key: str, parse: Callable[[str], T]) -> T | None:
        """What ``parse`` makes of a string. None if it is missing."""
        return self.checked(key, parse, self.text(key)) if key in self else None

    def required_path(self, key: str) -> Path:
        """A path, relative to the folder of this file."""
        return self.path.parent / Path(self.text(key)).expanduser()

    def path_of(self, key: str) -> Path | None:
        """A path, relative to the folder of this file. None if it is missing."""
        return self.required_path(key) if key in self else None

    def pairs(self, key: str) -> tuple[tuple[str, str], ...]:
        """A list of pairs of strings."""
        return tuple((first, second) for first, second in self.value(key, PAIRS))

    def table(self, key: str, required: bool = False) -> Fields:
        """A table within this one. Empty if it is missing."""
        value = self.content.get(key, {})
        if not isinstance(value, dict):
            raise self.wrong(key, f"must be a table; write [{self._full_name(key)}] and its fields below.")
        if required and key not in self.content:
            raise InputError(f"{self.path} has no table [{self._full_name(key)}]; add it.")
        return Fields(self.path, self._text, value, self._full_name(key))

    def tables(self, key: str) -> list[Fields]:
        """A list of tables, each written as ``[[key]]``."""
        values = self.content.get(key, [])
        if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
            raise self.wrong(key, f"must be a list of tables; write [[{key}]] and its fields below, once for each.")
        return [Fields(self.path, self._text, value, key, index) for index, value in enumerate(values)]

    def _full_name(self, key: str) -> str:
        return f"{self.header}.{key}" if self.header and key else key or self.header

    def _in_table(self) -> str:
        return f" in [{self.header}]" if self.header else ""


def _line_of(text: str, header: str, index: int, key: str) -> int | None:
    """The line number of a field. None if it is written in an unusual style, such as in an inline table."""
    current, seen = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        if found := re.match(r"\s*\[{1,2}\s*([^\[\]\s]+)\s*\]{1,2}\s*(#.*)?$", line):
            current, repeated = found.group(1), line.lstrip().startswith("[[")
            seen += current == header and repeated
            if current == header and not key and (not repeated or seen == index + 1):
                return number
        elif current == header and seen in (0, index + 1) and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", line):
            return number if key else None
    return None


def toml(value: Any) -> str:
    """A value in TOML: numbers, strings and lists look the same as in JSON."""
    return json.dumps(value, ensure_ascii=False)


def toml_table(header: str, values: Mapping[str, Any], comment: str = "") -> str:
    """A table in TOML, with a comment next to its header; "" if it has no values."""
    if not values:
        return ""
    first = f"[{header}]".ljust(COMMENT_COLUMN) + f"# {comment}" if comment else f"[{header}]"
    # TOML cannot express None. Where None is allowed it is the default, so it can be left out.
    return "\n".join([first, *(f"{key} = {toml(value)}" for key, value in values.items() if value is not None)]) + "\n"
