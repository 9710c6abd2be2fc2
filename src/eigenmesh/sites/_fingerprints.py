"""Fingerprints of the sites' keys in ``site.toml``: with them not even the authority can make a second site.

A fingerprint is the SHA-256 of the public key in a certificate, so a renewed certificate has the same one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from eigenmesh.errors import InputError
from eigenmesh.sites._toml_fields import Fields

TABLE = "fingerprints"
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
_SECTION = re.compile(rf"\n*^\[{TABLE}\][^\n]*\n(?:(?!\[)[^\n]*\n?)*", re.MULTILINE)


def read_fingerprints(fields: Fields, sites: tuple[str, ...]) -> dict[str, str]:
    """The table ``[fingerprints]``: of all sites, or of none."""
    table = fields.table(TABLE)
    for name in table.content:
        if name not in sites:
            raise table.error(name, f"is no site of this network ({', '.join(sites)}).")
        if not _FINGERPRINT.fullmatch(table.text(name)):
            raise table.wrong(name, "is no fingerprint: 64 characters of 0-9 and a-f; eigenmesh pin writes it.")
    missing = [name for name in sites if name not in table.content]
    if table.content and missing:
        raise InputError(
            f"{fields.path} has fingerprints, but none of {', '.join(missing)}; add them with: eigenmesh pin "
            f"{fields.path} {missing[0]}-cert.pem"
        )
    return {name: str(table.content[name]) for name in sites if name in table.content}


def section(fingerprints: Mapping[str, str]) -> list[str]:
    """The lines of the table."""
    first = f"[{TABLE}]                   # of the keys of all sites; the same at all of them"
    return [first, *(f'{name} = "{value}"' for name, value in fingerprints.items())]


def fingerprint_of(path: Path) -> tuple[str, str]:
    """The site that a certificate names, and the fingerprint of its key."""
    from eigenmesh.sites._authority_folder import read_file
    from eigenmesh.sites._x509 import alternative_names, load_certificate
    from eigenmesh.transports.grpc._keyring import key_fingerprint

    certificate = load_certificate(read_file(path))
    names = alternative_names(certificate)
    if len(names) != 1:
        raise InputError(f"{path} is for {', '.join(names) or 'no site'}; give the certificate of one site.")
    return names[0], key_fingerprint(certificate)


def pinned(path: Path, certificates: Iterable[Path]) -> tuple[str, dict[str, str]]:
    """The text of a site.toml with the fingerprints of these certificates, and all of them by name."""
    from eigenmesh.sites._site import WHAT

    fields = Fields.read(path, WHAT)
    known = {name: str(value) for name, value in fields.table(TABLE).content.items()}
    sites = fields.texts("sites")
    for certificate in certificates:
        name, value = fingerprint_of(certificate)
        if name not in sites:
            raise InputError(f"{certificate} is for {name}, which is no site of {path} ({', '.join(sites)}).")
        known[name] = value
    ordered = {name: known[name] for name in sites if name in known}
    rest = _SECTION.sub("\n", path.read_text(encoding="utf-8")).rstrip("\n")
    return "\n".join([rest, "", *section(ordered)]) + "\n", ordered
