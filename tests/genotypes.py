"""PLINK files of made-up or real genotypes, for tests and benchmarks."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from eigenmesh.data._plink import MAGIC, Variant


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
