"""Fingerprints of the sites' keys: with them not even the certificate authority can impersonate a site.

They are in the ``site.toml`` of every site, and in ``network.toml`` once all keys exist. A fingerprint is the SHA-256
of the public key in a certificate, so renewing a certificate does not change it.
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
    """The table ``[fingerprints]``: it has all sites, or none."""
    table = fields.table(TABLE)
    for name in table.content:
        if name not in sites:
            raise table.error(name, f"is not a site of this network ({', '.join(sites)}); correct or remove it.")
        if not _FINGERPRINT.fullmatch(table.text(name)):
            raise table.wrong(
                name, "is not a fingerprint (64 characters of 0-9 and a-f); eigenmesh site pin writes it."
            )
    missing = [name for name in sites if name not in table.content]
    if table.content and missing:
        raise InputError(
            f"{fields.path} has fingerprints, but not of {', '.join(missing)}; add them with: eigenmesh site pin "
            f"{fields.path} {missing[0]}-cert.pem"
        )
    return {name: str(table.content[name]) for name in sites if name in table.content}


def section(fingerprints: Mapping[str, str]) -> list[str]:
    """The lines of the table ``[fingerprints]``."""
    first = f"[{TABLE}]                   # of the keys of all sites; the same at all of them"
    return [first, *(f'{name} = "{value}"' for name, value in fingerprints.items())]


def fingerprint_of(path: Path) -> tuple[str, str]:
    """The name of the site in a certificate, and the fingerprint of its key."""
    from eigenmesh.sites._authority_folder import read_file
    from eigenmesh.sites._x509 import alternative_names, load_certificate
    from eigenmesh.transports.tls._keyring import key_fingerprint

    certificate = load_certificate(read_file(path))
    names = alternative_names(certificate)
    if len(names) != 1:
        raise InputError(f"{path} is for {', '.join(names) or 'no site'}; give the certificate of one site.")
    return names[0], key_fingerprint(certificate)


def pinned(path: Path, sources: Iterable[Path]) -> tuple[str, dict[str, str]]:
    """The text of a site.toml or network.toml with the fingerprints of these sources added, and all fingerprints.

    A source is a certificate, or a network.toml that has fingerprints.
    """
    fields = _read(path)
    known = {name: str(value) for name, value in fields.table(TABLE).content.items()}
    sites = _sites(fields)
    for source in sources:
        for name, value in _fingerprints_in(source).items():
            if name not in sites:
                raise InputError(f"{source} is for {name}, which is not a site of {path} ({', '.join(sites)}).")
            known[name] = value
    ordered = {name: known[name] for name in sites if name in known}
    rest = _SECTION.sub("\n", path.read_text(encoding="utf-8")).rstrip("\n")
    return "\n".join([rest, "", *section(ordered)]) + "\n", ordered


def _read(path: Path) -> Fields:
    return Fields.read(path, "a site.toml or network.toml")


def _sites(fields: Fields) -> tuple[str, ...]:
    """Names of all sites: a site.toml has a list of them, a network.toml one table per site."""
    tables = fields.tables("site")
    return tuple(table.text("name") for table in tables) if tables else fields.texts("sites")


def _fingerprints_in(source: Path) -> dict[str, str]:
    if source.suffix != ".toml":
        return dict([fingerprint_of(source)])
    fields = _read(source)
    found = read_fingerprints(fields, _sites(fields))
    if not found:
        fix = f"the coordinator adds it with: eigenmesh site pin {source} CERT.pem ..."
        raise InputError(f"{source} has no table [{TABLE}]; {fix}")
    return found
