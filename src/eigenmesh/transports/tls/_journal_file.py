"""Reads, writes and locks the file of a journal, on systems with and without POSIX calls."""

import os
import struct
from pathlib import Path

from eigenmesh.errors import InputError

MAGIC = b"EGNMJRN5"
# Most parts and bytes per write call: POSIX limits the parts, and macOS the bytes.
MAX_PARTS, MAX_BYTES = 1024, 1 << 30


def write(file: int, parts: list[bytes]) -> None:
    """Write all parts; where the system allows it, without joining them first."""
    for first in range(0, len(parts), MAX_PARTS):
        some = parts[first : first + MAX_PARTS]
        size = sum(map(len, some))
        written = os.writev(file, some) if hasattr(os, "writev") and size < MAX_BYTES else 0
        if written < size:
            data = memoryview(b"".join(some))[written:]
            while data:
                data = data[os.write(file, data) :]


def read(file: int, length: int, offset: int) -> bytes:
    if hasattr(os, "pread"):
        return os.pread(file, length, offset)
    # Without pread, restore the position at which records are appended.
    place = os.lseek(file, 0, os.SEEK_CUR)
    os.lseek(file, offset, os.SEEK_SET)
    data = os.read(file, length)
    os.lseek(file, place, os.SEEK_SET)
    return data


def sync(file: int) -> None:
    """Flush the file to the disk, then write the end of the flushed part to the header, and flush that.

    The noted end tells damage from an incomplete last record: everything before it was on the disk. So records count as
    durable only when the note is on the disk, too.
    """
    flush = getattr(os, "fdatasync", os.fsync)
    flush(file)
    _note_end(file)
    flush(file)


def _note_end(file: int) -> None:
    end = os.lseek(file, 0, os.SEEK_CUR)
    note = struct.pack("<Q", end)
    if hasattr(os, "pwrite"):
        os.pwrite(file, note, len(MAGIC))
        return
    os.lseek(file, len(MAGIC), os.SEEK_SET)
    os.write(file, note)
    os.lseek(file, end, os.SEEK_SET)


def lock(file: int, path: Path) -> None:
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:
        return
    except OSError:
        raise InputError(f"{path} is in use by another process; is this site running already?") from None
