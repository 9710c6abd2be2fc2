"""What to do with columns that are not numbers, as options that can be given as they are."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eigenmesh.data.table_options import TableOptions

# Columns of so few words are categories; so few words in a column of numbers stand for missing ones.
MOST_LEVELS, MOST_WORDS = 10, 3
# Columns that say where a row is from.
LABEL_NAME = re.compile(r"site|hospital|clinic|cent(er|re)|node|region|country|group|label|batch|cohort", re.IGNORECASE)
A_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T].*)?")


@dataclass(frozen=True)
class Unusable:
    """A column that is not numeric.

    Attributes
    ----------
    column : its number.
    name : its name, if it has one.
    words : its entries that are not numbers, and how often each occurs.
    n_missing : number of missing entries.
    n_rows : number of all entries.
    is_time : whether its entries are dates, times or durations, by their type.
    """

    column: int
    name: str | None
    words: Mapping[str, int]
    n_missing: int
    n_rows: int
    is_time: bool = False

    @classmethod
    def of(cls, column: int, name: str, entries: Any) -> Unusable:
        """From a series of narwhals."""
        values = entries.to_list()
        words = Counter(str(value).strip() for value in values if value is not None and value == value)
        return cls(column, name, words, len(values) - words.total(), len(values), entries.dtype.is_temporal())

    @property
    def n_words(self) -> int:
        return sum(self.words.values())

    @property
    def called(self) -> str | int:
        """Its name, or its number where a list of names on a command line could not have the name."""
        return self.column if self.name is None or not self.name or "," in self.name else self.name

    @property
    def is_id(self) -> bool:
        """Whether every sample has an entry of its own."""
        return self.n_missing == 0 and self.n_words == len(self.words) == self.n_rows > 1

    @property
    def is_numbers(self) -> bool:
        """Whether most entries are numbers, and the few others are the same words again and again."""
        n_numbers = self.n_rows - self.n_missing - self.n_words
        return n_numbers >= self.n_words and 0 < len(self.words) <= MOST_WORDS and not _has_comma(self.words)

    @property
    def is_category(self) -> bool:
        """Whether it has a few words, which repeat."""
        can_be_said = isinstance(self.called, str) and "=" not in self.called and not _has_comma(self.words)
        few = 2 <= len(self.words) <= MOST_LEVELS and self.n_words > len(self.words)
        return few and can_be_said and self.n_words + self.n_missing == self.n_rows

    @property
    def is_label(self) -> bool:
        """Whether every sample has one of some words, which repeat."""
        return self.n_words == self.n_rows and 2 <= len(self.words) <= self.n_rows / 2 and not self.is_date

    @property
    def is_date(self) -> bool:
        return self.is_time or all(map(A_DATE.fullmatch, self.words))


def _has_comma(words: Mapping[str, int]) -> bool:
    return any("," in word for word in words)


def cure_of(unusable: Sequence[Unusable], options: TableOptions) -> dict[str, Any]:
    """Options with which a table can be read that has these columns, together with those that it was read with."""
    drop, na_values = list(options.drop), list(options.na_values)
    categories = {column: list(levels) for column, levels in options.categories.items()}
    found: dict[str, Any] = {}
    labels = [one for one in unusable if one.is_label] if options.needs_labels and options.label_column is None else []
    # Of several, the first one whose name says so.
    by = next(iter(sorted(labels, key=lambda one: LABEL_NAME.search(one.name or "") is None)), None)
    for one in unusable:
        if one is by:
            found["label_column"] = one.called
        elif one.is_numbers:
            na_values += [word for word in one.words if word not in na_values]
        elif one.is_id and not one.is_date and options.id_column is None and "id_column" not in found:
            found["id_column"] = one.called
        elif one.is_category and not one.is_date:
            categories[str(one.name)] = sorted(one.words)
        else:
            drop.append(one.called)
    longer = {"categories": categories, "na_values": na_values, "drop": drop}
    found |= {name: value for name, value in longer.items() if len(value) > len(getattr(options, name))}
    return found


def in_python(options: Mapping[str, Any]) -> str:
    """Options as they are given in Python: ``id_column="patient", drop=["note"]``."""
    return ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in options.items())
