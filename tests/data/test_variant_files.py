"""Genotypes in .pgen files and in VCF Zarr, against the same genotypes in a .bed file."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from eigenmesh import DecentralizedPCA
from eigenmesh.data import Shards, read_table
from eigenmesh.data.formats.plink import Variant, save_plink
from eigenmesh.errors import DataError, UnreadableFileError
from eigenmesh.model import read_model
from genotypes import write_bed, write_pgen, write_vcf_zarr

N, D = 30, 24
RNG = np.random.default_rng(0)
COPIES = np.where(RNG.random((N, D)) < 0.05, np.nan, RNG.binomial(2, RNG.uniform(0.2, 0.8, D), (N, D)))
SAMPLES = [f"s{row}" for row in range(N)]
VARIANTS = [Variant("1", f"rs{at}", str(at + 1), ("A", "G") if at % 2 else ("T", "C")) for at in range(D)]


def pgen(prefix: Path) -> Path:
    pytest.importorskip("pgenlib")
    write_pgen(prefix, COPIES, SAMPLES, VARIANTS)
    return prefix.with_suffix(".pgen")


def pgen_by_plink2(prefix: Path) -> Path:
    if shutil.which("plink2") is None:
        pytest.skip("plink2 is not installed")
    pytest.importorskip("pgenlib")
    write_bed(prefix, COPIES, SAMPLES, VARIANTS)
    words = ["plink2", "--bfile", str(prefix), "--make-pgen", "--out", str(prefix)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return prefix.with_suffix(".pgen")


def vcf_zarr(prefix: Path, **changes: np.ndarray) -> Path:
    pytest.importorskip("zarr")
    write_vcf_zarr(prefix, COPIES, SAMPLES, VARIANTS, **changes)
    return prefix.with_suffix(".vcz")


@pytest.mark.parametrize("write", [pgen, pgen_by_plink2, vcf_zarr])
def test_they_are_read_in_pieces_as_a_bed_file_is(write, tmp_path):
    write_bed(tmp_path / "same", COPIES, SAMPLES, VARIANTS)
    expected, found = read_table(tmp_path / "same.bed"), read_table(write(tmp_path / "a"))
    assert found.feature_names == expected.feature_names
    assert found.ids.tolist() == SAMPLES
    assert not found.source.in_memory
    for rows in (slice(0, N), slice(3, 17), slice(4, 4), np.array([20, 3, 3, 29, 0])):
        assert np.array_equal(found.source.read(rows), expected.source.read(rows), equal_nan=True)
    for columns in (slice(0, D), slice(5, 9), np.array([7, 2, 21])):
        assert np.array_equal(found.source.read_columns(columns), expected.source.read_columns(columns), equal_nan=True)


def test_sites_may_have_files_of_different_kinds(tmp_path):
    write_bed(tmp_path / "north", COPIES, SAMPLES, VARIANTS)
    files = [tmp_path / "north.bed", pgen(tmp_path / "south"), vcf_zarr(tmp_path / "west")]
    pca = DecentralizedPCA(2, scale="binomial", random_state=0).fit(Shards.from_files(files))
    pooled = np.vstack([read_table(files[0]).X] * 3)
    again = DecentralizedPCA(2, scale="binomial", n_nodes=3, random_state=0).fit(pooled)
    np.testing.assert_allclose(pca.components_, again.components_, atol=1e-7)
    pca.save(tmp_path / "pca.npz")
    scores = pca.transform(read_table(files[1]).source)
    written = save_plink(tmp_path / "south.eigenvec", files[1], read_model(tmp_path / "pca.npz"), scores)
    assert written[0].read_text().splitlines()[1].startswith("s0\t")
    assert written[2].read_text().splitlines()[1].split("\t")[:5] == ["1", "rs0", "C", "T", "C"]


class TestBadFiles:
    def test_pgen_that_was_cut_short_or_has_other_samples(self, tmp_path):
        path = pgen(tmp_path / "a")
        whole, samples = path.read_bytes(), path.with_suffix(".psam").read_text()
        path.write_bytes(whole[:-5])
        with pytest.raises(UnreadableFileError, match=r"a\.pgen does not match 30 samples of \.psam and 24 variants"):
            read_table(path)
        path.write_bytes(whole)
        path.with_suffix(".psam").write_text("\n".join(samples.splitlines()[:-1]))
        with pytest.raises(UnreadableFileError, match=r"a\.pgen does not match 29 samples of \.psam and 24 variants"):
            read_table(path)
        path.with_suffix(".pvar").unlink()
        with pytest.raises(UnreadableFileError, match=r"a\.pvar does not exist; a \.pgen file needs \.pvar and \.psam"):
            read_table(path)

    @pytest.mark.parametrize(
        ("changes", "error", "said"),
        [
            ({"sample_id": np.array(SAMPLES[:-1])}, UnreadableFileError, r"24 variants and 29 samples of two alleles"),
            ({"sample_id": np.array(["s0"] * N)}, DataError, "has the sample 's0' twice"),
            ({"variant_id": np.array(["rs1"] * D)}, DataError, "variant 1 of .* has the variant 'rs1' again"),
            (
                {"variant_allele": np.array([("A", "C", "G")] * D)},
                DataError,
                r"'rs0' has more than two alleles \(C,G, A\); split it with bcftools norm",
            ),
        ],
    )
    def test_vcf_zarr_whose_parts_disagree(self, changes, error, said, tmp_path):
        with pytest.raises(error, match=said):
            read_table(vcf_zarr(tmp_path / "a", **changes))

    def test_vcf_zarr_without_alleles_or_with_a_damaged_chunk(self, tmp_path):
        path = vcf_zarr(tmp_path / "a")
        chunk = path / "call_genotype" / "0.0.0"
        chunk.write_bytes(chunk.read_bytes()[:20])
        source = read_table(path).source
        with pytest.raises(UnreadableFileError, match=r"call_genotype of .*a\.vcz cannot be read"):
            source.read_columns(slice(0, 4))
        shutil.rmtree(path / "variant_allele")
        with pytest.raises(UnreadableFileError, match=r"a\.vcz has call_genotype but no variant_allele"):
            read_table(path)


def test_variants_without_a_name_are_called_by_their_place(tmp_path):
    path = vcf_zarr(tmp_path / "a", variant_id=np.array(["."] * D))
    assert read_table(path).feature_names[:2] == ("1:1_C/T", "1:2_A/G")
