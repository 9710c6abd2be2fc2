"""Reads tables of a TOML file field by field; errors name the file, the line and the field."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from eigenmesh._lookup import canonical_name
from eigenmesh.errors import InputError, UnknownNameError, UnreadableFileError
from eigenmesh.settings import Names, Setting

# The settings of a thousand sites are far smaller. A data file given by mistake is refused at once.
MAX_BYTES = 4 * 2**20

P = ParamSpec("P")
T = TypeVar("T")


class Fields:
    """One table of a TOML file.

    Every getter raises InputError with the line, the value and its bound. ``default=None`` makes a field required.
    """

    def __init__(self, path: Path, text: str, content: dict[str, Any], header: str = "", index: int = 0) -> None:
        self.path, self.content, self.header = path, content, header
        self._text, self._index = text, index

    @classmethod
    def read(cls, path: Path, what: str) -> Fields:
        """The top table of a TOML file; ``what`` describes the expected file in errors."""
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
                raise UnknownNameError(f"field in {self.place(key)}{self._in_table()}", key, known)

    def place(self, key: str) -> str:
        """The file and, if it can be found, the line of a field."""
        line = _line_of(self._text, self.header, self._index, key)
        return str(self.path) if line is None else f"{self.path}, line {line}"

    def error(self, key: str, message: str) -> InputError:
        return InputError(f"{self.place(key)}: {self._full_name(key)} {message}")

    def wrong(self, key: str, wanted: str) -> InputError:
        """An error about the value of a field."""
        return self.error(key, f"= {self.content[key]!r} {wanted}")

    def checked(self, key: str, check: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of ``check``; its errors get the place of the field."""
        try:
            return check(*args, **kwargs)
        except InputError as error:
            raise self.error(key, f"is not valid: {error}") from error

    def setting(self, key: str, row: Setting) -> Any:
        """The value of a setting of the table, or its default; names as the library writes them."""
        if key not in self.content:
            return row.default_at("site")
        value, written = self.content[key], [one for one in row.allowed if one.written]
        for names in written:
            if isinstance(names, Names) and isinstance(value, str) and (len(written) == 1 or names.accepts(value)):
                return canonical_name(f"{self._full_name(key)} in {self.place(key)}", value, names.known)
        if not any(one.accepts(value) for one in written):
            words = row.allowed_words(written=True).replace("True or False", "true or false, without quotes,")
            raise self.wrong(key, f"must be {words}.")
        return value

    def text(self, key: str, default: str | None = None, choices: Sequence[str] = ()) -> str:
        """A string; if there are choices, the canonical name of one of them."""
        value = self._value(key, default)
        if not isinstance(value, str) or not value:
            raise self.wrong(key, "must be a string in quotes, and not empty.")
        return canonical_name(f"{self._full_name(key)} in {self.place(key)}", value, choices) if choices else value

    def whole(self, key: str, least: int, default: int | None = None, most: int | None = None) -> int:
        value = self._value(key, default)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or value < least or (most is not None and value > most):
            bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
            raise self.wrong(key, f"must be a whole number {bounds}.")
        return int(value)

    def number(self, key: str, above: float, below: float, default: float | None = None) -> float:
        """A number strictly between two bounds."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not above < value < below:
            raise self.wrong(key, f"must be a number strictly between {above:g} and {below:g}.")
        return float(value)

    def at_least(self, key: str, least: float, below: float, default: float | None = None) -> float:
        """A number of at least ``least`` and less than ``below``."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < below:
            raise self.wrong(key, f"must be a number from {least:g} to below {below:g}.")
        return float(value)

    def flag(self, key: str, default: bool | None = None) -> bool:
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, "must be true or false, without quotes.")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        values = self._value(key, None)
        if not isinstance(values, list) or not all(isinstance(value, str) and value for value in values):
            raise self.wrong(key, 'must be a list of strings, such as ["one", "two"].')
        return tuple(values)

    def column(self, key: str) -> str | int:
        """A column by name, or by number from 0."""
        return self.whole(key, 0) if isinstance(self.content.get(key), int) else self.text(key)

    def columns(self, key: str) -> tuple[str | int, ...]:
        """A list of columns by name, or by number from 0."""
        values = self._value(key, None)
        plain = isinstance(values, list) and not any(isinstance(value, bool) for value in values)
        if not plain or not all(isinstance(value, str | int) for value in values):
            raise self.wrong(key, 'must be a list of names or numbers of columns, such as ["age", "bmi"].')
        return tuple(values)

    def pairs(self, key: str) -> tuple[tuple[str, str], ...]:
        values = self._value(key, None)
        if not isinstance(values, list):
            raise self.wrong(key, 'must be a list of pairs, such as [["one", "two"], ["two", "three"]].')
        for value in values:
            if not isinstance(value, list) or len(value) != 2 or not all(isinstance(name, str) for name in value):
                raise self.error(key, f'has {value!r}, which is not a pair of names; write ["one", "two"].')
        return tuple((first, second) for first, second in values)

    def table(self, key: str, required: bool = False) -> Fields:
        """A table within this one; empty if it is missing."""
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

    def _value(self, key: str, default: Any) -> Any:
        value = self.content.get(key, default)
        if value is None:
            where = self.place("") if self.header else str(self.path)
            raise InputError(f"{where}: {self._full_name(key)} is missing; add {key}{self._in_table()}.")
        return value

    def _full_name(self, key: str) -> str:
        return f"{self.header}.{key}" if self.header and key else key or self.header

    def _in_table(self) -> str:
        return f" in [{self.header}]" if self.header else ""


def _line_of(text: str, header: str, index: int, key: str) -> int | None:
    """The line number of a field; None if it is written in an unusual style, such as in an inline table."""
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
