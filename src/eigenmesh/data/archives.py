"""Archives of data sets, verified by checksum: from $EIGENMESH_DATA, the user's cache or the public originals."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import tarfile
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eigenmesh.atomic_write import cache_folder, save_arrays
from eigenmesh.errors import UnreadableFileError, file_errors
from eigenmesh.model import digest_of

FOLDER_VARIABLE = "EIGENMESH_DATA"

_MNIST_FILES = {
    "images": "train-images-idx3-ubyte.gz",
    "labels": "train-labels-idx1-ubyte.gz",
    "test_images": "t10k-images-idx3-ubyte.gz",
    "test_labels": "t10k-labels-idx1-ubyte.gz",
}


@dataclass(frozen=True)
class Archive:
    """One .npz file of a data set.

    digest: SHA-256 of its arrays, which a rebuilt file has as well, although its compression may differ between
    machines. rebuild: makes the arrays from the public originals; None if that is not possible.
    """

    file: str
    digest: str
    rebuild: Callable[[], dict[str, np.ndarray]] | None = None


def find_archive(archive: Archive) -> Path:
    """Path of a verified copy. Without one, the data are downloaded and rebuilt into the cache."""
    given = os.environ.get(FOLDER_VARIABLE)
    folders = [*([Path(given)] if given else []), cache_folder()]
    for path in (folder / archive.file for folder in folders):
        if path.is_file():
            _verify(path, archive)
            return path
    places = " or ".join(map(str, folders)) + ("" if given else f" (or set {FOLDER_VARIABLE} to its folder)")
    missing = f"{archive.file} was not found; put it into {places}, with the digest {archive.digest}"
    if archive.rebuild is None:
        raise UnreadableFileError(f"{missing}. It cannot be downloaded automatically.")
    try:
        arrays = archive.rebuild()
    except UnreadableFileError as error:
        raise UnreadableFileError(f"{missing}. The download failed: {error}") from error
    if digest_of(arrays) != archive.digest:
        raise UnreadableFileError(f"{missing}. The download has other contents than {archive.file}.")
    path = cache_folder() / archive.file
    with file_errors(f"{path} cannot be written", "make its folder writable"):
        path.parent.mkdir(parents=True, exist_ok=True)
        save_arrays(path, arrays)
    return path


def _verify(path: Path, archive: Archive) -> None:
    found = "no arrays"
    # Broken files make NumPy and zipfile raise many kinds of exceptions.
    with contextlib.suppress(Exception), open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
        found = digest_of(dict(arrays))
    if found != archive.digest:
        raise UnreadableFileError(f"{path} has digest {found}, expected {archive.digest}; delete it and get it again.")


def mnist_originals(base_url: str = "https://ossci-datasets.s3.amazonaws.com/mnist/") -> dict[str, np.ndarray]:
    """The four gzipped IDX files of LeCun, Cortes and Burges: images (n, 784) and labels (n,), uint8."""
    arrays = {}
    for name, file in _MNIST_FILES.items():
        packed = fetch(f"{base_url}{file}", max_bytes=2**25)
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(packed)) as unzipped:
                array = _read_idx(unzipped.read(2**27))
        except (OSError, EOFError, ValueError, IndexError, zlib.error) as error:
            raise UnreadableFileError(f"{base_url}{file} is not a gzip file of the IDX format ({error}).") from error
        arrays[name] = array.reshape(len(array), -1) if array.ndim > 1 else array
    return arrays


def cifar10_originals(base_url: str = "https://www.cs.toronto.edu/~kriz/") -> dict[str, np.ndarray]:
    """The batches of Krizhevsky, Nair and Hinton, the test batch last: grey images (n, 1024), labels (n,), uint8."""
    url = f"{base_url}cifar-10-binary.tar.gz"
    packed = fetch(url, max_bytes=2**28)
    names = [*(f"data_batch_{batch}.bin" for batch in range(1, 6)), "test_batch.bin"]
    try:
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as tar:
            members = [tar.extractfile(f"cifar-10-batches-bin/{name}") for name in names]
            content = b"".join(member.read(2**26) for member in members if member is not None)
        records = np.frombuffer(content, dtype=np.uint8).reshape(-1, 1 + 3 * 1024)
    except (tarfile.TarError, OSError, KeyError, EOFError, ValueError, zlib.error) as error:
        raise UnreadableFileError(f"{url} is not the expected tar file ({error}).") from error
    return {"images": _grey(records[:, 1:]), "labels": records[:, 0].copy()}


def fetch(url: str, max_bytes: int, deadline_s: float = 900.0) -> bytes:
    """Content of a URL, at most max_bytes, within deadline_s."""
    # Imported only here: most users never download.
    import http.client
    import urllib.request

    end = time.monotonic() + deadline_s
    content = bytearray()
    try:
        with urllib.request.urlopen(url, timeout=30.0) as response:
            while piece := response.read(2**20):
                content += piece
                if len(content) > max_bytes:
                    raise UnreadableFileError(f"{url} is larger than the {max_bytes} bytes allowed.")
                if time.monotonic() > end:
                    raise UnreadableFileError(f"{url} took longer than {deadline_s:g} s.")
    except UnreadableFileError:
        raise
    except (OSError, http.client.HTTPException) as error:
        raise UnreadableFileError(f"{url} cannot be reached ({error}).") from error
    return bytes(content)


def _read_idx(content: bytes) -> np.ndarray:
    """Array of an IDX file of bytes: two zeros, type 8, number of axes, the axes as big-endian uint32.

    What else a file may hold is found by the checksum of its array.
    """
    shape = np.frombuffer(content, dtype=">u4", count=content[3], offset=4)
    return np.frombuffer(content, dtype=np.uint8, offset=4 + shape.nbytes).reshape(shape)


def _grey(colours: np.ndarray) -> np.ndarray:
    """ITU-R BT.601 luma, rounded to nearest: (n, 3 x 1024) -> (n, 1024), a batch at a time to save memory."""
    grey = np.empty((len(colours), 1024), dtype=np.uint8)
    for start in range(0, len(colours), 10_000):
        red, green, blue = colours[start : start + 10_000].reshape(-1, 3, 1024).swapaxes(0, 1).astype(np.uint32)
        grey[start : start + 10_000] = (299 * red + 587 * green + 114 * blue + 500) // 1000
    return grey
