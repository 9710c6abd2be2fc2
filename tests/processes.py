"""Commands in processes that start at once: forked from one that has imported everything already."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from unittest import mock

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["eigenmesh.cli._peer", "eigenmesh.sites._peer"])


class Command:
    """``eigenmesh WORDS ...`` in a process of its own; used as a Popen.

    Parameters
    ----------
    output : file that both streams go to the end of.
    environment : what the process gets beside this one's own.
    before : called in the process first; a function of a module.
    """

    def __init__(
        self,
        words: Sequence[str],
        output: Path,
        environment: Mapping[str, str],
        before: Callable[[], None] | None = None,
    ) -> None:
        self.words = list(words)
        what = self.words, output, dict(environment), before
        self._process = _FORKS.Process(target=_command, args=what, daemon=True)
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
            raise subprocess.TimeoutExpired(self.words, timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, how: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, how)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _command(words: list[str], output: Path, environment: dict[str, str], before: Callable[[], None] | None) -> None:
    """What the process does."""
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    os.environ.update(environment)
    if before is not None:
        before()
    sys.argv = ["eigenmesh", *words]
    from eigenmesh.cli import main

    main()
