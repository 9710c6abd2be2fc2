"""A site's key and X.509 certificates, checked before the run, so that errors appear here and not at a neighbour."""

import datetime as dt
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from eigenmesh.errors import InputError, UnreadableFileError
from eigenmesh.sites._revocation import RevocationList
from eigenmesh.sites._site import REVOKED_FILE, TlsFiles
from eigenmesh.sites._x509 import alternative_names
from eigenmesh.transports.tls import Credentials
from eigenmesh.transports.tls._keyring import is_signed_by, key_fingerprint


def load_credentials(tls: TlsFiles, name: str, fingerprints: Mapping[str, str] | None = None) -> Credentials:
    """Read the files and check that they fit together, name this site, are valid now, and that the key is private.

    With fingerprints, the key must be the one that the other sites have pinned.
    """
    certificate, key, authorities = (_read(path) for path in (tls.certificate, tls.key, tls.ca))
    _require_private(tls.key)
    chain, trusted = _certificates(tls.certificate, certificate), _certificates(tls.ca, authorities)
    own = chain[0]
    try:
        private = serialization.load_pem_private_key(key, None)
    except (ValueError, TypeError) as error:
        raise InputError(f"{tls.key} is not a private key without password ({error}); give the key as PEM.") from error
    if private.public_key() != own.public_key():
        raise InputError(f"{tls.key} is not the key of {tls.certificate}; give the two that were made together.")
    if alternative_names(own) != (name,):
        names = ", ".join(alternative_names(own)) or "no site"
        raise InputError(f"{tls.certificate} is for {names}, not for {name} only; give the certificate of this site.")
    _require_valid_now(tls.certificate, own)
    _require_trusted(tls, chain, trusted)
    if RevocationList(tls.ca).is_revoked(own):
        revoked = tls.ca.with_name(REVOKED_FILE)
        raise InputError(f"{tls.certificate} is revoked by {revoked}; make a new key and have its request signed.")
    if (fingerprints or {}).get(name, known := key_fingerprint(own)) != known:
        fix = "pin the certificate again at all sites: eigenmesh site pin"
        raise InputError(f"{tls.certificate} does not match the fingerprint of {name} in site.toml; {fix}.")
    return Credentials(key, certificate, authorities)


def dates(path: Path) -> tuple[dt.datetime, dt.datetime]:
    """The first and the last moment at which all certificates of a file are valid."""
    found = _certificates(path, _read(path))
    return max(one.not_valid_before_utc for one in found), min(one.not_valid_after_utc for one in found)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnreadableFileError(f"{path} cannot be read: {error.strerror}; see [tls] in site.toml.") from error


def _require_private(path: Path) -> None:
    # Windows has no such permission bits; its access control lists are not checked.
    if os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
        raise InputError(f"{path} can be read by users other than its owner; run: chmod 600 {path}")


def _certificates(path: Path, content: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError as error:
        raise InputError(f"{path} holds no certificate ({error}); give certificates as PEM.") from error


def _require_valid_now(path: Path, certificate: x509.Certificate) -> None:
    now, begin, end = dt.datetime.now(dt.UTC), certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < begin:
        raise InputError(f"{path} is valid from {str(begin)[:16]} UTC, but it is {str(now)[:16]} now; check the clock.")
    if now > end:
        raise InputError(f"{path} expired on {end:%Y-%m-%d}, and it is {now:%Y-%m-%d}: renew it, or check the clock.")


def _require_trusted(tls: TlsFiles, chain: list[x509.Certificate], trusted: list[x509.Certificate]) -> None:
    """Each certificate must be signed by the next one, and the last by a trusted authority."""
    current = chain[0]
    for above in chain[1:]:
        if not is_signed_by(current, above):
            break
        current = above
    if not any(is_signed_by(current, authority) for authority in trusted):
        raise InputError(f"{tls.certificate} is not signed by an authority in {tls.ca}; put that certificate there.")
