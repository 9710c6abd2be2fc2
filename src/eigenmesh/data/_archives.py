"""Data files by checksum: in $EIGENMESH_DATA or the user's cache, or rebuilt from the public originals."""

import gzip
import hashlib
import http.client
import io
import math
import os
import struct
import sys
import tarfile
import time
import urllib.request
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from eigenmesh._atomic_write import save_arrays
from eigenmesh.errors import UnreadableFileError

FOLDER_VARIABLE = "EIGENMESH_DATA"

_MNIST_MD5 = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
_CIFAR10_MD5 = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}


@dataclass(frozen=True)
class Archive:
    """One .npz file of a data set.

    sha256: of the published file. content_sha256: of its arrays; a file that is rebuilt here has the same, though
    compression differs between machines. rebuild: makes the arrays from the public originals; None if it cannot.
    """

    file: str
    sha256: str
    content_sha256: str
    rebuild: Callable[[], dict[str, np.ndarray]] | None = None


def find_archive(archive: Archive) -> Path:
    """Path of a verified copy. Without one, the data are downloaded and rebuilt into the cache."""
    for folder in _folders():
        path = folder / archive.file
        if path.is_file():
            _verify(path, archive)
            return path
    if archive.rebuild is None:
        raise UnreadableFileError(f"{_not_found(archive)}. It has no automatic download.")
    try:
        arrays = archive.rebuild()
    except UnreadableFileError as error:
        raise UnreadableFileError(f"{_not_found(archive)}. The download failed: {error}") from error
    if content_sha256(arrays) != archive.content_sha256:
        raise UnreadableFileError(f"{_not_found(archive)}. The download has other contents than {archive.file}.")
    path = cache_folder() / archive.file
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_arrays(path, arrays)
    except OSError as error:
        raise UnreadableFileError(f"{path} cannot be written ({error}); make its folder writable.") from error
    return path


def cache_folder() -> Path:
    """The user's cache: %LOCALAPPDATA% on Windows, else $XDG_CACHE_HOME or ~/.cache."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "eigenmesh"


def content_sha256(arrays: Mapping[str, np.ndarray]) -> str:
    """Checksum of arrays by name, dtype, shape and bytes; the file format does not matter."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _folders() -> list[Path]:
    given = os.environ.get(FOLDER_VARIABLE)
    return [*([Path(given)] if given else []), cache_folder()]


def _not_found(archive: Archive) -> str:
    places = " or ".join(str(folder) for folder in _folders())
    hint = "" if os.environ.get(FOLDER_VARIABLE) else f" (or set {FOLDER_VARIABLE} to the folder that has it)"
    return f"{archive.file} was not found; put it into {places}{hint}, sha256 {archive.sha256}"


def _verify(path: Path, archive: Archive) -> None:
    with path.open("rb") as handle:
        found = hashlib.file_digest(handle, "sha256").hexdigest()
    if found == archive.sha256:
        return
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            same = content_sha256(arrays) == archive.content_sha256
    except Exception:  # broken files make NumPy and zipfile raise many kinds of exceptions
        same = False
    if not same:
        raise UnreadableFileError(f"{path} has sha256 {found}, expected {archive.sha256}; delete and fetch it again.")


@dataclass(frozen=True)
class MnistOriginals:
    """The four gzipped IDX files of LeCun, Cortes and Burges; md5: of each, unzipped."""

    base_url: str = "https://ossci-datasets.s3.amazonaws.com/mnist/"
    md5: Mapping[str, str] = field(default_factory=lambda: _MNIST_MD5)

    def __call__(self) -> dict[str, np.ndarray]:
        """Arrays images (n, 784), labels (n,), test_images, test_labels, all uint8."""
        arrays = [_read_idx(self._file(name), name) for name in _MNIST_MD5]
        images, labels, test_images, test_labels = (a.reshape(len(a), -1) if a.ndim > 1 else a for a in arrays)
        return {"images": images, "labels": labels, "test_images": test_images, "test_labels": test_labels}

    def _file(self, name: str) -> bytes:
        packed = fetch(f"{self.base_url}{name}.gz", max_bytes=2**25)
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(packed)) as unzipped:
                content = unzipped.read(2**27)
        except (OSError, EOFError, zlib.error) as error:
            raise UnreadableFileError(f"{self.base_url}{name}.gz is not a gzip file ({error}).") from error
        return _checked(content, name, self.md5[name])


@dataclass(frozen=True)
class Cifar10Originals:
    """The binary version of Krizhevsky, Nair and Hinton in one tar file; md5: of each batch."""

    base_url: str = "https://www.cs.toronto.edu/~kriz/"
    md5: Mapping[str, str] = field(default_factory=lambda: _CIFAR10_MD5)

    def __call__(self) -> dict[str, np.ndarray]:
        """Arrays images (n, 1024), grey, and labels (n,), uint8: training batches in order, then the test batch."""
        url = f"{self.base_url}cifar-10-binary.tar.gz"
        packed = fetch(url, max_bytes=2**28)
        try:
            with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as tar:
                batches = [self._batch(tar, name) for name in _CIFAR10_MD5]
        except (tarfile.TarError, OSError, KeyError, EOFError, zlib.error) as error:
            raise UnreadableFileError(f"{url} is not the expected tar file ({error}).") from error
        records = np.concatenate(batches)
        return {"images": _grey(records[:, 1:]), "labels": records[:, 0].copy()}

    def _batch(self, tar: tarfile.TarFile, name: str) -> np.ndarray:
        member = tar.extractfile(f"cifar-10-batches-bin/{name}")
        content = b"" if member is None else member.read(2**26)
        return np.frombuffer(_checked(content, name, self.md5[name]), dtype=np.uint8).reshape(-1, 1 + 3 * 1024)


def fetch(url: str, max_bytes: int, deadline_s: float = 900.0) -> bytes:
    """Content of a URL, at most max_bytes, within deadline_s."""
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


def _checked(content: bytes, name: str, md5: str) -> bytes:
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != md5:
        raise UnreadableFileError(f"{name} has md5 {found}, expected {md5}; fetch it again.")
    return content


def _read_idx(content: bytes, name: str) -> np.ndarray:
    """Array of an IDX file of bytes: two zeros, type 8, number of axes, the axes as big-endian uint32."""
    n_axes = content[3] if content[:3] == b"\0\0\x08" else 0
    start = 4 + 4 * n_axes
    shape = struct.unpack(f">{n_axes}I", content[4:start])
    if not n_axes or len(content) != start + math.prod(shape):
        raise UnreadableFileError(f"{name} is not an IDX file of bytes.")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def _grey(colours: np.ndarray) -> np.ndarray:
    """ITU-R BT.601 luma, rounded to nearest: (n, 3 x 1024) -> (n, 1024), a batch at a time to save memory."""
    grey = np.empty((len(colours), 1024), dtype=np.uint8)
    for start in range(0, len(colours), 10_000):
        red, green, blue = colours[start : start + 10_000].reshape(-1, 3, 1024).swapaxes(0, 1).astype(np.uint32)
        grey[start : start + 10_000] = (299 * red + 587 * green + 114 * blue + 500) // 1000
    return grey
