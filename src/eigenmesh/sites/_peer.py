"""One site in a run: connect, fit, sign and write the result. After a loss it stops or continues without lost sites."""

import contextlib
import hashlib
import io
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from eigenmesh.data import FeatureShards, Shards
from eigenmesh.errors import (
    AbortedError,
    DeadlineError,
    DisagreementError,
    LostNeighbourError,
    MembersChangedError,
    ParkedError,
    TransportError,
)
from eigenmesh.events import Ended, Lost
from eigenmesh.fitting import fit, prepare
from eigenmesh.graphs import metropolis
from eigenmesh.protocol import ENDING, SET_UP, Membership, Sent
from eigenmesh.sites._audit import AuditWriter
from eigenmesh.sites._audit_lines import DATA
from eigenmesh.sites._batch import PutOffError
from eigenmesh.sites._connector import Connector
from eigenmesh.sites._credentials import load_credentials
from eigenmesh.sites._descriptors import SpareDescriptors
from eigenmesh.sites._manifest import Manifest
from eigenmesh.sites._names import site_graph
from eigenmesh.sites._reporting import Reporter
from eigenmesh.sites._results import Outcome, ResultFiles, result_digest
from eigenmesh.sites._room import is_without_room, parked_without_room
from eigenmesh.sites._run_folder import RunFolder
from eigenmesh.sites._samples import OneFile, OwnSamples
from eigenmesh.sites._site import Site
from eigenmesh.sites._status import Status
from eigenmesh.transports.tls import Supervisor, TlsTransport

logger = logging.getLogger(__name__)

START_AGAIN = "Start all sites again once that is fixed."
# Signed instead of a result when a batch is put off.
PUT_OFF = hashlib.sha256(b"eigenmesh batch put off").hexdigest()
STOPPED = "stopped by its operator; start all sites again to continue"


class Peer:
    """A site in a run. The constructor makes all checks that need no neighbour.

    ``listener`` is called about every second with the status, in another thread. ``own`` are the site's samples; by
    default those of the file in its ``site.toml``.
    """

    def __init__(
        self, site: Site, listener: Callable[[Status], None] | None = None, own: OwnSamples | None = None
    ) -> None:
        credentials = load_credentials(site.tls, site.name, site.fingerprints)
        self.own = own = OneFile(site) if own is None else own
        self.by_columns = site.settings.partition == "features"
        self.request = own.request()
        self.manifest = Manifest.of(site, own.n_features, own.feature_names, own.n_samples)
        # The run id depends on the settings, so a run with different settings gets a different journal.
        run = f"{site.run}-{self.manifest.run_id.hex()[:8]}"
        self.site = site = replace(site, out=replace(site.out, run=run))
        length = own.n_samples if self.by_columns else own.n_features
        self.connector = Connector(site, credentials, self.manifest, length)
        self.run_folder = RunFolder(site.out, own.fingerprint)
        with parked_without_room(site.name):
            self.files = ResultFiles(site, self.manifest, self.run_folder)
        # The last healthy estimate (d, K), to continue from after a loss.
        self.estimate: np.ndarray | None = None
        # Of all threads and tasks; the first that ends with an exception ends the run.
        self.supervisor = Supervisor()
        self.reporter = Reporter(site, listener, self.supervisor)

    def run(self) -> Outcome:
        """Take part until the result is written, or the run is parked, aborted or fails."""
        done = self.files.written_before()
        if done is not None:
            # A crash after the result was written may have left the folder to resume from.
            self.run_folder.remove()
            return done
        with parked_without_room(self.site.name):
            self.run_folder.open()
            audit = self._audit()
        self.spare = SpareDescriptors()
        with audit, self.reporter:
            try:
                with parked_without_room(self.site.name):
                    outcome = self._epochs(audit)
            except BaseException as error:
                self.spare.release()
                self.run_folder.close(was_heard=audit.messages > 0)
                self.reporter.end(_ended_by(error))
                raise
            self.reporter.end(Ended("done", outcome.converged) if outcome.fit is None else outcome.fit.result.ended)
            return outcome

    def _audit(self) -> AuditWriter:
        site, own, modes = self.site, self.own, (self.site.settings.asked.privacy, self.site.settings.partition)
        facts = site.run_and_batch, own.n_features, own.n_samples
        return AuditWriter(site.out.audit, site.name, *facts, *modes, site.out.audit_bytes, self.supervisor)

    def _epochs(self, audit: AuditWriter) -> Outcome:
        """Run with all sites. If sites are lost and ``on_loss`` is "continue", run again with the remaining ones."""

        def record(sent: Sent) -> None:
            if sent.kind == DATA:
                self.run_folder.note_sent()
            audit.record(sent)

        endpoint = self.connector.connect(record, self.supervisor)
        try:
            transport = TlsTransport(endpoint)
            while True:
                view = Membership(self.site.name, self.site.sites, self.site.edges, endpoint.lost)
                self.reporter.follow(transport, view)
                try:
                    outcome = self._fit(transport, view, _array(endpoint.start))
                except MembersChangedError as error:
                    left = Membership(self.site.name, self.site.sites, self.site.edges, error.lost)
                    self.reporter.log.emit(Lost(left.missing, str(error)))
                    logger.warning("%s Lost: %s.", error, ", ".join(left.missing) or "links only")
                    transport = transport.next_epoch(_bytes(self.estimate))
                    continue
                owed = endpoint.close()
                if not owed:
                    self.run_folder.remove()
                return replace(outcome, owed=owed)
        except KeyboardInterrupt:
            endpoint.stop(f"{STOPPED}.", parks=True)
            raise
        except AbortedError:
            raise
        except BaseException as error:
            if isinstance(error, LostNeighbourError):
                self.reporter.log.emit(Lost(error.neighbours, str(error)))
            # Other sites see the message only if it is about links or settings: others could reveal data or paths.
            public, full = isinstance(error, TransportError | DisagreementError), is_without_room(error)
            reason = str(error) if public else f"{type(error).__name__}; ask its operator."
            endpoint.stop(f"its disk is full. {START_AGAIN}" if full else reason, parks=full)
            raise
        finally:
            endpoint.close()

    def _fit(self, transport: TlsTransport, view: Membership, start: np.ndarray | None) -> Outcome:
        members, table = view.members, self.own.settle(transport)
        held: dict[str, Any] = {"ids": [transport.rank], "n_nodes": transport.size, "node_names": members}
        if self.by_columns:
            shards: Shards = FeatureShards.from_list([table.source], sample_ids=[table.ids], **held)
        else:
            shards = Shards.from_list([table.source], **held)
        shards = shards.weighted([table.weights])
        weights = metropolis(site_graph(members, [link for link in view.links if link[0] in members]))
        # After a loss the remaining sites start from the average of their latest estimates.
        average, log = bool(view.lost), self.reporter.log
        start = self.own.start() if start is None and not average else start
        try:
            prepared = prepare(self.request, self.own.data(shards, weights, transport))
            transport.compare(SET_UP)
            found = fit(prepared, start, average_start=average, events=log, on_estimate=self._keep, share=True)
        except PutOffError as error:
            return self.files.put_off(view, transport.sign(PUT_OFF), str(error))
        except MembersChangedError:
            raise
        except Exception:
            # If sites were told different numbers, later sums are noise, and errors due to it say little.
            with contextlib.suppress(DeadlineError, ParkedError):
                transport.compare(ENDING)
            raise
        signed = transport.sign(result_digest(found))
        self.spare.release()
        try:
            return self.files.write(found, view, signed, table)
        except OSError as error:
            reason = f"its result cannot be written: {error.strerror or error}. {START_AGAIN}"
            transport.park(reason)
            raise ParkedError(f"{self.site.name} parked the run: {reason}") from error

    def _keep(self, estimate: np.ndarray) -> None:
        self.estimate = estimate


def _bytes(array: np.ndarray | None) -> bytes:
    if array is None:
        return b""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _array(data: bytes) -> np.ndarray | None:
    return np.load(io.BytesIO(data), allow_pickle=False) if data else None


def _ended_by(error: BaseException) -> Ended:
    if isinstance(error, KeyboardInterrupt):
        return Ended("stopped", message=STOPPED)
    stopped = "parked" if isinstance(error, ParkedError) else "aborted"
    return Ended(stopped if isinstance(error, AbortedError) else "failed", message=str(error) or type(error).__name__)
