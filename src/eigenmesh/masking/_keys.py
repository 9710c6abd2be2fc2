"""Keys for masks: one X25519 key pair per site and run; two sites derive their shared key from their two pairs."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from eigenmesh.errors import InputError, import_extra

KEY_BYTES = 32
SALT = b"eigenmesh masks 1"


@dataclass(frozen=True)
class SiteKey:
    """The X25519 key pair (RFC 7748) of one site, made for one run and one membership."""

    secret_bytes: bytes = field(repr=False)

    def __post_init__(self) -> None:
        _require_length("the secret of a site key", self.secret_bytes)

    @classmethod
    def generate(cls, entropy: bytes | None = None) -> SiteKey:
        """A new key, from ``entropy`` (32 bytes) or from the operating system's random numbers."""
        return cls(secrets.token_bytes(KEY_BYTES) if entropy is None else entropy)

    @cached_property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        public: bytes = self._private.public_key().public_bytes_raw()
        return public

    def shared(self, public: bytes) -> bytes:
        """The X25519 secret shared with another site's public key; raises InputError for a degenerate key."""
        _require_length("a public key", public)
        try:
            secret: bytes = self._private.exchange(_curve().X25519PublicKey.from_public_bytes(public))
        except ValueError as error:
            raise InputError(f"{public.hex()} is not usable as a public key: every secret with it is 0.") from error
        return secret

    @cached_property
    def _private(self) -> Any:
        return _curve().X25519PrivateKey.from_private_bytes(self.secret_bytes)


@dataclass(frozen=True)
class MaskContext:
    """What masks are bound to: a run, its epoch, the digest of its manifest, and its members in rank order."""

    run: str
    epoch: int
    manifest: bytes
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.epoch < 1 << 64:
            raise InputError(f"epoch {self.epoch} is out of bounds; epochs are counted from 0, in 64 bits.")
        if len(set(self.names)) < len(self.names) or not all(self.names):
            raise InputError(f"the site names {', '.join(self.names)} are not unique; give each site its own name.")

    @property
    def encoded(self) -> bytes:
        """Run, epoch, manifest digest and all names, each after its length."""
        fields = (self.run.encode(), self.epoch.to_bytes(8, "little"), self.manifest)
        return _joined(*fields, *(name.encode() for name in self.names))


def pair_key(key: SiteKey, publics: tuple[bytes, bytes], ranks: tuple[int, int], context: MaskContext) -> bytes:
    """The ChaCha20 key (32 bytes) of two sites, given in rank order; ``key`` belongs to one of them.

    ::

        HKDF-SHA256(X25519 secret, salt = "eigenmesh masks 1", info = context, then name and public key of each)
    """
    hkdf = import_extra("cryptography.hazmat.primitives.kdf.hkdf", "masked", "masking")
    hashes = import_extra("cryptography.hazmat.primitives.hashes", "masked", "masking")
    other = publics[1] if key.public == publics[0] else publics[0]
    named = (part for rank, public in zip(ranks, publics, strict=True) for part in (context.names[rank], public))
    info = context.encoded + _joined(*(part.encode() if isinstance(part, str) else part for part in named))
    derived: bytes = hkdf.HKDF(hashes.SHA256(), KEY_BYTES, SALT, info).derive(key.shared(other))
    return derived


def _joined(*fields: bytes) -> bytes:
    """Fields, each after its length in 4 bytes (little-endian), so that different lists never give the same bytes."""
    return b"".join(len(one).to_bytes(4, "little") + one for one in fields)


def _curve() -> Any:
    return import_extra("cryptography.hazmat.primitives.asymmetric.x25519", "masked", "masking")


def _require_length(what: str, value: bytes) -> None:
    if len(value) != KEY_BYTES:
        raise InputError(f"{what} has {len(value)} bytes; X25519 takes {KEY_BYTES}.")
