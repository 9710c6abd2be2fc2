"""Files of PLINK: .bed with .bim and .fam, and .pgen with .pvar and .psam."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from eigenmesh.data._block import Table
from eigenmesh.data._genotypes import MISSING, Variant, checked_samples, checked_variants, genotype_table
from eigenmesh.data._splits import Rows
from eigenmesh.data._table_options import TableOptions
from eigenmesh.errors import UnreadableFileError, import_extra

MAGIC = b"\x6c\x1b\x01"  # first bytes of a .bed file that stores one variant after another
# Copies of the allele that .bim names first, by the two bits of a genotype.
COPIES = np.array([2, MISSING, 1, 0], dtype=np.uint8)
# For each byte, its four genotypes as four bytes in one uint32, that of the lowest bits first: (256,).
UNPACKED = COPIES[np.arange(256)[:, np.newaxis] >> np.array([0, 2, 4, 6]) & 3].view(np.uint32)[:, 0]
# Companions of a genotype file: the files of its samples and of its variants.
COMPANIONS = {".bed": (".fam", ".bim"), ".pgen": (".psam", ".pvar")}


@dataclass(frozen=True, eq=False)
class Bed:
    """A memory-mapped .bed file. packed: (variants, bytes), four samples per byte."""

    packed: np.ndarray
    n_samples: int

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.packed), self.n_samples

    def copies(self, variants: Rows, samples: Rows) -> np.ndarray:
        if isinstance(samples, slice):
            first = samples.start // 4
            some = self.packed[variants, first : -(-samples.stop // 4)]
            four: np.ndarray = UNPACKED.take(some).view(np.uint8)
            return four[:, samples.start - 4 * first : samples.stop - 4 * first]
        bits = self.packed[variants][:, samples // 4] >> (2 * (samples % 4)).astype(np.uint8) & 3
        return COPIES.take(bits)


@dataclass(frozen=True, eq=False)
class Pgen:
    """A .pgen file, decoded by Pgenlib; only one thread at a time may use its reader."""

    reader: Any
    shape: tuple[int, int]
    one_at_a_time: Any = field(default_factory=threading.Lock)

    def copies(self, variants: Rows, samples: Rows) -> np.ndarray:
        wanted = np.arange(self.shape[0], dtype=np.uint32)[variants]
        chosen, order = np.unique(np.arange(self.shape[1], dtype=np.uint32)[samples], return_inverse=True)
        found = np.empty((len(wanted), len(chosen)), dtype=np.int8)
        if not found.size:
            return found.view(np.uint8)
        with self.one_at_a_time:
            self.reader.change_sample_subset(None if len(chosen) == self.shape[1] else chosen)
            self.reader.read_list(wanted, found)
        copies = found.view(np.uint8)
        copies[found < 0] = MISSING
        return copies if np.array_equal(order, np.arange(len(chosen))) else copies[:, order]


def read_bed(file: Path, options: TableOptions) -> Table:
    """Table of a .bed file: one row per line of .fam, and one column per line of .bim."""
    samples, variants = samples_of(file), variants_of(file)
    bed = Bed(_packed(file, len(samples), len(variants)), len(samples))
    return genotype_table(file, bed, samples, variants, options)


def read_pgen(file: Path, options: TableOptions) -> Table:
    """Table of a .pgen file: one row per line of .psam, and one column per line of .pvar. Copies are of ALT."""
    pgenlib = import_extra("pgenlib", "pgen", "reading .pgen files")
    samples, variants = samples_of(file), variants_of(file)
    try:
        reader = pgenlib.PgenReader(bytes(file), raw_sample_ct=len(samples), variant_ct=len(variants))
        pgen = Pgen(reader, (len(variants), len(samples)))
        # Read the last variant, to see whether the file was cut short.
        pgen.copies(slice(len(variants) - 1, len(variants)), slice(0, len(samples)))
    except RuntimeError as error:
        parts = f"{len(samples):,} samples of .psam and {len(variants):,} variants of .pvar"
        raise UnreadableFileError(f"{file} does not match {parts}, or was cut short ({error}).") from error
    return genotype_table(file, pgen, samples, variants, options)


def samples_of(file: Path) -> list[str]:
    """Names of the samples of a .bed or .pgen file, without duplicates: the second field of .fam, IID of .psam."""
    companion = file.with_suffix(COMPANIONS[file.suffix.lower()][0])
    lines = list(_lines(companion, 1 if companion.suffix == ".psam" else 6))
    place = 1
    if lines and lines[0][1][0].startswith("#"):
        place = [name.lstrip("#") for name in lines.pop(0)[1]].index("IID")
    return list(checked_samples([fields[place] for _, fields in lines], companion))


def variants_of(file: Path) -> list[Variant]:
    """The variants of a .bed or .pgen file, in its order; each has two known alleles."""
    companion = file.with_suffix(COMPANIONS[file.suffix.lower()][1])
    if companion.suffix == ".bim":
        found = (
            (at, Variant(chromosome, name, position, (first, second)))
            for at, (chromosome, name, _, position, first, second, *_) in _lines(companion, 6)
        )
    else:
        found = (
            (at, Variant(chromosome, name, position, (alternative, reference)))
            for at, (chromosome, position, name, reference, alternative, *_) in _lines(companion, 5)
            if not chromosome.startswith("#")
        )
    return checked_variants((f"line {at} of {companion}", variant) for at, variant in found)


def _lines(file: Path, least: int) -> Iterator[tuple[int, list[str]]]:
    """Number and fields of each line, without comments (##); raises for a line with fewer than ``least`` fields."""
    try:
        content = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError as error:
        kind = next(kind for kind, companions in COMPANIONS.items() if file.suffix in companions)
        needs = " and ".join(COMPANIONS[kind][::-1])
        raise UnreadableFileError(f"{file} does not exist; a {kind} file needs {needs} next to it.") from error
    for number, line in enumerate(content, start=1):
        fields = line.split()
        if line.startswith("##"):
            continue
        if len(fields) < least:
            raise UnreadableFileError(
                f"line {number} of {file} has {len(fields)} fields, expected at least {least}; repair it."
            )
        yield number, fields


def _packed(file: Path, n_samples: int, n_variants: int) -> np.ndarray:
    with file.open("rb") as content:
        start = content.read(len(MAGIC))
    if start != MAGIC:
        fix = "write it with plink2 --make-bed"
        raise UnreadableFileError(f"{file} is not a .bed file that stores variant after variant; {fix}.")
    width = -(-n_samples // 4)
    due, found = len(MAGIC) + width * n_variants, file.stat().st_size
    if found != due:
        parts = f"{n_samples:,} samples of .fam and {n_variants:,} variants of .bim"
        other = "these belong to another file"
        why = f"it was cut short, or {other}" if found < due else other
        raise UnreadableFileError(f"{file} has {found:,} bytes, but {parts} need {due:,}: {why}.")
    return np.memmap(file, dtype=np.uint8, mode="r", offset=len(MAGIC), shape=(n_variants, width))
