"""Asks a neighbour that is up for its manifest, without joining its run."""

import socket

from eigenmesh.errors import FrameError, TransportError
from eigenmesh.protocol import Kind, wire
from eigenmesh.transports.tls._connection import WELCOME, MessageReader, prefixed
from eigenmesh.transports.tls._security import Credentials, parse_address, plain_reason


def manifest_of(neighbour: str, address: str, credentials: Credentials, run_id: bytes, timeout_s: float) -> str:
    """The manifest of a neighbour at ``host:port``; raises TransportError if it sends none."""
    question = wire.encode(Kind.MANIFEST, run_id, 0, 0, 0, wire.text_body(""))
    context, incoming = credentials.for_dialling(), MessageReader(wire.ROOM_BYTES + wire.MAX_TEXT_BYTES)
    try:
        with (
            socket.create_connection(parse_address(address), timeout_s) as plain,
            context.wrap_socket(plain, server_hostname=neighbour) as secure,
        ):
            while data := secure.recv(1 << 16):
                for message in incoming.add(data):
                    if message == WELCOME:
                        secure.sendall(prefixed(question))
                    elif (frame := wire.decode(message, 0)).kind is Kind.MANIFEST:
                        return frame.text
    except OSError as error:
        raise TransportError(f"{neighbour} sent no manifest: {plain_reason(error)}.") from None
    except (FrameError, ValueError) as error:
        raise TransportError(f"{neighbour} answered, but not with a manifest: {error}") from None
    raise TransportError(f"{neighbour} sent no manifest; install the same eigenmesh at both sites.")
