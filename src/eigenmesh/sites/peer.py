"""One site in a run: connect, fit, sign and write the result. After a loss it stops or continues without lost sites."""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from eigenmesh import errors
from eigenmesh.data import Partition, Shards, Source, Table
from eigenmesh.events import Ended, Lost, Planned
from eigenmesh.fitting import Data, NodeData, Request, Spread, fit, node_data, planned, prepare
from eigenmesh.graphs import Weights, metropolis
from eigenmesh.protocol import Run, Setup
from eigenmesh.protocol.effects import Sent
from eigenmesh.protocol.membership import Membership
from eigenmesh.protocol.setup import Departure, Stage
from eigenmesh.sites.approval import require_approval
from eigenmesh.sites.audit import DATA, AuditWriter
from eigenmesh.sites.authority import RevocationList, load_credentials
from eigenmesh.sites.network_file import Manifest, differences
from eigenmesh.sites.results import (
    Outcome,
    PutOffError,
    ResultFiles,
    RunFolder,
    is_full_disk,
    parked_by_full_disk,
    result_digest,
)
from eigenmesh.sites.site import Site, fingerprint, read_samples, require_links, require_terms, site_graph
from eigenmesh.sites.status import Reporter, Status
from eigenmesh.transports.tls import CertificateKeyring, Endpoint, HttpProxy, Routes, TlsTransport, Via
from eigenmesh.transports.tls.connection import Supervisor

if TYPE_CHECKING:
    from eigenmesh.sites.follow import Batch


class OneFile:
    """The samples of a site in one run: those of the file that ``site.toml`` names.

    A ``Batch`` of a followed run offers the same. ``fingerprint`` identifies the samples from before the run. It is
    kept to detect that they have changed between a crash and a restart, and is never sent.
    """

    def __init__(self, site: Site) -> None:
        self.site, self.table = site, read_samples(site.data)
        self.n_samples, self.n_features = map(int, self.table.source.shape)
        self.feature_names = self.table.feature_names
        require_terms(site, self.n_samples)
        self.fingerprint = fingerprint(site.data)

    def request(self) -> Request:
        """The settings of ``site.toml``."""
        return self.site.settings.request(self.site.data.covariance)

    def settle(self, transport: TlsTransport) -> Table:
        """The samples of the run, which no longer change after this call. All sites call it first."""
        # The others may join much later, and only then is imported what a fit needs: a peer that waits is small.
        transport.wait_for_members()
        return self.table

    def data(self, shards: Partition, weights: Weights, transport: TlsTransport) -> Data:
        """These samples at their node of the network."""
        return node_data(shards, weights, transport)

    def start(self) -> np.ndarray | None:
        """A basis (d, K) to begin from, the same at all sites. None for a random one."""
        return None


# Reserved file descriptors: strangers who open many connections cannot prevent the result from being written.


# Enough for the model, its numbers, their temporary files, a folder to flush, the status and the log.
SPARE = 32


class SpareDescriptors:
    """Raises this process's limit on open files as far as allowed, and holds some descriptors until ``release``."""

    def __init__(self, count: int = SPARE) -> None:
        with contextlib.suppress(ImportError, ValueError, OSError):
            import resource

            _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self._held = [os.open(os.devnull, os.O_RDONLY) for _ in range(count)]

    def release(self) -> None:
        """Make the descriptors available. May be called more than once."""
        while self._held:
            os.close(self._held.pop())


logger = logging.getLogger(__name__)

START_AGAIN = "Start all sites again once that is fixed."
# Signed instead of a result when a batch is put off.
PUT_OFF = hashlib.sha256(b"eigenmesh batch put off").hexdigest()
STOPPED = "stopped by its operator; start all sites again to continue"


class Peer:
    """A site in a run. The constructor makes all checks that need no neighbour.

    Parameters
    ----------
    site : Site
        The site, as its ``site.toml`` describes it.
    own : OneFile or Batch, optional
        The site's samples. By default those of the file in its ``site.toml``.
    """

    def __init__(self, site: Site, own: OneFile | Batch | None = None) -> None:
        require_links(site.path, site.edges)
        self.credentials = load_credentials(site.tls, site.name, site.fingerprints)
        revoked = RevocationList(site.tls.ca).is_revoked
        self.keyring = CertificateKeyring(self.credentials, revoked, site.fingerprints)
        self.own = own = OneFile(site) if own is None else own
        self.by_columns = site.settings.partition == "features"
        self.request = own.request()
        self.manifest = Manifest.of(site, own.n_features, own.feature_names, own.n_samples)
        require_approval(site, self.manifest)
        # The run id depends on the settings, so a run with different settings gets a different journal.
        run = f"{site.run}-{self.manifest.run_id.hex()[:8]}"
        self.site = site = replace(site, out=replace(site.out, run=run))
        self.run_folder = RunFolder(site.out, own.fingerprint)
        with parked_by_full_disk(site.name):
            self.files = ResultFiles(site, self.manifest, self.run_folder)
        # The last healthy estimate (d, K), to continue from after a loss.
        self.estimate: np.ndarray | None = None
        # Of all threads and tasks; the first that ends with an exception ends the run.
        self.supervisor = Supervisor()
        self.reporter = Reporter(site, supervisor=self.supervisor)
        # The result that an earlier process has written, if there is one.
        self.done: Outcome | None = None
        # Whether a neighbour has agreed to the run with this process.
        self.was_met = False

    def run(self, listener: Callable[[Status], None] | None = None) -> Outcome:
        """Take part until the result is written, or the run is parked, aborted or fails.

        Parameters
        ----------
        listener : callable, optional
            Called about every second with the status, in another thread.
        """
        self.done = done = self.files.written_before(self.keyring)
        # With a journal this site takes part again: neighbours may still need messages that follow from it.
        if done is not None and not self.run_folder.has_journal:
            self._say_that_it_has_finished(done)
            # A crash during its removal may have left some of it.
            self.run_folder.remove()
            return done
        site = self.site
        with parked_by_full_disk(site.name):
            self.run_folder.open()
            audit = self._audit()
        self.spare = SpareDescriptors()
        self.reporter.listener, self.reporter.sync_audit = listener, audit.sync
        with audit, self.reporter:
            try:
                with parked_by_full_disk(self.site.name):
                    outcome = self._epochs(audit)
            except BaseException as error:
                self.spare.release()
                if done is None or not isinstance(error, errors.TransportError):
                    refused = isinstance(error, errors.DisagreementError) and not self.was_met
                    self.run_folder.close(was_heard=audit.messages > 0 and not refused)
                    self.reporter.end(_ended_by(error))
                    raise
                outcome = self._leave_with_result(done, error)
            self.reporter.end(Ended("done", outcome.converged) if outcome.fit is None else outcome.fit.result.ended)
            return outcome

    def _audit(self) -> AuditWriter:
        site, own, modes = self.site, self.own, (self.site.settings.asked.privacy, self.site.settings.partition)
        facts = site.name, site.run_and_batch, own.n_features, own.n_samples, *modes
        return AuditWriter(site.out.audit, *facts, site.out.audit_bytes, self.keyring)

    def _say_that_it_has_finished(self, done: Outcome) -> None:
        """Call the neighbours, and wait some seconds for their calls: one may still wait for this site's farewell."""
        if self.site.batch is not None:
            # Peers that stay tell it by the batch that they are in.
            return
        try:
            with self._audit() as audit:
                self._connect(audit.record, Departure.FINISHED, done.n_lost).close()
        except (errors.EigenmeshError, OSError) as error:
            logger.info("neighbours were not told that this site has finished: %s", error)

    def _leave_with_result(self, done: Outcome, error: errors.TransportError) -> Outcome:
        """End a process that has only helped others, because these are not there, or it cannot help them."""
        logger.warning("the result is written, but neighbours may still need this site: %s", error)
        if isinstance(error, errors.CannotResumeError):
            self.run_folder.remove()
            return done
        return replace(done, owed=tuple(self.site.neighbours))

    def _connect(self, on_sent: Callable[[Sent], None], left: str = "", n_lost: int = 0) -> Endpoint:
        """This site's end of its links, from the journal if there is one. ``on_sent`` hears of a message before it.

        A site that has ``left`` only says so, see ``Endpoint``.
        """
        site, settings, manifest = self.site, self.site.settings, self.manifest
        largest = settings.largest_message(self.own.n_samples if self.by_columns else self.own.n_features)
        setup = Setup(
            site.name,
            site.sites,
            site.edges,
            frozenset(site.called),
            Run(manifest.run_id, manifest.text, largest, _compare, _batches_to),
            self.keyring,
            patience_s=settings.patience_s,
            join_s=settings.join_s,
            # A neighbour that is alive may itself be waiting for one that has not joined yet.
            round_s=settings.round_s + settings.join_s,
            on_loss=settings.on_loss,
            masked=settings.masked,
            has_result=self.done is not None,
        )
        return Endpoint(
            setup,
            self.credentials,
            routes_of(site),
            listen=None if site.listen is None else str(site.listen),
            journal=site.out.journal,
            left=left,
            n_lost=n_lost,
            on_sent=on_sent,
            supervisor=self.supervisor,
        )

    def _epochs(self, audit: AuditWriter) -> Outcome:
        """Run with all sites. If sites are lost and ``on_loss`` is "continue", run again with the remaining ones."""

        def record(sent: Sent) -> None:
            if sent.kind == DATA:
                self.run_folder.note_sent()
            audit.record(sent)

        endpoint = self._connect(record)
        try:
            transport = TlsTransport(endpoint)
            while True:
                view = Membership(self.site.name, self.site.sites, self.site.edges, endpoint.machine.epoch.lost)
                self.reporter.follow(transport, view)
                try:
                    outcome = self._fit(transport, view, _array(endpoint.machine.start))
                except errors.MembersChangedError as error:
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
        except errors.AbortedError:
            raise
        except BaseException as error:
            if isinstance(error, errors.LostNeighbourError):
                self.reporter.log.emit(Lost(error.neighbours, str(error)))
            # Other sites see the message only if it is about links or settings: others could reveal data or paths.
            public, full = isinstance(error, errors.TransportError | errors.DisagreementError), is_full_disk(error)
            reason = str(error) if public else f"{getattr(error, 'told', 'it has failed')}; ask its operator."
            endpoint.stop(f"its disk is full. {START_AGAIN}" if full else reason, parks=full)
            raise
        finally:
            self.was_met = any(link.met is not None for link in endpoint.machine.epoch.links.values())
            endpoint.close()

    def _fit(self, transport: TlsTransport, view: Membership, start: np.ndarray | None) -> Outcome:
        members, table = view.members, self.own.settle(transport)
        spread = Spread(partition=self.site.settings.partition, transport=transport)
        shards = spread.own_shards(table, members)
        weights = metropolis(site_graph(members, [link for link in view.links if link[0] in members]))
        # After a loss the remaining sites start from the average of their latest estimates.
        average, log = bool(view.lost), self.reporter.log
        start = self.own.start() if start is None and not average else start
        try:
            prepared = prepare(self.request, self.own.data(shards, weights, transport))
            transport.compare(Stage.SET_UP)
            found = fit(prepared, start, average_start=average, events=log, on_estimate=self._keep, share=True)
        except PutOffError as error:
            return self.files.put_off(view, transport.sign(PUT_OFF), str(error))
        except errors.MembersChangedError:
            raise
        except Exception:
            # If sites were told different numbers, later sums are noise, and errors due to it say little.
            with contextlib.suppress(errors.DeadlineError, errors.ParkedError):
                transport.compare(Stage.ENDING)
            raise
        signed = transport.sign(result_digest(found))
        self.spare.release()
        try:
            return self.files.write(found, view, signed, table)
        except OSError as error:
            reason = f"its result cannot be written: {error.strerror or error}. {START_AGAIN}"
            transport.park(reason)
            raise errors.ParkedError(f"{self.site.name} parked the run: {reason}") from error

    def _keep(self, estimate: np.ndarray) -> None:
        self.estimate = estimate


def routes_of(site: Site) -> Routes:
    """How a site reaches the neighbours that it calls, and those that it meets at a relay."""
    proxy = None if site.proxy is None else HttpProxy(str(site.proxy.address), site.proxy.authorization)
    return Routes(
        {name: str(address) for name, address in site.neighbours.items() if address is not None},
        {name: Via(relay.name, str(relay.address), site.run) for name, relay in site.met_at_relays.items()},
        proxy,
    )


def _compare(ours: str, theirs: str) -> list[str]:
    return differences(Manifest.parse(ours), Manifest.parse(theirs))


def _batches_to(ours: str, theirs: str) -> int:
    return Manifest.parse(ours).batches_to(Manifest.parse(theirs))


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
    stopped = "parked" if isinstance(error, errors.ParkedError) else "aborted"
    return Ended(
        stopped if isinstance(error, errors.AbortedError) else "failed", message=str(error) or type(error).__name__
    )


# A forecast of what a run would cost, as if all sites had samples like those of this one. Nothing is sent.


def alike(site: Site, samples: Source, most: int | None = None) -> NodeData:
    """The data of a simulated run in which every site has these samples, or so many sites of a ring."""
    if most is None or most >= len(site.sites):
        return NodeData(Shards.from_list([samples] * len(site.sites), node_names=site.sites), site.weights)
    names = (site.name, *(other for other in site.sites if other != site.name))[:most]
    ring = [(names[place - 1], names[place]) for place in range(most)]
    return NodeData(Shards.from_list([samples] * most, node_names=names), metropolis(site_graph(names, ring)))


def forecast(site: Site) -> Planned | None:
    """The planner's forecast for the run of a site.toml. None where columns are split, or samples cannot be read."""
    if site.settings.partition == "features":
        return None
    try:
        samples = read_samples(site.data).source
    except errors.EigenmeshError:
        # The samples may arrive later, or only the peer may be allowed to read them.
        return None
    return planned(site.settings.request(site.data.covariance), alike(site, samples))
