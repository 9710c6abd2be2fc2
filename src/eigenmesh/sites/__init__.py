"""Peers at different organisations: site files, the manifest that all sites agree on, the audit file and the run."""

from eigenmesh.sites.network_file import read_network_file
from eigenmesh.sites.site import read_site
