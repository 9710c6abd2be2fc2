"""Genotypes: .bed files at several sites, scaled by the pooled frequency, against the pooled standardised matrix."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from eigenmesh import DecentralizedPCA, graphs, load_model
from eigenmesh.data import Block, CovarianceKind, Shards, build_covariance, load, pooled_moments, read_table
from eigenmesh.data.formats.plink import Variant, save_plink
from eigenmesh.data.scores import Projector
from eigenmesh.errors import DataError, DataWarning, InputError, UnreadableFileError
from eigenmesh.metrics import largest_angle
from eigenmesh.model import read_model
from eigenmesh.networks import Stacked
from genotypes import write_bed

RNG = np.random.default_rng(0)


def made_up(n_samples: int, n_variants: int) -> np.ndarray:
    """Copies of an allele in three groups, with missing ones."""
    groups = RNG.beta(1, 1, (3, n_variants))
    copies = RNG.binomial(2, groups[np.arange(n_samples) % 3]).astype(float)
    copies[RNG.random(copies.shape) < 0.02] = np.nan
    return copies


def variants_of(n_variants: int) -> list[Variant]:
    return [Variant("1", f"rs{number}", str(number + 1), ("A", "G")) for number in range(n_variants)]


def standardised(copies: np.ndarray) -> np.ndarray:
    """(g - 2p) / sqrt(2p(1-p)) with the pooled p, missing ones at 0, without monomorphic columns."""
    p = np.nanmean(copies, axis=0) / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        Z = (copies - 2 * p) / np.sqrt(2 * p * (1 - p))
    return np.where(np.isfinite(Z), Z, 0.0)


def components(copies: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Axes (d, K) and variances of the pooled matrix, by the Gram matrix."""
    Z = standardised(copies)
    values, vectors = np.linalg.eigh(Z @ Z.T / (len(Z) - 1))
    axes = Z.T @ vectors[:, ::-1][:, :k]
    return axes / np.linalg.norm(axes, axis=0), values[::-1][:k]


@pytest.mark.parametrize("n_samples", [1, 4, 7, 30])
def test_a_file_is_read_as_it_was_written(tmp_path, n_samples):
    copies = made_up(n_samples, 9)
    write_bed(tmp_path / "a", copies, [f"s{row}" for row in range(n_samples)], variants_of(9))
    table = read_table(tmp_path / "a.bed")
    assert np.array_equal(table.X, copies, equal_nan=True)
    assert table.ids.tolist() == [f"s{row}" for row in range(n_samples)]
    assert table.feature_names[:2] == ("rs0_A/G", "rs1_A/G")
    rows = RNG.permutation(n_samples)[:3]
    assert np.array_equal(table.source.read(rows), copies[rows], equal_nan=True)
    for start in range(n_samples):
        assert np.array_equal(table.source.read(slice(start, n_samples)), copies[start:], equal_nan=True)


def test_columns_are_read_as_rows_are(tmp_path, monkeypatch):
    """Moments, products, traces and scores of a file that is read by columns, and of the same samples in memory."""
    copies = made_up(30, 40)
    variants = variants_of(40)
    variants[::3] = [variant._replace(alleles=("G", "A")) for variant in variants[::3]]
    write_bed(tmp_path / "a", copies, [f"s{row}" for row in range(30)], variants)
    source = read_table(tmp_path / "a.bed", drop=["rs7_A/G"]).source
    held = source.read(slice(0, 30))
    assert np.array_equal(source.read_columns(np.array([5, 0, 5])), held[:, [5, 0, 5]], equal_nan=True)
    weights, rows = np.arange(30) % 4, RNG.permutation(30)
    for module in ("block", "moments"):
        monkeypatch.setattr(f"eigenmesh.data.{module}.chunk_bytes", lambda device: 8 * 30 * 6)
    U, X = np.linalg.qr(RNG.standard_normal((39, 3)))[0], RNG.standard_normal((2, 39, 3))
    network = Stacked(graphs.metropolis(graphs.topology("complete", 2)))
    found = []
    for samples in (source, held):
        shards = Shards.from_array(samples, 2, weights=weights)
        moments = pooled_moments(shards, network, scale="binomial", missing="mean")
        covariance = build_covariance(shards, moments, kind=CovarianceKind.CHUNKED)
        found.append([moments.mean, moments.variance, covariance.apply(X), covariance.traces_beyond(U)])
    for by_columns, by_rows in zip(*found, strict=True):
        np.testing.assert_allclose(by_columns, by_rows, rtol=1e-11)
    projector = Projector(U.T, moments.mean, moments.scale, fills=True)
    monkeypatch.setattr("eigenmesh.data.scores.PIECE_BYTES", 8 * 30 * 4)
    for read, same in ((source, held), (Block(source, rows), held[rows])):
        np.testing.assert_allclose(projector.scores_of(read, None, "a"), projector.scores(same), atol=1e-12)
    with pytest.raises(DataError, match=r"a: row \d+, column \d+ is nan"):
        replace(projector, fills=False).scores_of(source, None, "a")


def test_sites_find_the_components_of_the_pooled_standardised_genotypes(tmp_path):
    copies = made_up(90, 200)
    # Monomorphic over all sites, with either allele; the second only at the first site.
    copies[:, 3], copies[:, 4], copies[:30, 5] = 0, np.where(np.isnan(copies[:, 4]), np.nan, 2), 2
    variants = variants_of(200)
    files = []
    for site, rows in enumerate(np.split(np.arange(90), [30, 50])):
        part, named = copies[rows].copy(), list(variants)
        if site == 1:
            # Another reference allele, and another order of the variants.
            named = [variant._replace(alleles=("G", "A")) for variant in variants][::-1]
            part = 2 - part[:, ::-1]
        write_bed(tmp_path / f"site{site}", part, [f"s{row}" for row in rows], named)
        files.append(tmp_path / f"site{site}.bed")
    pca = DecentralizedPCA(2, scale="binomial", tol=1e-7)
    with pytest.warns(DataWarning, match="2 of 200 variants are the same in all samples, and are left out"):
        pca.fit(Shards.from_files(files))
    axes, values = components(copies, 2)
    assert pca.certificate_.error_bound < 1e-7
    assert largest_angle(pca.components_.T[np.newaxis], axes) < 1e-6
    assert np.allclose(pca.explained_variance_, values, rtol=1e-9)
    assert np.abs(pca.components_[:, 3:5]).max() < 1e-9
    scores = pca.transform(read_table(files[0]).source)
    assert np.allclose(scores, standardised(copies)[:30] @ pca.components_.T, atol=1e-9)


@pytest.mark.parametrize("make", [lambda X: X, lambda X: np.nan_to_num(X, nan=1.0)], ids=["missing", "complete"])
def test_arrays_of_genotypes_are_scaled_in_the_same_way(make):
    copies = make(made_up(60, 40))
    pca = DecentralizedPCA(2, scale="binomial").fit(copies)
    assert largest_angle(pca.components_.T[np.newaxis], components(copies, 2)[0]) < 1e-6
    with pytest.raises(DataError, match=r"copies of an allele; means are outside 0\.\.2 in column 7"):
        DecentralizedPCA(2, scale="binomial").fit(copies + 3 * (np.arange(40) == 7))


def test_results_are_written_in_the_form_of_plink(tmp_path):
    """The weight of an allele, its frequency, the eigenvalues and eigenvectors of the relationship matrix."""
    copies = made_up(40, 60)
    copies[:, 7] = 0
    variants = [
        variant._replace(alleles=("G", "A") if place % 2 else ("A", "G"))
        for place, variant in enumerate(variants_of(60))
    ]
    write_bed(tmp_path / "a", copies, [f"s{row}" for row in range(40)], variants)
    table = read_table(tmp_path / "a.bed")
    pca = DecentralizedPCA(2, scale="binomial")
    with pytest.warns(DataWarning, match="1 of 60 variants"):
        pca.fit(table.source)
    pca.save(tmp_path / "model.npz")
    model = read_model(tmp_path / "model.npz")
    written = save_plink(tmp_path / "out.eigenvec", tmp_path / "a.bed", model, pca.transform(table.source))
    vectors, values, weights, frequencies = (
        [line.split("\t") for line in path.read_text().splitlines()] for path in written
    )

    Z = standardised(copies)
    eigenvalues, eigenvectors = np.linalg.eigh(Z @ Z.T / 59)
    assert np.allclose(np.array(values, dtype=float)[:, 0], eigenvalues[::-1][:2], rtol=1e-6)
    found = np.array(vectors[1:])
    assert found[:, 0].tolist() == [f"s{row}" for row in range(40)]
    overlap = found[:, 1:].astype(float).T @ eigenvectors[:, ::-1][:, :2]
    assert np.allclose(np.abs(overlap), np.eye(2), atol=1e-6)
    p = np.nanmean(copies, axis=0) / 2
    assert np.allclose([float(line[4]) for line in frequencies[1:]], p, atol=1e-9)
    # Scores by the alleles that .bim names first are the eigenvectors again.
    by_allele = {(line[1], line[4]): np.array(line[5:], dtype=float) for line in weights[1:]}
    first = np.array([by_allele[variant.name, variant.alleles[0]] for variant in variants])
    scores = Z @ first
    assert np.allclose(
        np.abs(scores.T @ found[:, 1:].astype(float)) / np.linalg.norm(scores, axis=0)[:, None], np.eye(2), atol=1e-6
    )
    assert all(np.array_equal(by_allele[variant.name, "A"], -by_allele[variant.name, "G"]) for variant in variants)
    other = replace(model, feature_names=tuple(f"x{column}" for column in range(60)))
    with pytest.raises(DataError, match=r"the model does not have the variants of .*a\.bed"):
        save_plink(tmp_path / "out.eigenvec", tmp_path / "a.bed", other, pca.transform(table.source))


def test_missing_genotypes_by_least_squares(tmp_path):
    """Scores are those that fit the genotypes that are there, with the loadings of these variants alone."""
    copies = made_up(60, 80)
    complete = np.nan_to_num(copies, nan=1.0)
    pca = DecentralizedPCA(3, scale="binomial", random_state=0).fit(complete)
    pca.save(tmp_path / "pca.npz")
    holes = complete[:20].copy()
    holes[RNG.random(holes.shape) < 0.4] = np.nan
    holes[7], holes[8, 2:] = np.nan, np.nan
    Z = (holes - pca.mean_) / pca.scale_
    expected = []
    for row in Z:
        there = np.isfinite(row)
        expected.append(np.linalg.lstsq(pca.components_[:, there].T, row[there], rcond=1e-9)[0])
    model = load_model(tmp_path / "pca.npz", missing="least_squares")
    np.testing.assert_allclose(model.transform(holes), expected, atol=1e-8)
    np.testing.assert_allclose(pca.set_params(missing="least-squares").transform(holes), expected, atol=1e-8)
    # Complete samples are as before, and the others come closer to what they are without holes than by the mean.
    np.testing.assert_allclose(model.transform(complete), pca.transform(complete), atol=1e-12)
    truth, wide = pca.transform(complete[:20])[:7], holes[:7]
    by_mean = load_model(tmp_path / "pca.npz", missing="mean").transform(wide)
    assert np.linalg.norm(model.transform(wide) - truth) < 0.7 * np.linalg.norm(by_mean - truth)
    # What is missing adds nothing to the distance from the model.
    assert model.distances(holes).spe[7] == 0
    with pytest.raises(InputError, match="least-squares"):
        pca.fit(complete)


class TestBadFiles:
    @pytest.fixture
    def prefix(self, tmp_path) -> Path:
        write_bed(tmp_path / "a", made_up(9, 5), [f"s{row}" for row in range(9)], variants_of(5))
        return tmp_path / "a"

    def check(self, prefix: Path, message: str, kind: type[Exception] = UnreadableFileError) -> None:
        with pytest.raises(kind, match=message):
            read_table(prefix.with_suffix(".bed"))

    def test_cut_short(self, prefix):
        bed = prefix.with_suffix(".bed")
        bed.write_bytes(bed.read_bytes()[:-1])
        self.check(
            prefix, r"a\.bed has 17 bytes, but 9 samples of \.fam and 5 variants of \.bim need 18: it was cut short"
        )

    def test_another_fam(self, prefix):
        prefix.with_suffix(".fam").write_text("a a 0 0 0 -9\n")
        self.check(prefix, "1 samples of .fam and 5 variants of .bim need 8: these belong to another file")

    def test_no_bim_and_no_bed(self, prefix):
        bed = prefix.with_suffix(".bed")
        bed.write_bytes(b"\x6c\x1b\x00" + bed.read_bytes()[3:])
        self.check(prefix, "is not a .bed file that stores variant after variant; write it with plink2 --make-bed")
        prefix.with_suffix(".bim").unlink()
        self.check(prefix, r"a\.bim does not exist; a \.bed file needs \.bim and \.fam")

    @pytest.mark.parametrize(
        ("suffix", "text", "message"),
        [
            (".fam", "s s 0 0 0 -9\n" * 9, r"a\.fam has the sample 's' twice"),
            (".bim", "1 rs1 0 1 A G\n1 rs1 0 2 A G\n", r"line 2 of .*a\.bim has the variant 'rs1' again"),
            (".bim", "1 rs1 0 1 0 G\n", r"line 1 of .*variant 'rs1' has the alleles 0 and G; name both with plink2"),
        ],
    )
    def test_names_and_alleles(self, prefix, suffix, text, message):
        prefix.with_suffix(suffix).write_text(text)
        self.check(prefix, message, DataError)

    def test_a_short_line(self, prefix):
        prefix.with_suffix(".bim").write_text("1 rs1 0 1 A\n")
        self.check(prefix, r"line 1 of .*a\.bim has 5 fields, expected at least 6")

    def test_strands_that_cannot_be_told_are_a_warning(self, tmp_path):
        variants = [variant._replace(alleles=("C", "G")) for variant in variants_of(5)]
        write_bed(tmp_path / "a", made_up(4, 5), list("abcd"), variants)
        with pytest.warns(DataWarning, match=r"5 variants of .*a\.bed are A/T or C/G \(rs0, rs1, rs2 and 2 more\)"):
            read_table(tmp_path / "a.bed")

    def test_other_alleles_at_another_site_are_named(self, tmp_path):
        other = [
            variant._replace(alleles=("A", "C")) if variant.name == "rs2" else variant for variant in variants_of(5)
        ]
        write_bed(tmp_path / "a", made_up(4, 5), list("abcd"), variants_of(5))
        write_bed(tmp_path / "b", made_up(4, 5), list("efgh"), other)
        with pytest.raises(DataError, match=r"b\.bed lacks column 'rs2_A/G', which .*a\.bed has"):
            Shards.from_files([tmp_path / "a.bed", tmp_path / "b.bed"])


@pytest.mark.slow
@pytest.mark.skipif(
    not (Path(os.environ.get("EIGENMESH_DATA", "none")) / "hapmap3.npz").is_file(),
    reason="EIGENMESH_DATA names no folder with hapmap3.npz",
)
def test_hapmap3_as_files_of_eleven_populations(tmp_path):
    """Second alleles and chromosomes, which the data lack, are made up; imputed genotypes are missing again."""
    with np.load(Path(os.environ["EIGENMESH_DATA"]) / "hapmap3.npz") as archive:
        imputed, counted = archive["imputed"], archive["counted_allele"]
    table = load("hapmap3")
    copies, names = table.X.copy(), table.feature_names
    copies[imputed[:, 0], imputed[:, 1]] = np.nan
    pairs = {"A": "C", "C": "A", "G": "A", "T": "C"}
    variants = [
        Variant("1", name, str(place + 1), (allele, pairs[allele]))
        for place, (name, allele) in enumerate(zip(names, counted.tolist(), strict=True))
    ]
    files = []
    for site in np.unique(table.labels):
        rows = np.flatnonzero(table.labels == site)
        files.append(tmp_path / f"{site}.bed")
        write_bed(files[-1], copies[rows], [f"s{row}" for row in rows], variants)
    pca = DecentralizedPCA(10, scale="binomial", tol=1e-7).fit(Shards.from_files(files))
    axes, values = components(copies, 10)
    assert pca.certificate_.error_bound < 1e-7
    # The alphabet may count the other allele of a variant, which turns its sign.
    signs = np.array([1.0 if variant.counted == variant.alleles[0] else -1.0 for variant in variants])
    assert largest_angle((pca.components_ * signs).T[np.newaxis], axes) < 1e-6
    assert np.allclose(pca.explained_variance_, values, rtol=1e-9)
