"""Peers at different organisations: site files, the manifest that all sites agree on, the audit file and the run."""

from eigenmesh.sites.network_file import EXAMPLE, NetworkFile, read_network_file, site_toml
from eigenmesh.sites.site import (
    AUTHORITY_FILE,
    CA_FOLDER,
    CA_KEY,
    CERTIFICATE_FILE,
    ISSUED_FILE,
    KEY_FILE,
    REQUEST_FILE,
    REVOKED_FILE,
    SITE_FILE,
    Address,
    DataFile,
    Fields,
    OutFolder,
    RunSettings,
    Site,
    TlsFiles,
    in_order,
    pinned,
    read_site,
)

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
