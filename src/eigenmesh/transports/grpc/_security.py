"""What gRPC is told about keys, sizes and patience, and what it tells about refused TLS handshakes."""

import io
import logging
import os
import re
import threading
from dataclasses import dataclass
from typing import Any, Self, TextIO

from eigenmesh.errors import import_extra
from eigenmesh.protocol import _wire as wire

# The first module of the transport that needs it, so it is here that its absence is told.
grpc = import_extra("grpc", "peers", "a link between sites")

logger = logging.getLogger("eigenmesh.transports.grpc")

METHOD = "/eigenmesh.v1.Link/Open"
_REFUSED = re.compile(rb"^I\d{4} .*Handshake failed with error (.*)$")
# The part that a person can read follows the last colons of the library's own names.
_REASON = re.compile(r"OPENSSL_internal:([A-Z0-9_]+)(?:: (.*))?")


@dataclass(frozen=True)
class Credentials:
    """Own key and certificate, and the authority that signs for all sites; PEM."""

    key: bytes
    certificate: bytes
    authority: bytes

    def for_listening(self) -> Any:
        """Show the certificate, and take no stream from anybody who has none of the authority's."""
        own = [(self.key, self.certificate)]
        return grpc.ssl_server_credentials(own, root_certificates=self.authority, require_client_auth=True)

    def for_dialling(self) -> Any:
        """Show the certificate, and talk only to a listener that has one of the authority's."""
        return grpc.ssl_channel_credentials(self.authority, self.key, self.certificate)


def common_options(max_message_bytes: int) -> list[tuple[str, int]]:
    """For both ends: no message beyond the limit is taken in, and a silent connection is noticed."""
    most = wire.ROOM_BYTES + max(max_message_bytes, wire.MAX_TEXT_BYTES)
    return [
        ("grpc.max_receive_message_length", most),
        ("grpc.max_send_message_length", most),
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.max_pings_without_data", 0),
        # A whole message may be under way; with the default of 64 kB every round would wait for the way back.
        ("grpc.http2.lookahead_bytes", min(max(2 * most, 1 << 20), 1 << 28)),
        # It would shrink that again to what the last rounds took.
        ("grpc.http2.bdp_probe", 0),
        # The largest that HTTP/2 knows: a message is one frame, not one for every 16 kB.
        ("grpc.http2.max_frame_size", (1 << 24) - 1),
        # Nothing is compressed, so nothing that comes in can grow; nothing is sent again but by the link itself.
        ("grpc.enable_per_message_compression", 0),
        ("grpc.enable_per_message_decompression", 0),
        ("grpc.enable_retries", 0),
        ("grpc.enable_channelz", 0),
    ]


def listening_options(max_message_bytes: int) -> list[tuple[str, int]]:
    """For the listener: a port is not shared, and strangers get little room and time."""
    return [
        *common_options(max_message_bytes),
        ("grpc.so_reuseport", 0),
        ("grpc.max_concurrent_streams", 4),
        ("grpc.server_handshake_timeout_ms", 10_000),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ]


def dialling_options(max_message_bytes: int, name: str) -> list[tuple[str, int | str]]:
    """For the dialler: the listener's certificate must bear the neighbour's name, whatever its address."""
    return [
        *common_options(max_message_bytes),
        ("grpc.ssl_target_name_override", name),
        # A proxy of the environment is for the web; backoff is ours, so no state is shared between attempts.
        ("grpc.enable_http_proxy", 0),
        ("grpc.use_local_subchannel_pool", 1),
    ]


class HandshakeWatch:
    """Reads the error stream of this process until it is left, logs refused handshakes and passes on the rest.

    gRPC tells the application nothing about a client that fails the handshake: without a certificate, with one of
    another authority, expired, or without TLS. It only writes a line, without the address. Meant for a command that
    owns its process. ``stream`` is the error stream as it was before, for progress in the terminal.
    """

    def __init__(self) -> None:
        self._before = os.dup(2)
        self.stream: TextIO = io.TextIOWrapper(os.fdopen(os.dup(self._before), "wb"), line_buffering=True)
        self._read, write = os.pipe()
        os.dup2(write, 2)
        os.close(write)
        self._thread = threading.Thread(target=self._work, name="eigenmesh-handshakes", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # With this the last writing end is closed, and the thread comes to the end of the pipe.
        os.dup2(self._before, 2)
        self._thread.join(5.0)
        os.close(self._before)
        self.stream.close()

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
        else:
            logger.warning("refused a TLS handshake: %s", plain_reason(refused[1].decode(errors="replace")))

    def _pass_on(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._before, data) :]


def plain_reason(text: str) -> str:
    """The reason of a refused handshake, without the names of the library's routines."""
    found = _REASON.search(text)
    if found is None:
        return text
    words, detail = found[1].replace("_", " ").lower(), found[2]
    return words if detail is None or "Invalid certificate verification context" in detail else f"{words}: {detail}"
