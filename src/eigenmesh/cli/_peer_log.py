"""The log file of a peer: one JSON object per line, of bounded size even if strangers keep calling its port."""

import json
import logging
import logging.handlers
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from eigenmesh._text import one_line

LOG_BYTES, LOG_FILES = 10_000_000, 3
# At most MOST_REFUSALS lines of each kind about refused callers are logged in REFUSALS_EVERY_S; the rest are counted.
MOST_REFUSALS, REFUSALS_EVERY_S = 20, 60.0
# How the lines of each kind begin. Callers without a certificate may be many, so they are counted separately and do not
# hide those with one.
REFUSALS = ("refused a TLS handshake", "refused ")


@contextmanager
def logged(path: Path) -> Iterator[None]:
    """Write everything that eigenmesh logs to a file."""
    logger = logging.getLogger("eigenmesh")
    handler = _LogFile(path, maxBytes=LOG_BYTES, backupCount=LOG_FILES, encoding="utf-8", delay=True)
    handler.setFormatter(_AsJson())
    handler.addFilter(FewRefusals())
    level, logger.level = logger.level, logging.INFO
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        handler.close()


class _LogFile(logging.handlers.RotatingFileHandler):
    """If the disk fails, lines of the log are lost, but the run goes on and its outcome is reported."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)

    def close(self) -> None:
        with suppress(OSError):
            super().close()


class FewRefusals(logging.Filter):
    """Passes only some lines about refused callers, so that they cannot push all other lines out of the log.

    The first line after a pause says how many were left out.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        kind = next((start for start in REFUSALS if message.startswith(start)), None)
        if kind is None:
            return True
        now = self._clock()
        since, seen = self._kinds.get(kind, (now, 0))
        more = seen - MOST_REFUSALS
        if now - since >= REFUSALS_EVERY_S:
            since, seen = now, 0
            if more > 0:
                record.msg, record.args = f"{message} (and {more:,} more before that)", ()
        self._kinds[kind] = since, seen + 1
        return seen < MOST_REFUSALS


class _AsJson(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {"at": self.formatTime(record), "level": record.levelname, "logger": record.name}
        line["message"] = one_line(record.getMessage())
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)
