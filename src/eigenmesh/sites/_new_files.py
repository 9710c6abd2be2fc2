"""Files that must not be there yet: all are written, or none, and private ones are private from their first byte."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from eigenmesh.errors import InputError, UnreadableFileError


@dataclass(frozen=True)
class NewFile:
    """A file to be written; a private one can be read by its owner alone."""

    path: Path
    content: bytes
    private: bool = False


def require_absent(paths: Iterable[Path]) -> None:
    """Raise if any of these exists, also as a link that leads nowhere."""
    there = [path for path in paths if os.path.lexists(path)]
    if there:
        more = f" and {len(there) - 1} more" if len(there) > 1 else ""
        raise InputError(f"{there[0]}{more} exists already, and nothing is overwritten; give another folder.")


def write_new(files: Iterable[NewFile]) -> None:
    """Write all files, with the folders they need; if one fails, those already written are taken away again."""
    files = tuple(files)
    require_absent(file.path for file in files)
    written: list[Path] = []
    folders: list[Path] = []
    try:
        for file in files:
            _make_folder(file.path.parent, folders)
            # Made with these rights, it is at no time readable by others; O_EXCL never takes one that is there.
            handle = os.open(file.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if file.private else 0o644)
            written.append(file.path)
            with os.fdopen(handle, "wb") as out:
                out.write(file.content)
                out.flush()
                os.fsync(out.fileno())
    except BaseException as error:
        _take_back(written, folders)
        if isinstance(error, OSError):
            raise UnreadableFileError(
                f"cannot write {error.filename}: {error.strerror}; nothing was left behind. Choose another folder."
            ) from error
        raise


def _make_folder(folder: Path, made: list[Path]) -> None:
    """Make a folder and those above it that are missing, and note which were made."""
    missing = [above for above in (folder, *folder.parents) if not above.exists()]
    for above in reversed(missing):
        above.mkdir(mode=0o700 if above == folder else 0o755)
        made.append(above)


def _take_back(written: list[Path], folders: list[Path]) -> None:
    for path in written:
        path.unlink(missing_ok=True)
    for folder in reversed(folders):
        # Somebody else may have put something there meanwhile.
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
