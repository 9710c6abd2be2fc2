"""Refused TLS handshakes, which gRPC tells nobody but the error stream of the process."""

import io
import logging
import os
import re
import threading
from typing import Self, TextIO

logger = logging.getLogger("eigenmesh.transports.grpc")

_REFUSED = re.compile(rb"^I\d{4} .*Handshake failed with error (.*)$")
# The part that a person can read follows the last colons of the library's own names.
_REASON = re.compile(r"OPENSSL_internal:([A-Z0-9_]+)(?:: (.*))?")


class HandshakeWatch:
    """Reads the error stream of this process, logs refused handshakes and passes everything else on.

    gRPC gives the application no word about a client that fails the handshake, be it without a certificate, with one
    of another authority, expired, or speaking no TLS at all; it writes a line, without the address. Meant for a
    command that owns its process. ``stream`` is the error stream as it was before, for progress in the terminal.
    """

    def __init__(self) -> None:
        self._before = os.dup(2)
        self.stream: TextIO = io.TextIOWrapper(os.fdopen(os.dup(self._before), "wb"), line_buffering=True)
        self._read, write = os.pipe()
        os.dup2(write, 2)
        os.close(write)
        self._thread = threading.Thread(target=self._work, name="eigenmesh-handshakes", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Give the error stream back; more than once is harmless."""
        if self._before < 0:
            return
        # With this the last writing end is closed, and the thread comes to the end of the pipe.
        os.dup2(self._before, 2)
        self._thread.join(5.0)
        os.close(self._before)
        self.stream.close()
        self._before = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _work(self) -> None:
        with os.fdopen(self._read, "rb", buffering=0) as pipe:
            rest = b""
            while data := pipe.read(1 << 16):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._take(line + b"\n")
                if not re.match(rb"I\d{0,4}", rest):
                    self._pass_on(rest)
                    rest = b""
            self._take(rest)

    def _take(self, line: bytes) -> None:
        refused = _REFUSED.match(line.rstrip())
        if refused is None:
            self._pass_on(line)
            return
        logger.warning("refused a TLS handshake: %s", plain_reason(refused[1].decode(errors="replace")))

    def _pass_on(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._before, data) :]


def plain_reason(text: str) -> str:
    """The reason of a refused handshake, without the names of the library's routines."""
    found = _REASON.search(text)
    if found is None:
        return text
    words = found[1].replace("_", " ").lower()
    detail = found[2]
    return words if detail is None or "Invalid certificate verification context" in detail else f"{words}: {detail}"
