"""Write new files, all or none; existing files are never overwritten, and private ones are private from the start."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from eigenmesh.errors import InputError, UnreadableFileError


@dataclass(frozen=True)
class NewFile:
    """A file to be written; a private one can be read only by its owner."""

    path: Path
    content: bytes
    private: bool = False


def write_new(files: Iterable[NewFile]) -> None:
    """Write all files and the folders they need; if one fails, everything written so far is removed."""
    files = tuple(files)
    # Also finds broken symbolic links.
    existing = [file.path for file in files if os.path.lexists(file.path)]
    if existing:
        more = f" and {len(existing) - 1} more" if len(existing) > 1 else ""
        raise InputError(f"{existing[0]}{more} exists already, and nothing is overwritten; give another folder.")
    written: list[Path] = []
    folders: list[Path] = []
    try:
        for file in files:
            _make_folder(file.path.parent, folders)
            # The mode is set at creation, so others can never read it; O_EXCL never opens an existing file.
            handle = os.open(file.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if file.private else 0o644)
            written.append(file.path)
            with os.fdopen(handle, "wb") as out:
                out.write(file.content)
                out.flush()
                os.fsync(out.fileno())
    except BaseException as error:
        _remove(written, folders)
        if isinstance(error, OSError):
            raise UnreadableFileError(
                f"cannot write {error.filename}: {error.strerror}; all new files were removed. Choose another folder."
            ) from error
        raise


def _make_folder(folder: Path, made: list[Path]) -> None:
    """Make a folder and its missing parents, and add them to ``made``."""
    missing = [above for above in (folder, *folder.parents) if not above.exists()]
    for above in reversed(missing):
        above.mkdir(mode=0o700 if above == folder else 0o755)
        made.append(above)


def _remove(written: list[Path], folders: list[Path]) -> None:
    for path in written:
        path.unlink(missing_ok=True)
    for folder in reversed(folders):
        # Someone else may have put a file there meanwhile.
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
