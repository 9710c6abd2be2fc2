from __future__ import annotations

import functools
import gzip
import http.server
import io
import os
import struct
import tarfile
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from eigenmesh.data import DATASETS, is_dataset, load
from eigenmesh.data.archives import cifar10_originals, fetch, find_archive, mnist_originals
from eigenmesh.data.datasets import (
    CIFAR10,
    HAPMAP3,
    MNIST,
    cifar10,
    gaussian,
    geometric_spectrum,
    hapmap3,
    mnist,
    nearly_equal,
    paper_spectrum,
    power_law_spectrum,
    unlike_nodes,
)
from eigenmesh.errors import InputError, UnknownNameError, UnreadableFileError
from eigenmesh.model import digest_of


def need(file):
    folder = os.environ.get("EIGENMESH_DATA", "")
    if not folder or not (Path(folder) / file).is_file():
        pytest.skip(f"EIGENMESH_DATA names no folder with {file}")


def leading(X, n=11):
    """Largest eigenvalues and trace of the covariance with divisor N, from the smaller Gram matrix."""
    centred = (X - X.mean(axis=0, dtype=np.float64)).astype(np.float64)
    gram = centred.T @ centred if X.shape[0] > X.shape[1] else centred @ centred.T
    values = np.linalg.eigvalsh(gram / len(X))[::-1]
    return values[:n], values.sum()


class TestFigures:
    """The check figures that come with the data."""

    def check(self, X, first, trace, ratios):
        values, total = leading(X)
        assert values[0] == pytest.approx(first, rel=1e-6)
        assert total == pytest.approx(trace, rel=1e-6)
        np.testing.assert_allclose(values / values[0], [float(ratio) for ratio in ratios.split()], atol=2e-6)

    def test_mnist(self):
        need("mnist.npz")
        table = load("mnist")
        assert table.name == "mnist"
        assert table.X.dtype == np.float64
        assert table.X.mean() * 255 == pytest.approx(33.318421, abs=1e-6)
        assert np.bincount(table.labels).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
        ratios = "1 0.731187 0.635683 0.555343 0.501697 0.444346 0.337150 0.297166 0.284608 0.242873 0.217338"
        self.check(table.X, 5.1167877, 52.725035, ratios)

    def test_cifar10(self):
        need("cifar10_gray.npz")
        table = load("cifar10")
        assert table.X.mean() * 255 == pytest.approx(122.748686, abs=1e-6)
        assert np.bincount(table.labels).tolist() == [6000] * 10
        ratios = "1 0.406856 0.240998 0.134300 0.102615 0.099154 0.078952 0.075111 0.053159 0.047570 0.039164"
        self.check(table.X, 17.616943, 57.769398, ratios)

    def test_hapmap3(self):
        need("hapmap3.npz")
        table = load("hapmap3")
        assert table.X.dtype == np.float64
        assert table.X.mean() == pytest.approx(0.870243, abs=1e-6)
        assert len(table.feature_names) == 14_079
        sites, counts = np.unique(table.labels, return_counts=True)
        assert sites.tolist() == ["ASW", "CEU", "CHB", "CHD", "GIH", "JPT", "LWK", "MEX", "MKK", "TSI", "YRI"]
        assert counts.tolist() == [49, 107, 81, 81, 87, 85, 87, 48, 140, 84, 108]
        ratios = "1 0.885897 0.253847 0.223196 0.160785 0.097259 0.090307 0.084499 0.082717 0.081034 0.079269"
        self.check(table.X, 187.89669, 6753.6614, ratios)

    def test_contents_have_the_checksum_that_a_rebuilt_file_must_have(self):
        for archive in (MNIST, CIFAR10, HAPMAP3):
            need(archive.file)
            with np.load(find_archive(archive)) as arrays:
                assert digest_of(dict(arrays)) == archive.digest


def test_digits():
    table = load("digits")
    bunch = load_digits()
    assert np.array_equal(table.X, bunch.data)
    assert np.array_equal(table.labels, bunch.target)
    assert len(table.feature_names) == 64


class TestSynthetic:
    def test_paper(self):
        table = load("synthetic:kind=paper,d=12,k=3,gap=0.5,n=100000,seed=4")
        assert table.X.shape == (100_000, 12)
        values = np.linalg.eigvalsh(np.cov(table.X.T))[::-1]
        np.testing.assert_allclose(values[:4], [1, 0.9, 0.8, 0.4], rtol=0.03)
        assert not np.allclose(load("synthetic:n=5,seed=1").X, load("synthetic:n=5,seed=2").X)

    @pytest.mark.parametrize(
        ("spec", "expected"),
        [
            ("kind=geometric,d=3,k=1,gap=0.5,ratio=0.2", [1, 0.5, 0.1]),
            ("kind=equal,d=4,k=3,gap=0.5", [1, 1, 1, 0.5]),
            ("kind=power,d=3,exponent=2", [1, 1 / 4, 1 / 9]),
        ],
    )
    def test_kinds(self, spec, expected):
        values = np.linalg.eigvalsh(np.cov(load(f"synthetic:{spec},n=50000").X.T))[::-1]
        np.testing.assert_allclose(values, expected, rtol=0.05)

    @pytest.mark.parametrize(
        ("spec", "error", "message"),
        [
            ("kind=papr", UnknownNameError, "unknown kind of synthetic data 'papr'; .*Did you mean 'paper'"),
            ("kind=paper,gpa=1", UnknownNameError, "key of synthetic data of kind paper 'gpa'.*'gap'"),
            ("kind=power,k=3", UnknownNameError, "there are: d, exponent, kind, n, seed"),
            ("d=2.5", InputError, "d of synthetic data must be a whole number; got '2.5'"),
            ("gap=x", InputError, "gap of synthetic data must be a number; got 'x'"),
            ("gap", InputError, "'gap' is not a setting of synthetic data; write synthetic:key=value"),
        ],
    )
    def test_errors(self, spec, error, message):
        with pytest.raises(error, match=message):
            load(f"synthetic:{spec}")


def test_names():
    assert all(is_dataset(name) for name in [*DATASETS, "synthetic", "synthetic:d=3"])
    assert not is_dataset("mnist.npz")
    with pytest.raises(UnknownNameError, match=r"unknown data set 'mnst'; there are: .*Did you mean 'mnist'\?"):
        load("mnst")


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Empty data and cache folders."""
    data, cache = tmp_path / "data", tmp_path / "cache"
    data.mkdir()
    monkeypatch.setenv("EIGENMESH_DATA", str(data))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("LOCALAPPDATA", str(cache))
    return data, cache / "eigenmesh"


@pytest.fixture
def server(tmp_path):
    """Folder and address of an HTTP server on this machine."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield folder, f"http://127.0.0.1:{running.server_port}/"
        running.shutdown()
        thread.join()


def serve_idx(folder, arrays):
    """Put the four arrays of MNIST into a folder as the original files."""
    names = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]
    for name, array in zip(names, arrays.values(), strict=True):
        shape = (len(array), 28, 28) if array.ndim == 2 else array.shape
        content = bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + array.tobytes()
        (folder / f"{name}.gz").write_bytes(gzip.compress(content, compresslevel=1))


def serve_mnist(folder, url):
    """Fabricated originals, served, and the archive that takes them; with the arrays they hold."""
    rng = np.random.default_rng(0)
    arrays = {
        "images": rng.integers(0, 256, (7, 784), dtype=np.uint8),
        "labels": np.arange(7, dtype=np.uint8),
        "test_images": rng.integers(0, 256, (3, 784), dtype=np.uint8),
        "test_labels": np.arange(3, dtype=np.uint8),
    }
    serve_idx(folder, arrays)
    rebuild = functools.partial(mnist_originals, url)
    return replace(MNIST, digest=digest_of(arrays), rebuild=rebuild), arrays


def serve_cifar10(folder, url):
    records = np.random.default_rng(0).integers(0, 256, (6, 4, 3073), dtype=np.uint8)
    names = [*(f"data_batch_{batch}.bin" for batch in range(1, 6)), "test_batch.bin"]
    with tarfile.open(folder / "cifar-10-binary.tar.gz", "w:gz") as tar:
        for name, batch in zip(names, records, strict=True):
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = batch.nbytes
            tar.addfile(member, io.BytesIO(batch.tobytes()))
    flat = records.reshape(24, 3073)
    red, green, blue = (flat[:, 1 + 1024 * c : 1 + 1024 * (c + 1)].astype(int) for c in range(3))
    arrays = {"images": ((299 * red + 587 * green + 114 * blue + 500) // 1000).astype(np.uint8), "labels": flat[:, 0]}
    rebuild = functools.partial(cifar10_originals, url)
    return replace(CIFAR10, digest=digest_of(arrays), rebuild=rebuild), arrays


@pytest.mark.parametrize(("serve", "read"), [(serve_mnist, mnist), (serve_cifar10, cifar10)])
def test_originals_are_downloaded_once_and_kept(folders, server, serve, read):
    archive, arrays = serve(*server)
    for _ in range(2):
        table = read(archive)
        assert np.array_equal(table.X, arrays["images"] / 255)
        assert np.array_equal(table.labels, arrays["labels"])
        for original in server[0].iterdir():
            original.unlink()
    assert [path.name for path in folders[1].iterdir()] == [archive.file]


def test_the_true_originals_give_the_true_archive(server, request):
    need(MNIST.file)
    with np.load(find_archive(MNIST)) as archive:
        arrays = {name: archive[name] for name in ("images", "labels", "test_images", "test_labels")}
    serve_idx(server[0], arrays)
    _, cache = request.getfixturevalue("folders")
    path = find_archive(replace(MNIST, rebuild=functools.partial(mnist_originals, server[1])))
    assert path == cache / MNIST.file
    assert find_archive(MNIST) == path


@pytest.mark.parametrize("serve", [serve_mnist, serve_cifar10])
def test_altered_originals_are_refused(folders, server, serve):
    archive, _ = serve(*server)
    with pytest.raises(UnreadableFileError, match="other contents than"):
        find_archive(replace(archive, digest="0" * 64))
    for content in (b"nonsense", gzip.compress(b"\0\0\x08\x03\0")):
        for original in server[0].iterdir():
            original.write_bytes(content)
        with pytest.raises(UnreadableFileError, match=r"download failed: .* is not (a gzip|the expected tar) file"):
            find_archive(archive)
    for original in server[0].iterdir():
        original.unlink()
    with pytest.raises(UnreadableFileError, match=r"cannot be reached \(HTTP Error 404"):
        find_archive(archive)
    assert not folders[1].exists()


def test_without_a_network_the_file_to_get_is_named(folders):
    data, cache = folders
    nowhere = "http://127.0.0.1:9/"
    for archive in (
        replace(MNIST, rebuild=functools.partial(mnist_originals, nowhere)),
        replace(CIFAR10, rebuild=functools.partial(cifar10_originals, nowhere)),
    ):
        with pytest.raises(UnreadableFileError) as caught:
            find_archive(archive)
        for part in (archive.file, archive.digest, str(data), str(cache), "The download failed: http://127.0.0.1:9/"):
            assert part in str(caught.value)


def test_hapmap3_has_no_download(folders, monkeypatch):
    monkeypatch.delenv("EIGENMESH_DATA")
    with pytest.raises(
        UnreadableFileError,
        match=r"hapmap3\.npz was not found; .*or set EIGENMESH_DATA.*cannot be downloaded automatically",
    ):
        hapmap3()


def test_checksums(folders):
    data, _ = folders
    arrays = {"X": np.eye(3, dtype=np.float32), "site": np.array([1, 0, 0]), "site_names": np.array(["a", "b"])}
    path = data / HAPMAP3.file
    np.savez(path, **arrays)
    with pytest.raises(UnreadableFileError, match=rf"has digest \w+, expected {HAPMAP3.digest}"):
        hapmap3()
    by_content = replace(HAPMAP3, digest=digest_of(arrays))
    assert hapmap3(by_content).labels.tolist() == ["b", "a", "a"]
    path.write_bytes(b"nonsense")
    with pytest.raises(UnreadableFileError, match="has digest no arrays"):
        hapmap3(by_content)


def test_a_download_is_bounded(server):
    folder, url = server
    (folder / "large").write_bytes(bytes(5000))
    assert fetch(f"{url}large", max_bytes=5000) == bytes(5000)
    with pytest.raises(UnreadableFileError, match="larger than the 4999 bytes"):
        fetch(f"{url}large", max_bytes=4999)
    with pytest.raises(UnreadableFileError, match="took longer than 0 s"):
        fetch(f"{url}large", max_bytes=5000, deadline_s=0)


def test_a_cache_that_cannot_be_written(folders, server):
    archive, _ = serve_mnist(*server)
    folders[1].parent.mkdir()
    folders[1].write_text("a file where a folder should be")
    with pytest.raises(UnreadableFileError, match=r"mnist\.npz cannot be written"):
        find_archive(archive)


def test_spectra_of_the_paper():
    spectrum = paper_spectrum(20, 5, 0.8)
    np.testing.assert_allclose(spectrum[:5], [1, 0.95, 0.9, 0.85, 0.8])
    np.testing.assert_allclose(spectrum[5:], np.linspace(0.64, 0.1, 15))
    assert paper_spectrum(20, 5, 0.97)[5] / 0.8 == pytest.approx(0.97)
    np.testing.assert_allclose(nearly_equal(spectrum, 5), [1] * 5 + spectrum[5:].tolist())
    assert spectrum[1] == 0.95


def test_other_spectra():
    np.testing.assert_allclose(geometric_spectrum(5, 2, 0.5), [1, 0.9, 0.45, 0.405, 0.3645])
    np.testing.assert_allclose(geometric_spectrum(3, 1, 0.5, ratio=0.1), [1, 0.5, 0.05])
    np.testing.assert_allclose(power_law_spectrum(4, 2), [1, 1 / 4, 1 / 9, 1 / 16])


def test_gaussian_has_the_spectrum_and_the_mean():
    spectrum = paper_spectrum(10, 3, 0.5)
    X = gaussian(spectrum, 200_000, seed=1, mean=np.arange(10))
    np.testing.assert_allclose(X.mean(axis=0), np.arange(10), atol=0.02)
    values, axes = np.linalg.eigh(np.cov(X.T))
    np.testing.assert_allclose(values[::-1], spectrum, rtol=0.02)
    assert np.abs(axes).max() < 0.99
    assert np.array_equal(X[:5], gaussian(spectrum, 200_000, seed=1, mean=np.arange(10))[:5])
    assert not np.allclose(X[:5], gaussian(spectrum, 5, seed=2))


def test_axes_are_uniform():
    # Entries of a Haar matrix have mean 0 and variance 1/d; without the sign rule of QR the mean is not 0.
    corner = [gaussian(np.array([1.0, 0, 0]), 50, seed)[:, 0] for seed in range(400)]
    first = np.array([np.sign(x[0]) * x.std() for x in corner])
    assert abs(first.mean()) < 0.12
    assert (first**2).mean() == pytest.approx(1 / 3, abs=0.05)


def test_unlike_nodes():
    spectrum = paper_spectrum(6, 2, 0.8)
    nodes = unlike_nodes(spectrum, [40_000, 30_000, 7], seed=3)
    assert [node.shape for node in nodes] == [(40_000, 6), (30_000, 6), (7, 6)]
    first, second = (np.cov(node.T) for node in nodes[:2])
    # Common axes: the covariances commute, to within what samples allow; the variances differ.
    assert np.abs(first @ second - second @ first).max() < 0.05
    assert np.abs(np.linalg.eigvalsh(first) - np.linalg.eigvalsh(second)).max() > 0.2
    assert np.array_equal(unlike_nodes(spectrum, [40_000], seed=3)[0], nodes[0])
    alike = unlike_nodes(spectrum, [50_000, 50_000], seed=3, spread=0.0)
    np.testing.assert_allclose(np.cov(alike[0].T), np.cov(alike[1].T), atol=0.03)
    np.testing.assert_allclose(np.linalg.eigvalsh(np.cov(alike[0].T))[::-1], spectrum, rtol=0.03)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: paper_spectrum(5, 5, 0.8), "1 <= k < d; got k = 5, d = 5"),
        (lambda: paper_spectrum(5, 2, 0.1), "gap must be in 0.125..1.* got 0.1"),
        (lambda: geometric_spectrum(5, 2, 0.0), r"gap must be in \(0, 1\]; got 0.0"),
        (lambda: geometric_spectrum(5, 2, 0.5, 2.0), "ratio must be in .* got 2.0"),
        (lambda: nearly_equal(np.ones(3), 0), "got k = 0, d = 3"),
        (lambda: power_law_spectrum(0, 1.0), "d >= 1 and exponent >= 0; got 0 and 1.0"),
        (lambda: gaussian(np.ones(3), 0, seed=0), "n_samples >= 1"),
        (lambda: gaussian(-np.ones(3), 5, seed=0), "variances >= 0; got 5, -1.0"),
    ],
)
def test_impossible_spectra_and_samples_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
