"""Reserved file descriptors: strangers who open many connections cannot prevent the result from being written."""

import contextlib
import os

# Enough for the model, its numbers, their temporary files, a folder to flush, the status and the log.
SPARE = 32


class SpareDescriptors:
    """Raises this process's limit on open files as far as allowed, and holds some descriptors until ``release``."""

    def __init__(self, count: int = SPARE) -> None:
        with contextlib.suppress(ImportError, ValueError, OSError):
            import resource

            _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self._held = [os.open(os.devnull, os.O_RDONLY) for _ in range(count)]

    def release(self) -> None:
        """Make the descriptors available; may be called more than once."""
        while self._held:
            os.close(self._held.pop())
