"""Files of PLINK: .bed with .bim and .fam, and .pgen with .pvar and .psam."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from eigenmesh.atomic_write import save_text
from eigenmesh.data.block import MatrixColumns, Table, table_of
from eigenmesh.data.split import Rows
from eigenmesh.data.table_options import TableOptions
from eigenmesh.errors import DataError, UnreadableFileError, import_extra, warn_user
from eigenmesh.model import Model
from eigenmesh.words import listed

# Genotypes: copies of an allele from files that store one variant after another, read on request.


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


# To add a format, write such a function and one that makes a table from it. It reads these variants of these samples:
# copies 0, 1, 2 of each variant's first allele, or ``MISSING``, as a new array (variants, samples) of bytes.
Copies: TypeAlias = Callable[[Rows, Rows], np.ndarray]


@dataclass(frozen=True, eq=False)
class Genotypes:
    """Copies 0, 1 or 2 of the counted alleles, NaN if missing: samples (n, variants).

    flipped: (variants,), True where the file counts the other allele.
    """

    copies: Copies
    n_samples: int
    flipped: np.ndarray
    feature_names: tuple[str, ...]
    dtype: ClassVar[np.dtype] = np.dtype(np.float64)
    n_stored: ClassVar[int | None] = None
    in_memory: ClassVar[bool] = False
    by_columns: ClassVar[bool] = True

    @property
    def shape(self) -> tuple[int, int]:
        return self.n_samples, len(self.flipped)

    def read(self, rows: Rows) -> np.ndarray:
        return self._read(slice(0, self.shape[1]), rows)

    def read_columns(self, columns: Rows) -> np.ndarray:
        return self._read(columns, slice(0, self.shape[0]))

    def _read(self, variants: Rows, samples: Rows) -> np.ndarray:
        copies, flipped = self.copies(variants, samples), self.flipped[variants]
        copies[flipped] = 2 - copies[flipped]
        found = copies.astype(np.float64)
        missing = copies > 2
        if missing.any():
            found[missing] = np.nan
        return found.T


def genotype_table(
    path: Path, copies: Copies, samples: Sequence[str], variants: Sequence[Variant], options: TableOptions
) -> Table:
    """Table of a file: one row per sample, whose names are the ids, and one column per variant."""
    ambiguous = [variant.name for variant in variants if set(variant.alleles) in AMBIGUOUS]
    if ambiguous:
        fix = "make sure that all sites read the same strand, or leave them out with plink2 --exclude"
        warn_user(f"{len(ambiguous)} variants of {path} are A/T or C/G ({listed(ambiguous, 3)}); {fix}.")
    flipped = np.array([variant.counted != variant.alleles[0] for variant in variants], dtype=bool)
    source = Genotypes(copies, len(samples), flipped, tuple(variant.feature for variant in variants))
    table = table_of(MatrixColumns(source, str(path)), options, str(path))
    return replace(table, ids=np.array(samples)) if table.ids is None else table


def checked_samples(names: Sequence[str], where: object) -> Sequence[str]:
    """The names; raises if one occurs twice."""
    if len(set(names)) < len(names):
        twice, _ = Counter(names).most_common(1)[0]
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


MAGIC = b"\x6c\x1b\x01"  # first bytes of a .bed file that stores one variant after another
# Copies of the allele that .bim names first, by the two bits of a genotype.
COPIES = np.array([2, MISSING, 1, 0], dtype=np.uint8)
# For each byte, its four genotypes as four bytes in one uint32, that of the lowest bits first: (256,).
UNPACKED = COPIES[np.arange(256)[:, np.newaxis] >> np.array([0, 2, 4, 6]) & 3].view(np.uint32)[:, 0]
# Companions of a genotype file: the files of its samples and of its variants.
COMPANIONS = {".bed": (".fam", ".bim"), ".pgen": (".psam", ".pvar")}


def read_bed(file: Path, options: TableOptions) -> Table:
    """Table of a .bed file: one row per line of .fam, and one column per line of .bim."""
    samples, variants = samples_of(file), variants_of(file)
    copies = partial(_copies_of_bed, _packed(file, len(samples), len(variants)))
    return genotype_table(file, copies, samples, variants, options)


def _copies_of_bed(packed: np.ndarray, variants: Rows, samples: Rows) -> np.ndarray:
    """``Copies`` from a memory-mapped .bed file: (variants, bytes), four samples per byte."""
    if isinstance(samples, slice):
        first = samples.start // 4
        some = packed[variants, first : -(-samples.stop // 4)]
        four: np.ndarray = UNPACKED.take(some).view(np.uint8)
        return four[:, samples.start - 4 * first : samples.stop - 4 * first]
    bits = packed[variants][:, samples // 4] >> (2 * (samples % 4)).astype(np.uint8) & 3
    return COPIES.take(bits)


def read_pgen(file: Path, options: TableOptions) -> Table:
    """Table of a .pgen file: one row per line of .psam, and one column per line of .pvar. Copies are of ALT."""
    pgenlib = import_extra("pgenlib", "pgen", "reading .pgen files")
    samples, variants = samples_of(file), variants_of(file)
    try:
        reader = pgenlib.PgenReader(bytes(file), raw_sample_ct=len(samples), variant_ct=len(variants))
        copies = partial(_copies_of_pgen, reader, threading.Lock(), (len(variants), len(samples)))
        # Read the last variant, to see whether the file was cut short.
        copies(slice(len(variants) - 1, len(variants)), slice(0, len(samples)))
    except RuntimeError as error:
        parts = f"{len(samples):,} samples of .psam and {len(variants):,} variants of .pvar"
        raise UnreadableFileError(f"{file} does not match {parts}, or was cut short ({error}).") from error
    return genotype_table(file, copies, samples, variants, options)


def _copies_of_pgen(
    reader: Any, one_at_a_time: Any, shape: tuple[int, int], variants: Rows, samples: Rows
) -> np.ndarray:
    """``Copies`` decoded by Pgenlib, whose reader only one thread at a time may use."""
    wanted = np.arange(shape[0], dtype=np.uint32)[variants]
    chosen, order = np.unique(np.arange(shape[1], dtype=np.uint32)[samples], return_inverse=True)
    found = np.empty((len(wanted), len(chosen)), dtype=np.int8)
    if not found.size:
        return found.view(np.uint8)
    with one_at_a_time:
        reader.change_sample_subset(None if len(chosen) == shape[1] else chosen)
        reader.read_list(wanted, found)
    copies = found.view(np.uint8)
    copies[found < 0] = MISSING
    return copies if np.array_equal(order, np.arange(len(chosen))) else copies[:, order]


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


# Results in the files of PLINK 2: .eigenvec, .eigenval, .eigenvec.allele and .afreq.


EIGENVEC = ".eigenvec"


def save_plink(path: Path, bed: Path, model: Model, scores: np.ndarray) -> list[Path]:
    """Write the files of ``plink2 --pca allele-wts`` and ``--freq``, and return their paths; ``path`` is the .eigenvec.

    bed: the file with the samples of the scores (n, K). With V variants that differ between samples and N samples over
    all sites, the eigenvalue of PLINK is (N - 1) variance / V, its eigenvector is score / singular value, and its
    weight of the counted allele is loading * sqrt(V) / 2; that of the other allele is the negative.
    """
    variants = {variant.feature: variant for variant in variants_of(bed)}
    if model.feature_names is None or set(model.feature_names) - set(variants) or model.n_samples is None:
        raise DataError(
            f"the model does not have the variants of {bed}; give one that was fitted to .bed or .pgen files."
        )
    known = [variants[name] for name in model.feature_names]
    frequency, numbers = model.mean / 2, [f"PC{k + 1}" for k in range(len(model.components))]
    n_used = int(np.sum((frequency > 0) & (frequency < 1)))
    loadings = model.components.T * (np.sqrt(n_used) / 2)
    alleles, frequencies = [], []
    for variant, weights, p in zip(known, loadings, frequency, strict=True):
        alternative, reference = variant.alleles
        start = (variant.chromosome, variant.name, reference, alternative)
        signed = {variant.counted: weights, variant.other: -weights}
        alleles += [(*start, allele, *map(_text, signed[allele])) for allele in (reference, alternative)]
        own = p if variant.counted == alternative else 1 - p
        frequencies.append((*start, _text(own), str(2 * model.n_samples)))
    eigenvalues = [[_text(value)] for value in model.explained_variance * (model.n_samples - 1) / n_used]
    names, vectors = samples_of(bed), scores / model.singular_values
    head = ("#CHROM", "ID", "REF", "ALT")
    files: dict[Path, Iterable[Iterable[str]]] = {
        path: [("#IID", *numbers), *((name, *map(_text, row)) for name, row in zip(names, vectors, strict=True))],
        path.with_suffix(".eigenval"): eigenvalues,
        path.with_suffix(".eigenvec.allele"): [(*head, "A1", *numbers), *alleles],
        path.with_suffix(".afreq"): [(*head, "ALT_FREQS", "OBS_CT"), *frequencies],
    }
    for file, lines in files.items():
        save_text(file, _table(lines))
    return list(files)


def _text(number: float) -> str:
    return f"{number:.10g}"


def _table(lines: Iterable[Iterable[str]]) -> str:
    return "".join("\t".join(fields) + "\n" for fields in lines)
