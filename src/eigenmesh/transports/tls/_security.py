"""Who may talk to whom: certificates as the TLS of Python wants them, and why a handshake was refused."""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from eigenmesh.errors import import_extra

# Signatures need it. The first module of the transport, so it is here that its absence is told.
import_extra("cryptography", "peers", "a link between sites")

# Where Linux shows the open files of a process by their numbers, those in memory too.
OPEN_FILES = Path("/proc/self/fd")


@dataclass(frozen=True)
class Credentials:
    """Own key and certificate, and the authority that signs for all sites; PEM."""

    key: bytes
    certificate: bytes
    authority: bytes

    def for_listening(self) -> ssl.SSLContext:
        """Show the certificate, and take no connection from anybody who has none of the authority's."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED
        # A caller would have to keep them, and a link that lasts for hours gains nothing by them.
        context.num_tickets = 0
        return self._fill(context)

    def for_dialling(self) -> ssl.SSLContext:
        """Show the certificate, and talk only to a listener whose own has the name that was called."""
        return self._fill(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    def _fill(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_verify_locations(cadata=self.authority.decode())
        with _readable_file(self.certificate + b"\n" + self.key) as name:
            context.load_cert_chain(name)
        return context


def _readable_file(content: bytes) -> AbstractContextManager[str]:
    """The name of a file with the content, while it is needed: Python's TLS reads a key from nowhere else."""
    return _in_memory(content) if hasattr(os, "memfd_create") and OPEN_FILES.is_dir() else _on_disk(content)


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """A file that is in no folder and never on a disk; it goes when it is closed."""
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
    """Why a connection failed, without the names of the library's routines."""
    if isinstance(error, ssl.SSLError) and error.reason:
        words = error.reason.replace("_", " ").lower()
        detail = getattr(error, "verify_message", "")
        return f"{words}: {detail}" if detail else words
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno).lower()
    return str(error) or type(error).__name__
