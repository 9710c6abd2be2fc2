"""Ask a neighbour that is up what it is set up for, without taking part in its run."""

import threading
from collections.abc import Iterator

from eigenmesh.errors import FrameError, TransportError
from eigenmesh.protocol import _wire as wire
from eigenmesh.protocol._wire import Kind
from eigenmesh.transports.grpc._security import METHOD, Credentials, dialling_options, grpc


def manifest_of(neighbour: str, address: str, credentials: Credentials, run_id: bytes, timeout_s: float) -> str:
    """The manifest of a neighbour at ``host:port``; raises TransportError if it gives none."""
    answered = threading.Event()

    def question() -> Iterator[bytes]:
        yield wire.encode(Kind.MANIFEST, run_id, 0, 0, 0, wire.text_body(""))
        # The stream stays open for the answer.
        answered.wait(timeout_s)

    options = dialling_options(wire.MAX_TEXT_BYTES, neighbour)
    with grpc.secure_channel(address, credentials.for_dialling(), options=options) as channel:
        try:
            for data in channel.stream_stream(METHOD)(question(), timeout=timeout_s):
                frame = wire.decode(data, 0)
                if frame.kind is Kind.MANIFEST:
                    return frame.text
        except grpc.RpcError as error:
            raise TransportError(f"{neighbour} shows no manifest: {error.details() or error.code()}.") from None
        except FrameError as error:
            raise TransportError(f"{neighbour} answers with something else than a manifest: {error}") from None
        finally:
            answered.set()
    raise TransportError(f"{neighbour} shows no manifest; bring both sites to the same eigenmesh.")
