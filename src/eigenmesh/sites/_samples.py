"""The samples that a peer computes on: those of one file, or those of a batch of a followed run."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from eigenmesh.data import Shards, Table
from eigenmesh.fitting import Data, Request, node_data
from eigenmesh.graphs import Weights
from eigenmesh.sites._site import Site, fingerprint, read_samples
from eigenmesh.sites._terms import require_terms
from eigenmesh.transports.tls import TlsTransport


class OwnSamples(Protocol):
    """The samples of a site in one run.

    ``fingerprint`` identifies the samples from before the run; it is kept to detect changes, and never sent.
    """

    feature_names: tuple[str, ...] | None
    n_features: int
    n_samples: int
    fingerprint: str

    def request(self) -> Request:
        """What the run is asked to find."""

    def settle(self, transport: TlsTransport) -> Table:
        """The samples of the run, which no longer change after this call; all sites call it first."""

    def data(self, shards: Shards, weights: Weights, transport: TlsTransport) -> Data:
        """These samples at their node of the network."""

    def start(self) -> np.ndarray | None:
        """A basis (d, K) to begin from, the same at all sites; None for a random one."""


class OneFile:
    """The samples of the file that ``site.toml`` names."""

    def __init__(self, site: Site) -> None:
        self.site, self.table = site, read_samples(site.data)
        self.n_samples, self.n_features = map(int, self.table.source.shape)
        self.feature_names = self.table.feature_names
        require_terms(site, self.n_samples)
        # To detect that the data have changed between a crash and a restart.
        self.fingerprint = fingerprint(site.data)

    def request(self) -> Request:
        """The settings of ``site.toml``."""
        return self.site.settings.request(self.site.data.covariance)

    def settle(self, transport: TlsTransport) -> Table:
        """The table as it was read at the start."""
        return self.table

    def data(self, shards: Shards, weights: Weights, transport: TlsTransport) -> Data:
        """The rows of the file, at this node."""
        return node_data(shards, weights, transport)

    def start(self) -> np.ndarray | None:
        """None: the run begins from a random basis."""
        return None
