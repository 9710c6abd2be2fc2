"""Genotypes: copies of an allele from files that store one variant after another, read on request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from eigenmesh.data._block import Table
from eigenmesh.data._columns import MatrixColumns, table_of
from eigenmesh.data._splits import Rows
from eigenmesh.data._table_options import TableOptions
from eigenmesh.errors import DataError, warn_user

# A missing genotype: an impossible number of copies, even after 2 - copies in a byte.
MISSING = 255
AMBIGUOUS = ({"A", "T"}, {"C", "G"})
UNKNOWN_ALLELES = ("0", ".", "")


class Variant(NamedTuple):
    """A variant; ``alleles`` in the order of its file, whose genotypes are copies of the first."""

    chromosome: str
    name: str
    position: str
    alleles: tuple[str, str]

    @property
    def counted(self) -> str:
        """The allele that is first in the alphabet: the same at all sites, whichever allele a file counts."""
        return min(self.alleles)

    @property
    def other(self) -> str:
        return max(self.alleles)

    @property
    def feature(self) -> str:
        """Name of the column: variant, counted and other allele; so sites with different alleles get an error."""
        return f"{self.name}_{self.counted}/{self.other}"


class CopiesFile(Protocol):
    """A file of genotypes. To add a format, write such a class and a function that makes a table from it."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of variants and of samples."""

    def copies(self, variants: Rows, samples: Rows) -> np.ndarray:
        """Copies 0, 1, 2 of each variant's first allele, or ``MISSING``: a new array (variants, samples) of bytes."""


@dataclass(frozen=True, eq=False)
class Genotypes:
    """Copies 0, 1 or 2 of the counted alleles, NaN if missing: samples (n, variants).

    flipped: (variants,), True where the file counts the other allele.
    """

    file: CopiesFile
    flipped: np.ndarray
    feature_names: tuple[str, ...]
    dtype: ClassVar[np.dtype] = np.dtype(np.float64)
    n_stored: ClassVar[int | None] = None
    in_memory: ClassVar[bool] = False
    by_columns: ClassVar[bool] = True

    @property
    def shape(self) -> tuple[int, int]:
        n_variants, n_samples = self.file.shape
        return n_samples, n_variants

    def read(self, rows: Rows) -> np.ndarray:
        return self._read(slice(0, self.shape[1]), rows)

    def read_columns(self, columns: Rows) -> np.ndarray:
        return self._read(columns, slice(0, self.shape[0]))

    def _read(self, variants: Rows, samples: Rows) -> np.ndarray:
        copies, flipped = self.file.copies(variants, samples), self.flipped[variants]
        copies[flipped] = 2 - copies[flipped]
        found = copies.astype(np.float64)
        missing = copies > 2
        if missing.any():
            found[missing] = np.nan
        return found.T


def genotype_table(
    path: Path, file: CopiesFile, samples: Sequence[str], variants: Sequence[Variant], options: TableOptions
) -> Table:
    """Table of a file: one row per sample, whose names are the ids, and one column per variant."""
    ambiguous = [variant.name for variant in variants if set(variant.alleles) in AMBIGUOUS]
    if ambiguous:
        some = f"{', '.join(ambiguous[:3])}{' ..' if len(ambiguous) > 3 else ''}"
        fix = "make sure that all sites read the same strand, or leave them out with plink2 --exclude"
        warn_user(f"{len(ambiguous)} variants of {path} are A/T or C/G ({some}); {fix}.")
    flipped = np.array([variant.counted != variant.alleles[0] for variant in variants], dtype=bool)
    source = Genotypes(file, flipped, tuple(variant.feature for variant in variants))
    table = table_of(MatrixColumns(source, str(path)), options, str(path))
    return replace(table, ids=np.array(samples)) if table.ids is None else table


def checked_samples(names: Sequence[str], where: object) -> Sequence[str]:
    """The names; raises if one occurs twice."""
    if len(set(names)) < len(names):
        seen: set[str] = set()
        twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise DataError(f"{where} has the sample {twice!r} twice; give every sample its own name.")
    return names


def checked_variants(numbered: Iterable[tuple[str, Variant]]) -> list[Variant]:
    """The variants, given with their locations in a file; raises for duplicate names and unknown alleles."""
    variants, seen = [], set()
    for place, variant in numbered:
        first, second = variant.alleles
        if variant.name in seen:
            raise DataError(f"{place} has the variant {variant.name!r} again; give it another name, or leave it out.")
        if "," in first + second:
            fix = "split it with bcftools norm -m-, or leave it out with plink2 --max-alleles 2"
            raise DataError(f"{place}: variant {variant.name!r} has more than two alleles ({first}, {second}); {fix}.")
        if first == second or first in UNKNOWN_ALLELES or second in UNKNOWN_ALLELES:
            fix = "name both with plink2 --ref-allele or --update-alleles, or leave it out"
            raise DataError(f"{place}: variant {variant.name!r} has the alleles {first} and {second}; {fix}.")
        seen.add(variant.name)
        variants.append(variant)
    return variants
