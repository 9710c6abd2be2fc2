"""Names and addresses of sites, of relays and of HTTP proxies, as the files of sites have them."""

from __future__ import annotations

import base64
import re
import urllib.parse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eigenmesh.errors import InputError
from eigenmesh.sites.fields import Fields, toml_table

# "ca" is the folder of the certificate authority, next to the folders of the sites.
RESERVED = ("ca",)
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
# Hosts that only this computer reaches.
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def require_name(name: str) -> None:
    """Raise unless the name of a site is valid in an X.509 certificate and as a folder."""
    if not _NAME.fullmatch(name):
        rule = "use 1 to 63 lower-case letters, digits and hyphens, starting with a letter, not ending with a hyphen."
        raise InputError(f"{name!r} is not a valid site name; {rule}")
    if name in RESERVED:
        raise InputError(f"{name!r} is reserved for the folder of the certificate authority; choose another name.")


@dataclass(frozen=True)
class Address:
    """Host and port of a site."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """``host:port``. An IPv6 address is in brackets, ``[::1]:7400``."""
        found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%]+)\]|([A-Za-z0-9._-]+)):(\d{1,5})", text)
        if not found or not 1 <= int(found.group(3)) <= 65535:
            raise InputError(f"{text!r} is not an address; write host:port with a port from 1 to 65535.")
        return cls(found.group(1) or found.group(2), int(found.group(3)))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True)
class MetricsFile:
    """Where Prometheus finds the numbers, and the file with the token that it has to show."""

    address: Address
    token: Path | None

    @classmethod
    def read(cls, fields: Fields) -> MetricsFile | None:
        """What a site.toml or relay.toml says of it. On an address that others reach a token is needed."""
        address, token = fields.parsed("metrics", Address.parse), fields.path_of("metrics_token")
        if address is None:
            return None
        if address.host not in LOOPBACK and token is None:
            why = "anybody who reaches that address could read them"
            raise fields.error("metrics", f'= "{address}" needs a token, because {why}; add metrics_token = "FILE".')
        return cls(address, token)


@dataclass(frozen=True)
class ProxyAddress:
    """The HTTP proxy through which a site calls, and the value of the header ``Proxy-Authorization``, if it needs one.

    The user name and the password are not shown where the value is printed.
    """

    address: Address
    authorization: str = field(default="", repr=False)

    @classmethod
    def parse(cls, text: str) -> ProxyAddress:
        """``http://host:port``, or ``http://user:password@host:port``."""
        kind, _, rest = text.partition("://")
        if kind != "http" or not rest:
            # The text may have a password.
            raise InputError('a proxy is written "http://host:port"; only HTTP proxies that know CONNECT are used.')
        user, _, address = rest.removesuffix("/").rpartition("@")
        if not user:
            return cls(Address.parse(address))
        plain = ":".join(map(urllib.parse.unquote, (user if ":" in user else f"{user}:").split(":", 1)))
        return cls(Address.parse(address), f"Basic {base64.b64encode(plain.encode()).decode()}")


@dataclass(frozen=True)
class RelayedLinks:
    """A relay, and the links that it carries, for sites that can only call out.

    Attributes
    ----------
    name : str
        The name in its certificate, which no site has.
    address : Address
        Where sites call it.
    links : tuple of pairs of str
        The links, by the names of their sites.
    listen : Address or None
        Where it listens, if that is another address.
    """

    name: str
    address: Address
    links: tuple[tuple[str, str], ...]
    listen: Address | None = None

    @property
    def table(self) -> str:
        """The table of a site.toml."""
        values = {"name": self.name, "address": str(self.address), "links": self.links}
        return toml_table("[relay]", values, "for sites that can only call out; the same at all sites")


def read_relays(
    fields: Fields,
    sites: tuple[str, ...],
    edges: tuple[tuple[str, str], ...],
    without_address: tuple[tuple[str, str], ...] = (),
) -> tuple[RelayedLinks, ...]:
    """The tables ``[[relay]]``. ``without_address`` are the links that a relay carries if it names none."""
    found: list[RelayedLinks] = []
    carried: dict[tuple[str, str], str] = {}
    for table in fields.tables("relay"):
        table.require_known(["name", "address", "links", "listen"])
        name = table.text("name")
        table.checked("name", require_name, name)
        if name in (*sites, *(other.name for other in found)):
            raise table.wrong("name", "is the name of a site or of another relay; names must be unique.")
        links = in_order(sites, _carried(table, edges)) if "links" in table else without_address
        if not links:
            raise table.error("links", "is missing, and no link needs a relay: all have an address; name its links.")
        for link in links:
            if link in carried:
                between = " - ".join(link)
                raise table.error("links", f"has {between}, which is carried by {carried[link]}, too; name one relay.")
            carried[link] = name
        address = table.checked("address", Address.parse, table.text("address"))
        found.append(RelayedLinks(name, address, links, table.parsed("listen", Address.parse)))
    return tuple(found)


def _carried(table: Fields, edges: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    links = table.pairs("links")
    for first, second in links:
        if (first, second) not in edges and (second, first) not in edges:
            raise table.error("links", f"has {first} - {second}, which is not a link of this network; see edges.")
    return links


def in_order(sites: Sequence[str], edges: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Links sorted by the order of ``sites``. The two ends of each link are sorted in the same way."""
    number = {name: number for number, name in enumerate(sites)}
    pairs = [sorted(edge, key=number.__getitem__) for edge in edges]
    return tuple((a, b) for a, b in sorted(pairs, key=lambda pair: (number[pair[0]], number[pair[1]])))
