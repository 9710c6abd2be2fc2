"""Signed statements of a site to all others. Without signatures, neighbours that pass them on could make them up."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Protocol

from eigenmesh.errors import FrameError

# Longest statement: a certificate, a signature and a little text.
MAX_STATEMENT_BYTES = 16_384
INSTANCE, LOST, VIEW, HEARD, RESULT = "instance", "lost", "view", "heard", "result"
# When a site signs what it has heard: at the end of the set-up, and when a site is about to end the run with an error.
SET_UP, ENDING = "set-up", "ending"


class Keyring(Protocol):
    """Signs with the key of this site's certificate, and checks the signatures of others."""

    @property
    def certificate(self) -> str:
        """The certificate of this site, as text, with which others check its signatures."""

    def sign(self, data: bytes) -> str:
        """A signature, as text."""

    def is_revoked(self, certificate: str) -> bool:
        """Whether the authority has revoked this certificate."""

    def is_signed(self, site: str, certificate: str, data: bytes, signature: str) -> bool:
        """Whether the authority issued the certificate to this site, and its key made the signature."""


class Statement(NamedTuple):
    """``site`` states ``content``, of one ``kind``; ``text`` is all of it, with certificate and signature."""

    kind: str
    site: str
    content: Any
    text: str


def certificate_of(statement: Statement) -> str:
    return str(json.loads(statement.text)["certificate"])


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def make_statement(keyring: Keyring, run_id: bytes, kind: str, site: str, content: Any) -> Statement:
    signature = keyring.sign(_signed_bytes(run_id, kind, site, content))
    parts = {"kind": kind, "site": site, "content": content}
    text = canonical({**parts, "certificate": keyring.certificate, "signature": signature})
    return Statement(kind, site, content, text)


def read_statement(text: str, keyring: Keyring | None, run_id: bytes) -> Statement:
    """Read and check a statement; raises FrameError if it is wrong. Without a keyring the signature is not checked."""
    try:
        if len(text) > MAX_STATEMENT_BYTES:
            raise ValueError(f"it has {len(text)} characters, but at most {MAX_STATEMENT_BYTES} are allowed")
        parts = json.loads(text)
        kind, site, content = str(parts["kind"]), str(parts["site"]), parts["content"]
        certificate, signature = str(parts["certificate"]), str(parts["signature"])
        data = _signed_bytes(run_id, kind, site, content)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FrameError(f"a statement cannot be read: {error}.") from None
    if keyring is not None and keyring.is_revoked(certificate):
        raise FrameError(f"the certificate of {site} is revoked.")
    if keyring is not None and not keyring.is_signed(site, certificate, data, signature):
        raise FrameError(f"a statement in the name of {site} is not signed by it.")
    return Statement(kind, site, content, text)


def _signed_bytes(run_id: bytes, kind: str, site: str, content: Any) -> bytes:
    return f"eigenmesh statement\n{run_id.hex()}\n{kind}\n{site}\n{canonical(content)}".encode()
