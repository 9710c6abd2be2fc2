"""Processes that start at once: forked from one that has imported everything already."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

_FORKS = multiprocessing.get_context("forkserver")
# What is not installed is left out there.
_FORKS.set_forkserver_preload(["eigenmesh.cli.site_run", "eigenmesh.sites.peer", "torch", "eigenmesh.transports.torch"])


class Forked:
    """A function in a process of its own; used as a Popen.

    Parameters
    ----------
    work : what it calls, with these arguments.
    output : file that both streams go to the end of.
    environment : what the process gets beside this one's own.
    """

    def __init__(
        self, work: Callable[..., None], *args: Any, output: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._process = _FORKS.Process(target=_run, args=(work, args, output, dict(environment or {})), daemon=True)
        # One thread is enough for data of this size, and the process that others are forked from may have no more.
        with mock.patch.dict(os.environ, OMP_NUM_THREADS="1"):
            self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(str(self._process), timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, how: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, how)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def command(*words: str) -> None:
    """``eigenmesh WORDS ...``, as the whole of a process."""
    from eigenmesh.cli import main

    sys.argv = ["eigenmesh", *words]
    main()


def _run(work: Callable[..., None], args: tuple[Any, ...], output: Path, environment: dict[str, str]) -> None:
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    os.environ.update(environment)
    work(*args)
