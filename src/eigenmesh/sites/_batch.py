"""The samples of a site in one batch of a followed run: when the batch begins, its files, and whether it counts."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace

import numpy as np

from eigenmesh.data import Shards, Table
from eigenmesh.data._source import MatrixSource
from eigenmesh.fitting import NodeData, Request
from eigenmesh.fitting._facts import Size
from eigenmesh.graphs import Weights
from eigenmesh.masking import MIN_SITES
from eigenmesh.model_file import read_model
from eigenmesh.networks import Network
from eigenmesh.sites._inbox import HANDOVER, Inbox
from eigenmesh.sites._ledger import Ledger
from eigenmesh.sites._site import Site
from eigenmesh.transports.tls import TlsTransport

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 0.2


class PutOffError(Exception):
    """A batch that does not count yet; its samples are part of the next one.

    All sites decide this from the same sum, so all of them put the batch off.
    """


@dataclass(frozen=True, eq=False)
class BatchData(NodeData):
    """Samples of all batches so far; ``n_new`` of them were in no batch that counted.

    With masks the first sum counts the sites that have at least ``least_new`` new samples. Fewer than three put the
    batch off, so that the difference between two results never belongs to one or two sites. The second sum is the
    number of samples; fewer than ``least`` put the batch off, too.
    """

    n_new: int = 0
    least_new: int = 0
    least: int = 2

    def count(self, masked: bool) -> tuple[Size, Network]:
        network = self.counting_network(masked)
        if masked:
            ready = self.total(network, [float(self.n_new >= self.least_new)])
            if ready < MIN_SITES:
                raise PutOffError(f"{ready} sites have {self.least_new} new samples; at least {MIN_SITES} must.")
        count = self.total(network, [block.count for block in self.shards.blocks])
        if count < self.least:
            raise PutOffError(f"all sites have {count} samples together; {self.least} are needed.")
        return Size(count, self.shards.n_features), network


class Batch:
    """The samples of a site in the current batch of its ledger.

    ``since`` is the end of the last batch, by ``time.monotonic``.
    """

    def __init__(self, site: Site, inbox: Inbox, ledger: Ledger, since: float) -> None:
        self.site, self.inbox, self.ledger, self.since = site, inbox, ledger, since
        while not ledger.files and not inbox.new(ledger.files, ledger.batch):
            time.sleep(LOOK_EVERY_S)
        # Read the counted files first: they decide the order of the columns.
        inbox.load(ledger.files)
        inbox.new(ledger.files, ledger.batch)
        self.n_samples = sum(file.rows for file in ledger.files)
        self.n_features, self.feature_names = inbox.columns or (0, None)
        self.fingerprint = ledger.fingerprint

    def request(self) -> Request:
        # Always sum the number of samples, because it decides whether the batch counts.
        request = self.site.settings.request(self.site.data.covariance)
        return replace(request, min_samples=max(1, request.min_samples))

    def settle(self, transport: TlsTransport) -> Table:
        """Wait until the batch begins here or at a neighbour, record its files in the ledger, and notify neighbours.

        So the first site that is ready begins the batch at all sites.
        """
        while not self.ledger.settled:
            new = self.inbox.new(self.ledger.files, self.ledger.batch)
            if self._can_begin([file.name for file in new], sum(file.rows for file in new), transport.begun):
                self.ledger = self.ledger.settle(new)
            else:
                transport.check()
                time.sleep(LOOK_EVERY_S)
        near = transport.neighbours
        transport.exchange((np.zeros(1),), transport.links(near, near))
        rows = self.inbox.stacked(self.ledger.files)
        return Table(MatrixSource(rows, self.feature_names), name=str(self.inbox.folder))

    def _can_begin(self, names: list[str], n_new: int, begun: bool) -> bool:
        settings, ledger = self.site.settings, self.ledger
        present = {*names, *(file.name for file in ledger.files)}
        inherited = map(HANDOVER.format, self.site.schedule.handed_over(self.site.name, ledger.batch))
        n_samples = n_new + sum(file.rows for file in ledger.files)
        if n_samples < max(1, settings.min_samples_per_site) or not present.issuperset(inherited):
            return False
        least = settings.min_new_samples if settings.masked else 1
        enough = 0 < settings.batch_rows <= n_new
        # n_new > 0: samples that were put off are not tried again until new ones have arrived.
        late = n_new > 0 and n_new + ledger.n_new >= least and time.monotonic() - self.since >= settings.every_s
        return begun or enough or late

    def data(self, shards: Shards, weights: Weights, transport: TlsTransport) -> NodeData:
        settings, wanted = self.site.settings, self.site.settings.asked.n_components
        least = max(settings.asked.min_samples, wanted + 1 if isinstance(wanted, int) else 2)
        return BatchData(shards, weights, transport, self.ledger.n_new, settings.min_new_samples, least)

    def start(self) -> np.ndarray | None:
        """The components of the last batch that counted; None, for a random basis, after a change of membership."""
        released, schedule = self.ledger.released, self.site.schedule
        changed = any(released < batch <= self.ledger.batch for batch in schedule.changes)
        if released < 0 or changed or not isinstance(self.site.settings.asked.n_components, int):
            return None
        last = replace(self.site.out, version=released)
        return np.ascontiguousarray(read_model(last.result).components.T)
