"""File descriptors that are kept back, so that strangers who open many connections cannot keep a result from disk."""

import contextlib
import os

# A model, its numbers, their temporary files, a folder to flush, the status and the log.
SPARE = 32


class SpareDescriptors:
    """Raises the limit of this process as far as it may, and holds some descriptors until they are needed."""

    def __init__(self, count: int = SPARE) -> None:
        with contextlib.suppress(ImportError, ValueError, OSError):
            import resource

            _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self._held = [os.open(os.devnull, os.O_RDONLY) for _ in range(count)]

    def release(self) -> None:
        """Let them be used; may be called more than once."""
        while self._held:
            os.close(self._held.pop())
