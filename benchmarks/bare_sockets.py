"""The floor of ``peers.py``: the same bytes over mutual-TLS sockets, and nothing else."""

from __future__ import annotations

import selectors
import socket
import ssl
import struct
import time
from pathlib import Path

import numpy as np


class BareRing:
    """The floor: length and bytes over TLS sockets to both neighbours, one poll loop, nothing else."""

    def __init__(self, rank: int, dial: dict[int, str], accept: list[int], port: int, credentials: Path) -> None:
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        client = ssl.create_default_context(cafile=str(credentials / "authority.pem"))
        for context in (server, client):
            context.load_cert_chain(credentials / f"{rank}.pem", credentials / f"{rank}.key")
            context.load_verify_locations(credentials / "authority.pem")
        server.verify_mode = ssl.CERT_REQUIRED
        listener = socket.create_server(("127.0.0.1", port))
        self.sockets: dict[int, ssl.SSLSocket] = {}
        for other, address in dial.items():
            plain = _dial(address)
            plain.sendall(bytes([rank]))
            self.sockets[other] = client.wrap_socket(plain, server_hostname=f"site{other}")
        for _ in accept:
            plain, _ = listener.accept()
            other = plain.recv(1)[0]
            self.sockets[other] = server.wrap_socket(plain, server_side=True)
        listener.close()
        self._got = {other: bytearray() for other in self.sockets}
        self._selector = selectors.DefaultSelector()
        for other, secure in self.sockets.items():
            plain_options = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            secure.setsockopt(*plain_options)
            secure.setblocking(False)
            self._selector.register(secure, selectors.EVENT_READ, other)

    def exchange(self, matrix: np.ndarray) -> dict[int, np.ndarray]:
        """Send to and receive from both neighbours, reading and writing as the sockets allow."""
        frame = struct.pack("<Q", matrix.nbytes) + matrix.tobytes()
        left = {other: memoryview(frame) for other in self.sockets}
        for other in self.sockets:
            self._write(other, left)
        while left or any(len(got) < len(frame) for got in self._got.values()):
            for key, events in self._selector.select(10.0):
                if events & selectors.EVENT_WRITE:
                    self._write(key.data, left)
                if events & selectors.EVENT_READ:
                    self._read(key.data)
        received = {other: np.frombuffer(got[8 : len(frame)]).reshape(matrix.shape) for other, got in self._got.items()}
        for got in self._got.values():
            del got[: len(frame)]
        return received

    def _write(self, other: int, left: dict[int, memoryview]) -> None:
        secure = self.sockets[other]
        try:
            while left[other]:
                left[other] = left[other][secure.send(left[other]) :]
            del left[other]
            self._selector.modify(secure, selectors.EVENT_READ, other)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            self._selector.modify(secure, selectors.EVENT_READ | selectors.EVENT_WRITE, other)

    def _read(self, other: int) -> None:
        # Also read bytes of the next round: otherwise a neighbour that is ahead would keep waking the poll loop.
        try:
            while data := self.sockets[other].recv(1 << 17):
                self._got[other] += data
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        raise SystemExit("a neighbour has left")


def _dial(address: str) -> socket.socket:
    host, port = address.split(":")
    for _ in range(200):
        try:
            return socket.create_connection((host, int(port)), timeout=30.0)
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"{address} does not answer")
