"""Peers of different organisations: who they are, what they agree on, and what they leave on record."""

from eigenmesh.sites.names import Address
from eigenmesh.sites.network_file import NetworkFile, read_network_file
from eigenmesh.sites.settings import RunSettings
from eigenmesh.sites.site import DataFile, OutFolder, Site, TlsFiles, read_site

__all__ = [
    "Address",
    "DataFile",
    "NetworkFile",
    "OutFolder",
    "RunSettings",
    "Site",
    "TlsFiles",
    "read_network_file",
    "read_site",
]
