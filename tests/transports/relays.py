"""A relay in a thread of its own, honest or not, for sites in the same process."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from eigenmesh.sites.addresses import Address
from eigenmesh.sites.relay import Relay, RelayedEnd, RelayFile
from eigenmesh.sites.site import TlsFiles
from eigenmesh.transports.tls import Credentials
from eigenmesh.transports.tls.connection import Connection, new_loop
from ports import free_ports
from transports.sites import Sites

NAME = "relay"


def relay_file(sites: Sites, folder: Path, credentials: Credentials | None = None, **changes: Any) -> RelayFile:
    """What a relay of these sites is told, with its certificate in files as it has them."""
    own = credentials or sites.authority.issue(NAME)
    files = TlsFiles(folder / "cert.pem", folder / "key.pem", folder / "ca.pem")
    for path, content in (files.certificate, own.certificate), (files.key, own.key), (files.ca, own.authority):
        path.write_bytes(content)
        os.chmod(path, 0o600)
    links = frozenset(frozenset(sites.names[rank] for rank in edge) for edge in sites.graph.edges)
    address = Address("127.0.0.1", free_ports(1)[0])
    facts = {"path": folder / "relay.toml", "name": NAME, "listen": address, "sites": tuple(sites.names)}
    return RelayFile(**{**facts, "links": links, "tls": files, "fingerprints": {}, **changes})


class RelayThread:
    """Runs a relay; a context, which ends it and its connections at once.

    Attributes
    ----------
    relay : the relay of the moment; ``restart`` makes a new one on the same port.
    """

    def __init__(
        self,
        described: RelayFile,
        made: Callable[[RelayFile], Relay] = Relay,
        loop: Callable[[], asyncio.AbstractEventLoop] = new_loop,
    ) -> None:
        self.described, self._made, self._new_loop = described, made, loop
        self.address = str(described.listen)
        self._start()

    def _start(self) -> None:
        self.relay = self._made(self.described)
        self._loop = self._new_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._task = self._loop.create_task(self.relay.serve())
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            pass
        finally:
            self._loop.close()

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(60.0)
        assert not self._thread.is_alive()

    def restart(self) -> None:
        self.close()
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LyingEnd(RelayedEnd):
    """An end of a relay that does one thing to what it passes on, once so many bytes have passed this way."""

    def __init__(self, connection: Connection, kind: str, after_bytes: int) -> None:
        super().__init__(connection)
        self.kind, self.left, self.earlier = kind, after_bytes, b""

    def data_received(self, data: bytes) -> None:
        if self.kind == "honest" or self.left > 0:
            self.left -= len(data)
            super().data_received(data)
        elif self.kind == "stall":
            self.passed += len(data)
        elif self.kind == "reorder" and not self.earlier:
            self.earlier = data
        else:
            earlier, kind, self.kind = self.earlier, self.kind, "honest"
            place = len(data) // 2
            changed = bytes([*data[:place], data[place] ^ 1, *data[place + 1 :]])
            for part in {
                "change": (changed,),
                "duplicate": (data, data),
                "drop": (),
                "reorder": (data, earlier),
                "insert": (os.urandom(100), data),
            }[kind]:
                super().data_received(part)


class LyingRelay(Relay):
    """A relay whose first pairs are treated as ``kinds`` say, one after the other."""

    def __init__(self, described: RelayFile, kinds: list[tuple[str, int]]) -> None:
        super().__init__(described)
        self.kinds = kinds

    def _end(self, connection: Connection) -> RelayedEnd:
        return LyingEnd(connection, *(self.kinds.pop(0) if self.kinds else ("honest", 0)))
