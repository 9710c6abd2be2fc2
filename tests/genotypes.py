"""Files of made-up or real genotypes, for tests and benchmarks."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from eigenmesh.data.formats.plink import MAGIC, Variant


def write_bed(prefix: Path, copies: np.ndarray, samples: list[str], variants: list[Variant]) -> None:
    """Write samples (n, variants) of 0, 1, 2 or NaN copies of each variant's first allele: .bed, .bim and .fam."""
    codes = np.select([copies == 2, copies == 1, copies == 0], [0, 2, 3], 1).astype(np.uint8)
    filled = np.zeros((-(-len(samples) // 4) * 4, len(variants)), dtype=np.uint8)
    filled[: len(samples)] = codes
    fours = filled.T.reshape(len(variants), -1, 4)
    packed = (fours << np.array([0, 2, 4, 6], dtype=np.uint8)).sum(axis=2, dtype=np.uint8)
    prefix.with_suffix(".bed").write_bytes(MAGIC + packed.tobytes())
    lines = [
        f"{chromosome}\t{name}\t0\t{position}\t{one}\t{two}\n" for chromosome, name, position, (one, two) in variants
    ]
    prefix.with_suffix(".bim").write_text("".join(lines))
    prefix.with_suffix(".fam").write_text("".join(f"{name}\t{name}\t0\t0\t0\t-9\n" for name in samples))


def write_pgen(prefix: Path, copies: np.ndarray, samples: list[str], variants: list[Variant]) -> None:
    """The same as .pgen, .pvar and .psam; the first allele of a variant is ALT."""
    import pgenlib

    words = {"variant_ct": len(variants), "nonref_flags": False}
    with pgenlib.PgenWriter(bytes(prefix.with_suffix(".pgen")), len(samples), **words) as writer:
        for each in copies.T:
            writer.append_biallelic(np.nan_to_num(each, nan=-9).astype(np.int8))
    lines = [f"{chromosome}\t{place}\t{name}\t{ref}\t{alt}\n" for chromosome, name, place, (alt, ref) in variants]
    prefix.with_suffix(".pvar").write_text("##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\n" + "".join(lines))
    prefix.with_suffix(".psam").write_text("#FID\tIID\tSEX\n" + "".join(f"0\t{name}\tNA\n" for name in samples))


def write_vcf_zarr(
    prefix: Path, copies: np.ndarray, samples: list[str], variants: list[Variant], **changes: np.ndarray
) -> None:
    """The same as .vcz, laid out as bio2zarr does: a list of alleles ends in empty ones. ``changes``: other arrays."""
    import zarr

    known = np.nan_to_num(copies, nan=-2).T[:, :, np.newaxis]
    arrays = {
        "call_genotype": np.where(known < 0, -1, known > np.arange(2)).astype(np.int8),
        "sample_id": np.array(samples),
        "contig_id": np.array(["1"]),
        "variant_contig": np.zeros(len(variants), dtype=np.int8),
        "variant_position": np.array([int(variant.position) for variant in variants]),
        "variant_id": np.array([variant.name for variant in variants]),
        "variant_allele": np.array([(*variant.alleles[::-1], "") for variant in variants]),
        **changes,
    }
    store = zarr.open_group(prefix.with_suffix(".vcz"), mode="w", zarr_format=2)
    for name, values in arrays.items():
        store[name] = values


def vectors_in(path: Path) -> np.ndarray:
    """Eigenvectors (n, K) of a .eigenvec file."""
    head, *lines = [line.split("\t") for line in path.read_text().splitlines()]
    return np.array(lines)[:, head.index("PC1") :].astype(float)
