"""HTTP proxies on loopback: tinyproxy, as many sites have it, and one that answers as it is told."""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import subprocess
import threading
from pathlib import Path
from typing import Self

from ports import free_ports
from waiting import until

TINYPROXY = shutil.which("tinyproxy")


class Tinyproxy:
    """A process of tinyproxy (``apt install tinyproxy``), perhaps with a user; a context, which ends it.

    Attributes
    ----------
    url : what a site.toml has as its proxy.
    """

    def __init__(self, folder: Path, user: str = "", password: str = "", allowed_port: int = 0) -> None:
        assert TINYPROXY is not None
        (port,) = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        self.url = f"http://{user}:{password}@{self.address}" if user else f"http://{self.address}"
        self.log = folder / "tinyproxy.log"
        lines = [f"Port {port}", "Listen 127.0.0.1", "Timeout 600", "MaxClients 200", "LogLevel Connect"]
        lines += [f'LogFile "{self.log}"', "Allow 127.0.0.1"]
        lines += [f"BasicAuth {user} {password}"] * bool(user) + [f"ConnectPort {allowed_port}"] * bool(allowed_port)
        (folder / "tinyproxy.conf").write_text("\n".join([*lines, ""]))
        self._process = subprocess.Popen([TINYPROXY, "-d", "-c", str(folder / "tinyproxy.conf")])
        until(lambda: _listens(port), "tinyproxy does not start")

    @property
    def requests(self) -> list[str]:
        """The addresses that were asked for."""
        return re.findall(r": CONNECT (\S+) HTTP/1.1", self.log.read_text())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


class FalseProxy:
    """Answers every caller with the same bytes, or with nothing, and keeps the connection open; a context."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        made = asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(made, self._loop).result(60.0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self.heard = b""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.heard = await reader.readuntil(b"\r\n\r\n")
            writer.write(self._answer)
            await reader.read(100_000)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    async def _shut(self) -> None:
        self._server.close()
        own = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not own]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result(60.0)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)
        self._loop.close()
