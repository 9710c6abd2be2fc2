"""Zarr stores: cells of AnnData, and genotypes in the layout of VCF Zarr."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from eigenmesh.data.block import Table
from eigenmesh.data.formats.anndata import read_anndata
from eigenmesh.data.formats.hdf5 import NamedArray
from eigenmesh.data.formats.plink import MISSING, Variant, checked_samples, checked_variants, genotype_table
from eigenmesh.data.split import Rows
from eigenmesh.data.table_options import TableOptions
from eigenmesh.errors import UnreadableFileError, import_extra

CALLS = "call_genotype"
DESCRIBED = ("sample_id", "contig_id", "variant_contig", "variant_position", "variant_allele")


def _copies(alleles: NamedArray, variants: Rows, samples: Rows) -> np.ndarray:
    """``Copies`` from alleles (variants, samples, 2): 0 for REF, 1 for ALT, negative if missing."""
    called = alleles[variants, samples, slice(None)]
    return np.where((called < 0).any(axis=2), MISSING, called.sum(axis=2)).astype(np.uint8)


def read_zarr(file: Path, options: TableOptions) -> Table:
    """Table of a store: its genotypes if it has any, otherwise its cells."""
    content = import_extra("zarr", "zarr", f"reading {file.suffix} stores").open_group(file, mode="r")
    return _read_calls(content, file, options) if CALLS in content else read_anndata(content, file, options)


def _read_calls(content: Any, file: Path, options: TableOptions) -> Table:
    lacking = [name for name in DESCRIBED if name not in content]
    if lacking:
        raise UnreadableFileError(f"{file} has {CALLS} but no {', no '.join(lacking)}; write it with vcf2zarr convert.")
    samples, contigs, contig, position, alleles = (NamedArray(content[name], file)[:] for name in DESCRIBED)
    names = NamedArray(content["variant_id"], file)[:] if "variant_id" in content else np.full(len(position), ".")
    calls = NamedArray(content[CALLS], file)
    due = (len(position), len(samples), 2)
    if calls.shape != due or not len(contig) == len(alleles) == len(names) == len(position):
        parts = f"{len(position):,} variants and {len(samples):,} samples of two alleles"
        raise UnreadableFileError(f"{file} has {CALLS} of shape {calls.shape} for {parts}; write it again.")

    def variant(at: int) -> Variant:
        reference, *others = map(str, alleles[at])
        chromosome, place = str(contigs[contig[at]]), str(position[at])
        name = f"{chromosome}:{place}" if names[at] in (".", "") else str(names[at])
        # Lists of alleles that are shorter than the longest are filled up with empty texts.
        return Variant(chromosome, name, place, (",".join(filter(None, others)), reference))

    variants = checked_variants((f"variant {at} of {file}", variant(at)) for at in range(len(position)))
    known = checked_samples([str(name) for name in samples], file)
    return genotype_table(file, partial(_copies, calls), known, variants, options)
