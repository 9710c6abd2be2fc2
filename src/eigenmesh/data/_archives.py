"""Data files by checksum: in $EIGENMESH_DATA or the user's cache, or rebuilt from public originals."""

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eigenmesh.errors import UnreadableFileError

FOLDER_VARIABLE = "EIGENMESH_DATA"


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
    return _write(arrays, cache_folder() / archive.file)


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
    if found != archive.sha256 and not _has_content(path, archive.content_sha256):
        raise UnreadableFileError(
            f"{path} has sha256 {found}, expected {archive.sha256}; delete it and fetch it again."
        )


def _has_content(path: Path, sha256: str) -> bool:
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            return content_sha256(arrays) == sha256
    except Exception:  # broken files make NumPy and zipfile raise many kinds of exceptions
        return False


def _write(arrays: Mapping[str, np.ndarray], path: Path) -> Path:
    """Write atomically: into a temporary folder next to the path, then move into place."""
    named: dict[str, Any] = dict(arrays)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            part = Path(folder) / path.name
            np.savez_compressed(part, **named)
            part.replace(path)
    except OSError as error:
        raise UnreadableFileError(
            f"{path} cannot be written ({error}); make sure that the folder is writable and has space."
        ) from error
    return path
