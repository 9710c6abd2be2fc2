"""Disks without room: small file systems of their own."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest


class SmallDisk:
    """A file system with little room, as ``options`` of tmpfs say; skips the test where none may be mounted."""

    def __init__(self, folder: Path, options: str) -> None:
        self.folder = folder
        folder.mkdir()
        if not self._mount(options):
            pytest.skip("mounting a small file system is not allowed here")

    def fill(self) -> None:
        """Take all the room that is left."""
        with suppress(OSError), (self.folder / "filling").open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass

    def make_room(self) -> None:
        assert self._mount("remount,size=64m,nr_inodes=1000")

    def close(self) -> None:
        subprocess.run(["umount", self.folder], check=True)

    def _mount(self, options: str) -> bool:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", self.folder]
        return shutil.which("mount") is not None and subprocess.run(command, capture_output=True).returncode == 0
