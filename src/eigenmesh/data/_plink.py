"""Genotypes of PLINK: .bed with .bim and .fam beside it, unpacked as rows are asked for."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from eigenmesh.data._block import Table
from eigenmesh.data._columns import MatrixColumns, table_of
from eigenmesh.data._splits import Rows
from eigenmesh.data._table_options import TableOptions
from eigenmesh.errors import DataError, DataWarning, UnreadableFileError

MAGIC = b"\x6c\x1b\x01"  # of a file with the samples of one variant after the other
# Copies of the allele that .bim names first, by the two bits of a genotype; 01 is a missing one.
COPIES = np.array([2.0, np.nan, 1.0, 0.0])
# The four genotypes of a byte, the first in its lowest bits: (256, 4).
UNPACKED = COPIES[np.arange(256)[:, np.newaxis] >> np.array([0, 2, 4, 6]) & 3]
AMBIGUOUS = ({"A", "T"}, {"C", "G"})
UNKNOWN_ALLELES = ("0", ".")
# Files that go with a .bed file: its samples and its variants.
BESIDE_BED = (".fam", ".bim")


class Variant(NamedTuple):
    """A line of .bim; ``alleles`` in the order of that file."""

    chromosome: str
    name: str
    position: str
    alleles: tuple[str, str]

    @property
    def counted(self) -> str:
        """The allele that comes first in the alphabet: the same at all sites, whichever of them .bim names first."""
        return min(self.alleles)

    @property
    def other(self) -> str:
        return max(self.alleles)

    @property
    def feature(self) -> str:
        """Name of the column: variant, counted allele and the other one. Sites whose alleles differ see it here."""
        return f"{self.name}_{self.counted}/{self.other}"


@dataclass(frozen=True, eq=False)
class Genotypes:
    """Copies 0, 1 or 2 of an allele, NaN where they are missing: samples (n, variants) from a mapped .bed file.

    packed: (variants, bytes), four samples to a byte. flipped: (variants,), True where the other allele is counted.
    """

    packed: np.ndarray
    n_samples: int
    flipped: np.ndarray
    feature_names: tuple[str, ...]
    dtype: ClassVar[np.dtype] = np.dtype(np.float64)
    n_stored: ClassVar[int | None] = None
    in_memory: ClassVar[bool] = False

    @property
    def shape(self) -> tuple[int, int]:
        return self.n_samples, len(self.packed)

    def read(self, rows: Rows) -> np.ndarray:
        if isinstance(rows, slice):
            first = rows.start // 4
            whole = UNPACKED[self.packed[:, first : -(-rows.stop // 4)]].reshape(len(self.packed), -1)
            copies = whole[:, rows.start - 4 * first : rows.stop - 4 * first]
        else:
            bits = self.packed[:, rows // 4] >> (2 * (rows % 4)).astype(np.uint8) & 3
            copies = COPIES[bits]
        copies[self.flipped] = 2.0 - copies[self.flipped]
        return np.asarray(copies.T)


def read_bed(file: Path, options: TableOptions) -> Table:
    """Table of a .bed file: one row per line of .fam, whose names are the ids, and one column per line of .bim."""
    samples, variants = read_fam(file.with_suffix(".fam")), read_bim(file.with_suffix(".bim"))
    ambiguous = [variant.name for variant in variants if set(variant.alleles) in AMBIGUOUS]
    if ambiguous:
        some = f"{', '.join(ambiguous[:3])}{' ..' if len(ambiguous) > 3 else ''}"
        fix = "make sure that all sites read the same strand, or leave them out with plink2 --exclude"
        warnings.warn(f"{len(ambiguous)} variants of {file} are A/T or C/G ({some}); {fix}.", DataWarning, stacklevel=4)
    flipped = np.array([variant.counted != variant.alleles[0] for variant in variants], dtype=bool)
    names = tuple(variant.feature for variant in variants)
    source = Genotypes(_packed(file, len(samples), len(variants)), len(samples), flipped, names)
    table = table_of(MatrixColumns(source, str(file)), options, str(file))
    return replace(table, ids=np.array(samples)) if table.ids is None else table


def read_fam(file: Path) -> list[str]:
    """Names of the samples, the second field of each line, each once."""
    names = [fields[1] for _, fields in _lines(file, 6)]
    if len(set(names)) < len(names):
        seen: set[str] = set()
        twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise DataError(f"{file} has the sample {twice!r} twice; give every sample a name of its own.")
    return names


def read_bim(file: Path) -> list[Variant]:
    """The variants, in the order of the file; each with two alleles that are known."""
    variants, seen = [], set()
    for line, (chromosome, name, _, position, first, second, *_) in _lines(file, 6):
        if name in seen:
            raise DataError(
                f"line {line} of {file} has the variant {name!r} again; give it another name, or leave it out."
            )
        if first == second or first in UNKNOWN_ALLELES or second in UNKNOWN_ALLELES:
            fix = "name both with plink2 --ref-allele or --update-alleles, or leave it out"
            raise DataError(f"line {line} of {file}: variant {name!r} has the alleles {first} and {second}; {fix}.")
        seen.add(name)
        variants.append(Variant(chromosome, name, position, (first, second)))
    return variants


def _lines(file: Path, least: int) -> Iterator[tuple[int, list[str]]]:
    try:
        content = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError as error:
        raise UnreadableFileError(f"{file} does not exist; a .bed file needs .bim and .fam beside it.") from error
    for number, line in enumerate(content, start=1):
        fields = line.split()
        if len(fields) < least:
            raise UnreadableFileError(f"line {number} of {file} has {len(fields)} fields, expected {least}; repair it.")
        yield number, fields


def _packed(file: Path, n_samples: int, n_variants: int) -> np.ndarray:
    with file.open("rb") as content:
        start = content.read(len(MAGIC))
    if start != MAGIC:
        fix = "write it with plink2 --make-bed"
        raise UnreadableFileError(f"{file} is no .bed file with samples by variant; {fix}.")
    width = -(-n_samples // 4)
    due, found = len(MAGIC) + width * n_variants, file.stat().st_size
    if found != due:
        parts = f"{n_samples:,} samples of .fam and {n_variants:,} variants of .bim"
        what = "it was cut short, or they are of another file" if found < due else "they are of another file"
        raise UnreadableFileError(f"{file} has {found:,} bytes, but {parts} make {due:,}: {what}.")
    return np.memmap(file, dtype=np.uint8, mode="r", offset=len(MAGIC), shape=(n_variants, width))
