"""One site's part in a run: connect, agree, fit, write; and what becomes of it when others are lost."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from eigenmesh._atomic_write import require_writable, save_json
from eigenmesh.certificate._complement import COLUMNS as PROBE_COLUMNS
from eigenmesh.data import Shards
from eigenmesh.errors import (
    AbortedError,
    DisagreementError,
    EigenmeshError,
    InputError,
    LostNeighbourError,
    ParkedError,
    TransportError,
    UnreadableFileError,
)
from eigenmesh.estimator._fitted_model import model_of
from eigenmesh.estimator._pca import DecentralizedPCA
from eigenmesh.fitting._numbers import fitted_numbers
from eigenmesh.graphs import Weights, metropolis
from eigenmesh.iteration._result import with_set_up
from eigenmesh.model_file import write_model
from eigenmesh.sites._agreement import agree
from eigenmesh.sites._audit import AuditWriter
from eigenmesh.sites._credentials import load_credentials
from eigenmesh.sites._epochs import Epoch, EpochFile
from eigenmesh.sites._manifest import Manifest, differences
from eigenmesh.sites._membership import Membership
from eigenmesh.sites._names import site_graph
from eigenmesh.sites._reporting import Reporter
from eigenmesh.sites._samples import read_samples
from eigenmesh.sites._site import Site
from eigenmesh.sites._status import Status
from eigenmesh.sites._warm_start import WarmStart
from eigenmesh.transports.grpc import Credentials, GrpcTransport, Neighbour, Run, Sent

logger = logging.getLogger(__name__)

# Bound on one wait for a neighbour that lives.
ROUND_S = 3600.0
START_AGAIN = "Start all sites again once that is mended."


class ViewChangedError(TransportError):
    """Sites were lost somewhere: the run stops until those that are left agree on who they are."""


@dataclass(frozen=True)
class Outcome:
    """What a run came to at this site.

    Attributes
    ----------
    pca : the fitted estimator; None where the result lay there from before.
    members, missing : sites whose samples the result is of, and those that were lost on the way.
    written : files of the result.
    owed : neighbours that may not have everything yet; the journal is kept for them.
    """

    pca: DecentralizedPCA | None
    members: tuple[str, ...]
    missing: tuple[str, ...]
    written: tuple[Path, ...]
    converged: bool
    owed: tuple[str, ...] = ()


class Peer:
    """A site in a run. Everything that can be wrong without a neighbour is found when it is made.

    Parameters
    ----------
    site : as its site.toml describes it.
    listener : called about every second with the status, in a thread of its own.
    """

    def __init__(self, site: Site, listener: Callable[[Status], None] | None = None) -> None:
        self.site = site
        credentials = load_credentials(site.tls, site.name)
        self.credentials = Credentials(credentials.key, credentials.certificate, credentials.authorities)
        table = read_samples(site.data)
        self.samples = _as_dtype(table.X, site.settings.dtype)
        self.feature_names = table.feature_names
        self.manifest = Manifest.of(site, int(self.samples.shape[1]), self.feature_names)
        self._prepare_folder()
        self.epochs = EpochFile(site.out.folder / "epoch.npz", self.manifest.run_id)
        self.reporter = Reporter(site, listener)

    def run(self) -> Outcome:
        """Take part until the result is written, the run is parked, or it cannot go on."""
        done = self._done_before()
        if done is not None:
            return done
        site, n_samples = self.site, int(self.samples.shape[0])
        with (
            AuditWriter(site.out.audit, site.name, site.run, int(self.samples.shape[1]), n_samples) as audit,
            self.reporter,
        ):
            try:
                outcome = self._epochs(audit)
            except ParkedError as error:
                self.reporter.end("parked", str(error))
                raise
            except AbortedError as error:
                self.reporter.end("aborted", str(error))
                raise
            except BaseException as error:
                self.reporter.end("failed", str(error) or type(error).__name__)
                raise
            self.reporter.end("done")
            return outcome

    def _epochs(self, audit: AuditWriter) -> Outcome:
        """Run with all sites; after a loss, and if so asked, again with those that are left."""
        epoch, join_s = self.epochs.read(), self.site.settings.join_s
        while True:
            view = Membership(self.site.name, self.site.sites, self.site.edges, epoch.lost)
            solver = WarmStart(self.site.settings.make_solver(), warm=bool(epoch.lost), start=epoch.start)
            transport = self._transport(view, audit, join_s)
            self.reporter.follow(transport, view.epoch)
            try:
                outcome = self._until_a_loss(transport, view, solver)
                if outcome is not None:
                    transport.close()
                    owed = self._owed(transport)
                    if not owed:
                        self._clean_up()
                    return replace(outcome, owed=owed)
                epoch = Epoch(view.lost, solver.latest)
                self.epochs.write(epoch)
                # Those that are left were there a moment ago.
                join_s = self.site.settings.patience_s
            except KeyboardInterrupt:
                transport.park("stopped by its operator; start all sites again to go on.")
                raise
            except EigenmeshError as error:
                if not isinstance(error, AbortedError):
                    transport.abort(_to_others(error))
                raise
            except BaseException as error:
                transport.abort(f"{type(error).__name__}; its operator knows more.")
                raise
            finally:
                transport.close()

    def _until_a_loss(self, transport: GrpcTransport, view: Membership, solver: WarmStart) -> Outcome | None:
        """The outcome with these members; None if some were lost and those that are left have agreed to go on."""
        try:
            return self._fit(transport, view, solver)
        except (LostNeighbourError, ViewChangedError) as error:
            self._after_a_loss(transport, view, error)
            return None

    def _fit(self, transport: GrpcTransport, view: Membership, solver: WarmStart) -> Outcome:
        settings, members = self.site.settings, view.members
        weights = _weights(view)
        shards = Shards.from_list([self.samples], ids=[transport.rank], n_nodes=transport.size, node_names=members)
        pca = DecentralizedPCA(
            settings.n_components,
            solver=solver,
            topology=weights,
            averaging=settings.make_averaging(weights, shards.n_features),
            tol=settings.tol,
            max_rounds=settings.max_rounds,
            scale=settings.scale,
            missing=settings.missing,
            covariance=self.site.data.covariance,
            random_state=settings.seed,
            transport=transport,
            callback=self.reporter.record,
        ).fit(shards)
        if self.feature_names is not None:
            pca.feature_names_in_ = np.asarray(self.feature_names, dtype=object)
        try:
            written = self._write(pca, view)
        except OSError as error:
            reason = f"its result cannot be written: {error.strerror or error}. {START_AGAIN}"
            transport.park(reason)
            raise ParkedError(f"{self.site.name} parked the run: {reason}") from error
        return Outcome(pca, members, view.missing, written, pca.result_.converged)

    def _write(self, pca: DecentralizedPCA, view: Membership) -> tuple[Path, ...]:
        out, result = self.site.out, with_set_up(pca.result_, pca.traffic_)
        total = float(pca.explained_variance_[0] / pca.explained_variance_ratio_[0])
        about = {
            "site": self.site.name,
            "run": self.site.run,
            "run_id": self.manifest.run_id.hex(),
            "whole": not view.missing,
            "sites": list(view.members),
            "lost_sites": list(view.missing),
            "lost_links": [list(link) for link in view.lost],
            "n_samples": pca.n_samples_,
            "own_data": self._fingerprint(),
            "census_bytes": pca.census_traffic_.bytes,
            "manifest": self.manifest.content,
        }
        write_model(out.result, model_of(pca, view.members, self.manifest.run_id.hex(), whole=not view.missing))
        # Last, since it is what says that the run is done.
        save_json(out.numbers, fitted_numbers(result, total, about))
        return out.result, out.numbers

    def _transport(self, view: Membership, audit: AuditWriter, join_s: float) -> GrpcTransport:
        site, members = self.site, view.members
        linked = [a if b == site.name else b for a, b in view.links if site.name in (a, b)]
        addresses = {name: site.neighbours[name] for name in linked}
        neighbours = [
            Neighbour(members.index(name), name, None if address is None else str(address))
            for name, address in addresses.items()
        ]
        return GrpcTransport(
            members.index(site.name),
            members,
            neighbours,
            self.credentials,
            Run(
                self._run_id(view),
                view.epoch,
                self.manifest.text,
                self._largest_message(),
                fingerprint=self._fingerprint(),
            ),
            listen=str(site.listen) if site.listen is not None and None in addresses.values() else None,
            journal=self._journal(view.epoch),
            patience_s=site.settings.patience_s,
            join_s=join_s,
            # A neighbour that lives may itself wait for one that has yet to join.
            round_s=ROUND_S + join_s,
            on_sent=self._audited(audit),
            on_control=self._hear,
            compare=_differing,
        )

    def _audited(self, audit: AuditWriter) -> Callable[[Sent], None]:
        """Note what leaves; where it cannot be noted, no numbers shall leave."""

        def record(sent: Sent) -> None:
            try:
                audit.record(sent)
            except UnreadableFileError as error:
                raise ParkedError(f"{self.site.name} parked the run: {error}. {START_AGAIN}") from error

        return record

    def _hear(self, rank: int, text: str) -> None:
        """A view has come: stop the run, whatever it waits for."""
        transport = self.reporter.transport
        if transport is not None and self.site.settings.on_loss == "continue":
            transport.interrupt(ViewChangedError("sites were lost"))

    def _after_a_loss(self, transport: GrpcTransport, view: Membership, error: TransportError) -> None:
        """End as asked, or come to one view of who is left with all who are."""
        on_loss = self.site.settings.on_loss
        if on_loss == "abort":
            transport.abort(str(error))
            raise error
        if on_loss == "wait":
            reason = f"{error} Start all sites again to go on."
            transport.park(reason)
            raise ParkedError(f"{self.site.name} parked the run: {reason}") from error
        logger.warning("%s; agreeing with the sites that are left on how to go on.", error)
        self.reporter.phase = "agreeing"
        if isinstance(error, LostNeighbourError):
            view.lose((self.site.name, name) for name in error.neighbours)
        try:
            agree(transport, view, self.site.settings.patience_s, self.site.settings.join_s)
        except TransportError as failure:
            transport.interrupt(None)
            transport.abort(str(failure))
            raise
        # So that closing does not wait for the rounds of an epoch that is over.
        transport.interrupt(ViewChangedError("the members have changed"))

    def _run_id(self, view: Membership) -> bytes:
        """The run with these members: messages of another membership are of another run."""
        return hashlib.sha256(self.manifest.run_id + (view.digest.encode() if view.lost else b"")).digest()[:16]

    def _largest_message(self) -> int:
        """Bytes in the largest message of the run: of an iteration, the certificate, the moments or a check."""
        d, wanted = int(self.samples.shape[1]), self.site.settings.n_components
        # A share of the variance may take all components.
        k = min(wanted, d) if isinstance(wanted, int) else d
        iteration = self.site.settings.make_solver().largest_message(k, d)
        return 8 * (max(iteration, d * max(k, PROBE_COLUMNS), 2 * d + 1) + 4096)

    def _fingerprint(self) -> str:
        """What tells this site's data from others, should they change between a crash and a restart."""
        facts = self.site.data.file.stat()
        return f"{facts.st_size} {facts.st_mtime_ns} {self.samples.shape} {self.samples.dtype}"

    def _journal(self, epoch: int) -> Path:
        return self.site.out.journal.with_name(f"{self.site.out.journal.name}-{epoch}")

    def _prepare_folder(self) -> None:
        out = self.site.out
        try:
            out.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnreadableFileError(f"cannot make {out.folder}: {error.strerror}; choose another folder.") from error
        for path in (out.result, out.numbers, out.status, out.audit):
            require_writable(path)

    def _done_before(self) -> Outcome | None:
        """The result of this very run, if it is there already."""
        out = self.site.out
        try:
            numbers = json.loads(out.numbers.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if numbers.get("run_id") != self.manifest.run_id.hex() or not out.result.exists():
            return None
        if numbers.get("own_data") != self._fingerprint():
            raise InputError(
                f"{out.numbers} is the result of run {self.site.run!r} on data that have changed since; give the run "
                "another name at all sites, or another out.folder."
            )
        # Neighbours may still need what this site had sent; only the journal knows whether they do.
        if self._journal(len(numbers["lost_links"])).exists():
            return None
        members, missing = tuple(numbers["sites"]), tuple(numbers["lost_sites"])
        return Outcome(None, members, missing, (out.result, out.numbers), bool(numbers["converged"]))

    def _owed(self, transport: GrpcTransport) -> tuple[str, ...]:
        """Neighbours that may need this site once more: lost at the end, or part of a run that was parked by then."""
        links = [link for link in transport.status().links if not link.finished]
        try:
            transport.check()
        except EigenmeshError:
            return tuple(link.name for link in links)
        return tuple(link.name for link in links if link.lost)

    def _clean_up(self) -> None:
        """Nothing is left to resume."""
        out = self.site.out
        for path in [*out.folder.glob(f"{out.journal.name}-*"), self.epochs.path]:
            with contextlib.suppress(OSError):
                path.unlink()


def _to_others(error: EigenmeshError) -> str:
    """What other sites are told: messages about links and settings whole, of those about data only their kind."""
    if isinstance(error, TransportError | DisagreementError):
        return str(error)
    return f"{type(error).__name__}; its operator knows more."


def _weights(view: Membership) -> Weights:
    """Metropolis weights on the sites and links that are left."""
    members = view.members
    return metropolis(site_graph(members, [edge for edge in view.links if edge[0] in members]))


def _differing(ours: str, theirs: str) -> list[str]:
    return differences(Manifest.parse(ours), Manifest.parse(theirs))


def _as_dtype(samples: Any, dtype: str) -> Any:
    """Samples in the precision of the run; a memory map that has it already stays one."""
    return samples if samples.dtype == dtype else samples.astype(dtype)
