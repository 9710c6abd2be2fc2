"""Write one file or several, completely or not at all; and the folder of files that can be made again."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eigenmesh.errors import InputError, UnreadableFileError, file_errors


def require_writable(path: str | os.PathLike[str]) -> Path:
    """Raise before any work if a file cannot be written there later."""
    path, folder = Path(path), Path(path).parent
    if path.is_dir():
        raise UnreadableFileError(f"cannot write {path}: it is a folder; give a file name.")
    if not folder.is_dir():
        raise UnreadableFileError(f"cannot write {path}: there is no folder {folder}; make it first.")
    with file_errors(f"cannot write {path}", "choose another folder"), tempfile.NamedTemporaryFile(dir=folder):
        pass
    if path.exists() and not os.access(path, os.W_OK):
        raise UnreadableFileError(f"cannot write {path}: permission denied; choose another name.")
    return path


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a new file in the folder of ``path``. After the block, it replaces ``path`` atomically."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        # Created like any new file, so that the user's umask applies.
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        yield temporary
        # On the disk before the old file is replaced: otherwise a power cut could leave an empty file.
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_atomically(path: Path, write: Any) -> None:
    """Call ``write(file)`` on a temporary file in the folder of ``path``, then move it there."""
    with replacing(path) as temporary, open(temporary, "wb") as file:
        write(file)


def read_secret(path: Path) -> str:
    """The first line of a file that only its owner can read, such as a token or a passphrase."""
    with file_errors(f"{path} cannot be read", "correct its path or its owner"):
        require_private(path)
        lines = path.read_text(encoding="utf-8").splitlines()
    if not lines or not lines[0].strip():
        raise InputError(f"{path} is empty; its first line must be the secret.")
    return lines[0].strip()


def require_private(path: Path) -> None:
    """Raise if other users than the owner can read a file."""
    # Windows has no such permission bits; its access control lists are not checked.
    if os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
        raise InputError(f"{path} can be read by users other than its owner; run: chmod 600 {path}")


def cache_folder() -> Path:
    """The user's cache: %LOCALAPPDATA% on Windows, otherwise $XDG_CACHE_HOME or ~/.cache."""
    windows = sys.platform == "win32"
    variable, usual = ("LOCALAPPDATA", "AppData/Local") if windows else ("XDG_CACHE_HOME", ".cache")
    return Path(os.environ.get(variable) or Path.home() / usual) / "eigenmesh"


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk, if the system allows it."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        with contextlib.suppress(OSError):
            os.fsync(handle)
        os.close(handle)


def try_lock(file: int, shared: bool = False) -> bool | None:
    """Lock a file for this process alone, or ``shared`` with others that do the same.

    False if another process has it, and None if the system or the file system has no locks.
    """
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return None
    return True


def lock(file: int, path: Path) -> None:
    """Lock a file for this process. Raises InputError if another one has it."""
    if try_lock(file) is False:
        raise InputError(f"{path} is in use by another process; is this site running already?")


def save_arrays(path: str | os.PathLike[str], arrays: dict[str, Any]) -> None:
    """Write arrays to an .npz file, completely or not at all."""
    write_atomically(Path(path), lambda file: np.savez_compressed(file, **arrays))


def save_json(path: str | os.PathLike[str], content: dict[str, Any]) -> None:
    """Write a JSON file, completely or not at all."""
    save_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def save_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write a text file in UTF-8, completely or not at all."""
    write_atomically(Path(path), lambda file: file.write(text.encode()))
    return Path(path)


@dataclass(frozen=True)
class NewFile:
    """A file to be written. A private one can be read only by its owner."""

    path: Path
    content: bytes
    private: bool = False


def write_new(files: Iterable[NewFile]) -> None:
    """Write all files and the folders they need, or none. Existing files are never overwritten."""
    files = tuple(files)
    # Also finds broken symbolic links.
    existing = [file.path for file in files if os.path.lexists(file.path)]
    if existing:
        there = f" and {len(existing) - 1} more exist" if len(existing) > 1 else " exists"
        raise InputError(f"{existing[0]}{there} already, and nothing is overwritten; give another folder.")
    # What was made so far is removed again, the last first, unless all files could be written.
    with contextlib.ExitStack() as undo:
        try:
            for file in files:
                folder = file.path.parent
                for missing in reversed([above for above in (folder, *folder.parents) if not above.exists()]):
                    missing.mkdir(mode=0o700 if missing == folder else 0o755)
                    undo.callback(_remove_empty, missing)
                # The mode is set at creation, so others can never read it; O_EXCL never opens an existing file.
                handle = os.open(file.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if file.private else 0o644)
                undo.callback(file.path.unlink, missing_ok=True)
                with os.fdopen(handle, "wb") as out:
                    out.write(file.content)
                    out.flush()
                    os.fsync(out.fileno())
        except OSError as error:
            fix = "all new files were removed. Choose another folder."
            raise UnreadableFileError(f"cannot write {error.filename}: {error.strerror}; {fix}") from error
        undo.pop_all()


def _remove_empty(folder: Path) -> None:
    # Someone else may have put a file there meanwhile.
    with contextlib.suppress(OSError):
        folder.rmdir()
