"""Peers at different organisations: site files, the manifest that all sites agree on, the audit file and the run."""

from eigenmesh.sites.fields import Fields, at_least
from eigenmesh.sites.network_file import EXAMPLE, NetworkFile, read_network_file, site_toml
from eigenmesh.sites.site import Address, RunSettings, Site, in_order, read_site

__all__ = ["NetworkFile", "Site", "read_network_file", "read_site"]
