"""Signed statements: what a site says about itself to all, over neighbours that could otherwise make it up."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Protocol

from eigenmesh.errors import FrameError

# A statement has a certificate, a signature and a few words.
MAX_STATEMENT_BYTES = 16_384
INSTANCE, LOST, VIEW, RESULT = "instance", "lost", "view", "result"


class Keyring(Protocol):
    """Signs with the key of this site's certificate, and checks signatures of others."""

    @property
    def certificate(self) -> str:
        """The certificate of this site, as text, for those who check."""

    def sign(self, data: bytes) -> str:
        """A signature, as text."""

    def is_revoked(self, certificate: str) -> bool:
        """Whether the authority has taken this certificate back."""

    def is_signed(self, site: str, certificate: str, data: bytes, signature: str) -> bool:
        """Whether the certificate is the authority's for this site, and the signature is by its key."""


class Statement(NamedTuple):
    """``site`` says ``content`` about one ``kind`` of thing; ``text`` is the whole with certificate and signature."""

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
    """A statement that has passed its check; raises FrameError. Without a keyring the signature is not checked."""
    try:
        if len(text) > MAX_STATEMENT_BYTES:
            raise ValueError(f"it has {len(text)} characters, and {MAX_STATEMENT_BYTES} are allowed")
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
