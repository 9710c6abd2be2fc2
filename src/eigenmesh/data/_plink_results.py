"""Results in the files of PLINK 2: .eigenvec, .eigenval, .eigenvec.allele and .afreq."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from eigenmesh._atomic_write import save_text
from eigenmesh.data._plink import samples_of, variants_of
from eigenmesh.errors import DataError
from eigenmesh.model_file import Model

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
