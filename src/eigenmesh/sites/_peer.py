"""One site of a run: connect, fit, write the result; after a loss, continue without the lost sites or stop."""

import logging
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from eigenmesh.data import Shards
from eigenmesh.errors import (
    AbortedError,
    DisagreementError,
    EigenmeshError,
    LostNeighbourError,
    ParkedError,
    TransportError,
)
from eigenmesh.events import Ended, Lost
from eigenmesh.fitting import NodeData, fit, prepare
from eigenmesh.graphs import metropolis
from eigenmesh.sites._audit import AuditWriter
from eigenmesh.sites._connector import START_AGAIN, Connector, agree
from eigenmesh.sites._credentials import load_credentials
from eigenmesh.sites._manifest import Manifest
from eigenmesh.sites._membership import Membership
from eigenmesh.sites._names import site_graph
from eigenmesh.sites._reporting import Reporter
from eigenmesh.sites._results import Epoch, EpochFile, Outcome, ResultFiles
from eigenmesh.sites._run_folder import RunFolder
from eigenmesh.sites._site import Site, fingerprint, read_samples
from eigenmesh.sites._status import Status
from eigenmesh.transports.grpc import GrpcTransport

logger = logging.getLogger(__name__)

STOPPED = "stopped by its operator; start all sites again to continue"


class ViewChangedError(TransportError):
    """Sites were lost somewhere: the run stops until the remaining sites agree on the membership."""


class Peer:
    """A site in a run. All checks that need no neighbour are made at construction.

    ``listener`` is called about every second with the status, in another thread.
    """

    def __init__(self, site: Site, listener: Callable[[Status], None] | None = None) -> None:
        credentials = load_credentials(site.tls, site.name)
        table = read_samples(site.data)
        self.samples = table.source
        self.request = site.settings.request(site.data.covariance)
        self.manifest = Manifest.of(site, int(self.samples.shape[1]), table.feature_names)
        # Settings are in the run id, so that a run with others has other journals.
        run = f"{site.run}-{self.manifest.run_id.hex()[:8]}"
        self.site = site = replace(site, out=replace(site.out, run=run))
        # To detect that the data have changed between a crash and a restart.
        own = fingerprint(site.data)
        self.connector = Connector(site, credentials, self.manifest, own, self.request, self.samples.shape[1])
        self.run_folder = RunFolder(site.out, own)
        self.files = ResultFiles(site, self.manifest, self.run_folder)
        self.epochs = EpochFile(site.out.resume / "epoch.npz", self.manifest.run_id)
        self.reporter = Reporter(site, listener)

    def run(self) -> Outcome:
        """Take part until the result is written, or the run is parked, aborted or fails."""
        done = self.files.written_before()
        if done is not None:
            return done
        site, (n_samples, n_features) = self.site, map(int, self.samples.shape)
        self.run_folder.open()
        with AuditWriter(site.out.audit, site.name, site.run, n_features, n_samples) as audit, self.reporter:
            try:
                outcome = self._epochs(audit)
            except BaseException as error:
                self.run_folder.close(audit.data_messages > 0)
                self.reporter.end(_last_word(error))
                raise
            self.reporter.end(Ended("done", outcome.converged) if outcome.fit is None else outcome.fit.result.ended)
            return outcome

    def _epochs(self, audit: AuditWriter) -> Outcome:
        """Run with all sites; after a loss, and if ``on_loss`` is "continue", again with the remaining ones."""
        epoch, join_s = self.epochs.read(), self.site.settings.join_s
        while True:
            view = Membership(self.site.name, self.site.sites, self.site.edges, epoch.lost)
            transport = self.connector.connect(view, join_s, audit, self._on_view)
            self.reporter.follow(transport, view)
            try:
                outcome = self._until_a_loss(transport, view, epoch)
                if outcome is not None:
                    transport.close()
                    owed = self._owed(transport)
                    if not owed:
                        self.run_folder.remove()
                    return replace(outcome, owed=owed)
                epoch.lost = view.lost
                self.epochs.write(epoch)
                # The remaining sites are already running.
                join_s = self.site.settings.patience_s
            except KeyboardInterrupt:
                transport.park(f"{STOPPED}.")
                raise
            except AbortedError:
                raise
            except BaseException as error:
                # Other sites get the message only if it is about links or settings.
                public = isinstance(error, TransportError | DisagreementError)
                transport.abort(str(error) if public else f"{type(error).__name__}; ask its operator.")
                raise
            finally:
                transport.close()

    def _until_a_loss(self, transport: GrpcTransport, view: Membership, epoch: Epoch) -> Outcome | None:
        """The outcome with these members; None if some were lost and the others have agreed to continue."""
        try:
            return self._fit(transport, view, epoch)
        except (LostNeighbourError, ViewChangedError) as error:
            self._after_a_loss(transport, view, error)
            return None

    def _fit(self, transport: GrpcTransport, view: Membership, epoch: Epoch) -> Outcome:
        members = view.members
        shards = Shards.from_list([self.samples], ids=[transport.rank], n_nodes=transport.size, node_names=members)
        shards = replace(shards, precision=np.dtype(self.site.settings.dtype))
        weights = metropolis(site_graph(members, [link for link in view.links if link[0] in members]))
        prepared = prepare(self.request, NodeData(shards, weights, transport))
        # After a loss the remaining sites start from the average of their latest estimates.
        average, log = bool(view.lost), self.reporter.log
        found = fit(prepared, epoch.start, average_start=average, events=log, on_estimate=epoch.store)
        try:
            return self.files.write(found, view)
        except OSError as error:
            reason = f"its result cannot be written: {error.strerror or error}. {START_AGAIN}"
            transport.park(reason)
            raise ParkedError(f"{self.site.name} parked the run: {reason}") from error

    def _on_view(self, rank: int, text: str) -> None:
        """A neighbour has sent a view: stop the run, whatever it waits for."""
        transport = self.reporter.transport
        if transport is not None and self.site.settings.on_loss == "continue":
            transport.interrupt(ViewChangedError("sites were lost"))

    def _after_a_loss(self, transport: GrpcTransport, view: Membership, error: TransportError) -> None:
        """Do what ``on_loss`` says: abort, park, or agree on the membership with the remaining sites."""
        on_loss = self.site.settings.on_loss
        lost = error.neighbours if isinstance(error, LostNeighbourError) else ()
        self.reporter.log.emit(Lost(lost, str(error)))
        if on_loss == "abort":
            transport.abort(str(error))
            raise error
        if on_loss == "wait":
            reason = f"{error} Start all sites again to continue."
            transport.park(reason)
            raise ParkedError(f"{self.site.name} parked the run: {reason}") from error
        logger.warning("%s The remaining sites now agree on who continues.", error)
        view.lose((self.site.name, name) for name in lost)
        try:
            agree(transport, view, self.site.settings.patience_s, self.site.settings.join_s)
        except TransportError as failure:
            transport.interrupt(None)
            transport.abort(str(failure))
            raise
        # So that close() does not wait for rounds of the previous membership.
        transport.interrupt(ViewChangedError("the members have changed"))

    def _owed(self, transport: GrpcTransport) -> tuple[str, ...]:
        """Neighbours that may need this site again: lost at the end, or in a run that was parked meanwhile."""
        links = [link for link in transport.status().links if not link.finished]
        try:
            transport.check()
        except EigenmeshError:
            return tuple(link.name for link in links)
        return tuple(link.name for link in links if link.lost)


def _last_word(error: BaseException) -> Ended:
    if isinstance(error, KeyboardInterrupt):
        return Ended("stopped", message=STOPPED)
    stopped = "parked" if isinstance(error, ParkedError) else "aborted"
    return Ended(stopped if isinstance(error, AbortedError) else "failed", message=str(error) or type(error).__name__)
