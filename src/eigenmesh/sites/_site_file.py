"""Writes the text of a ``site.toml`` from a network file."""

import dataclasses
import json
from typing import Any

from eigenmesh.sites._network_file import NetworkFile
from eigenmesh.sites._site import INCOMING

# X.509 files of a site, and its settings.
CERTIFICATE_FILE, KEY_FILE, AUTHORITY_FILE, REQUEST_FILE = "cert.pem", "key.pem", "ca.pem", "request.pem"
SITE_FILE = "site.toml"


def site_toml(network: NetworkFile, name: str) -> str:
    """The settings of one site: the graph by names, the addresses that it calls, and the settings of the run."""
    site = network.site(name)
    neighbours = network.neighbours(name)
    incoming = any(address is None for address in neighbours.values())
    lines = [
        f"# {name}: settings of this site for `eigenmesh peer site.toml`. Paths are relative to this file.",
        f"name = {_value(name)}",
        f"run = {_value(network.run)}",
        "",
        "# The whole network by names; the same at all sites.",
        f"sites = {_value(list(network.names))}",
        f"edges = {_value([list(edge) for edge in network.edges])}",
        "",
    ]
    if site.listen is not None and incoming:
        lines += ["# Where neighbours call this site.", f"listen = {_value(str(site.listen))}", ""]
    lines += ["# metrics_port = 9400            # Prometheus metrics, on 127.0.0.1 only", ""]
    lines += ["[neighbours]                     # an address to call, or incoming for one that calls this site"]
    lines += [f"{other} = {_value(str(address or INCOMING))}" for other, address in neighbours.items()]
    lines += ["", "[tls]", f'certificate = "{CERTIFICATE_FILE}"', f'key = "{KEY_FILE}"', f'ca = "{AUTHORITY_FILE}"', ""]
    lines += [
        "[data]",
        'file = "data.csv"                # .csv, .npy, .npz or .parquet; it is never sent',
        '# label_column = "diagnosis"     # a column to leave out',
        '# feature_names = ["age", "bmi"] # what the columns must be called, in this order',
        "",
        "[out]",
        'folder = "out"                   # result, audit, status and journal',
        "",
        "[settings]                       # the same at all sites",
    ]
    return "\n".join(lines + _settings(network)) + "\n"


def _settings(network: NetworkFile) -> list[str]:
    values = {key.name: getattr(network.settings, key.name) for key in dataclasses.fields(network.settings)}
    parameters = values.pop("solver_parameters")
    lines = [f"{key} = {_value(value)}" for key, value in values.items()]
    if parameters:
        lines += ["", "[settings.solver_parameters]"]
        lines += [f"{key} = {_value(value)}" for key, value in parameters.items()]
    return lines


def _value(value: Any) -> str:
    """A value in TOML, where numbers, strings and lists are written as in JSON."""
    return json.dumps(value, ensure_ascii=False)
