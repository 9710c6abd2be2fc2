"""A mutual TLS handshake between two ends of a socket pair, and what each end saw."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path


def context(folder: Path, server: bool, ca: Path | None = None) -> ssl.SSLContext:
    """What a site's end of a link demands: a certificate from its authority, TLS 1.2 or later."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_verify_locations(ca or folder / "ca.pem")
    made.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return made


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, called: str) -> tuple[str, str]:
    """Names that server and client saw in each other's certificate; raises what either end raised."""
    ends = socket.socketpair()
    for end in ends:
        end.settimeout(10)
    outcome: dict[str, object] = {}

    def serve() -> None:
        try:
            with server.wrap_socket(ends[0], server_side=True) as link:
                outcome["client"] = _name(link)
                link.sendall(link.recv(1))
        except (OSError, ssl.SSLError) as error:
            outcome["error"] = error
            ends[0].close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(ends[1], server_hostname=called) as link:
            link.sendall(b"x")
            # In TLS 1.3 a client learns only here that the server refused its certificate.
            if link.recv(1) != b"x":
                raise ConnectionError("the server hung up")
            seen = _name(link)
    finally:
        ends[1].close()
        thread.join(timeout=20)
        if isinstance(outcome.get("error"), ssl.SSLCertVerificationError):
            raise outcome["error"]
    return str(outcome["client"]), seen


def _name(link: ssl.SSLSocket) -> str:
    ((kind, name),) = link.getpeercert()["subjectAltName"]
    assert kind == "DNS"
    return name
