"""What gRPC is told about keys, sizes and patience."""

from dataclasses import dataclass
from typing import Any

from eigenmesh.errors import import_extra
from eigenmesh.transports.grpc import _wire as wire

# The first module of the transport that needs it, so it is here that its absence is told.
grpc = import_extra("grpc", "peers", "a link between sites")

METHOD = "/eigenmesh.v1.Link/Open"


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
