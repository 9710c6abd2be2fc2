"""Peers at different organisations: site files, the manifest that all sites agree on, the audit file and the run."""

from eigenmesh.sites._names import Address
from eigenmesh.sites._network_file import NetworkFile, read_network_file
from eigenmesh.sites._out_folder import OutFolder
from eigenmesh.sites._settings import RunSettings
from eigenmesh.sites._site import DataFile, Site, TlsFiles, read_site

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
