"""TLS settings from a site's certificates, and plain reasons for refused handshakes."""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from eigenmesh.errors import import_extra

# Signatures need it. This is the first module of the transport to be imported, so it reports a missing extra.
import_extra("cryptography", "peers", "a link between sites")

# Where Linux lists the open files of a process, including those in memory.
OPEN_FILES = Path("/proc/self/fd")


@dataclass(frozen=True)
class Credentials:
    """A site's key and certificate, and the certificate of the authority of all sites; PEM."""

    key: bytes
    certificate: bytes
    authority: bytes

    def for_listening(self) -> ssl.SSLContext:
        """Settings for a listener, which refuses callers without a certificate of the authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED
        # No session tickets: callers would have to store them, and a link that lasts for hours gains nothing.
        context.num_tickets = 0
        return self._fill(context)

    def for_dialling(self) -> ssl.SSLContext:
        """Settings for a caller, which refuses a listener whose certificate has another name than the one called."""
        return self._fill(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    def _fill(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_verify_locations(cadata=self.authority.decode())
        with _readable_file(self.certificate + b"\n" + self.key) as name:
            context.load_cert_chain(name)
        return context


def _readable_file(content: bytes) -> AbstractContextManager[str]:
    """The name of a temporary file with this content: Python's TLS can read a key only from a file."""
    return _in_memory(content) if hasattr(os, "memfd_create") and OPEN_FILES.is_dir() else _on_disk(content)


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """A file in memory, in no folder and never on a disk; it is gone when it is closed."""
    with open(os.memfd_create("credentials"), "wb") as file:
        file.write(content)
        file.flush()
        yield str(OPEN_FILES / str(file.fileno()))


@contextmanager
def _on_disk(content: bytes) -> Iterator[str]:
    """A temporary file that only its owner may read."""
    handle, name = tempfile.mkstemp()
    try:
        with open(handle, "wb") as file:
            file.write(content)
        yield name
    finally:
        Path(name).unlink()


def parse_address(address: str) -> tuple[str, int]:
    """Host and port of ``host:port``; an IPv6 address is in brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def names_of(certificate: dict[str, tuple[tuple[str, str], ...]] | None) -> tuple[str, ...]:
    """The names in a certificate, as ``getpeercert`` gives it."""
    return tuple(name for kind, name in (certificate or {}).get("subjectAltName", ()) if kind == "DNS")


def plain_reason(error: BaseException) -> str:
    """Why a connection failed, without the names of library functions."""
    if isinstance(error, ssl.SSLError) and error.reason:
        words = error.reason.replace("_", " ").lower()
        detail = getattr(error, "verify_message", "")
        return f"{words}: {detail}" if detail else words
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno).lower()
    return str(error) or type(error).__name__
