"""A site's connections: the transport to its neighbours, for one membership."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from eigenmesh.certificate._complement import COLUMNS as PROBE_COLUMNS
from eigenmesh.errors import ParkedError, UnreadableFileError
from eigenmesh.fitting import Request
from eigenmesh.sites._audit import AuditWriter
from eigenmesh.sites._credentials import SiteCredentials
from eigenmesh.sites._manifest import Manifest, differences
from eigenmesh.sites._membership import Membership
from eigenmesh.sites._site import Site
from eigenmesh.transports.grpc import Credentials, GrpcTransport, Neighbour, Run, Sent

# Bound on one wait for a neighbour that lives.
ROUND_S = 3600.0
START_AGAIN = "Start all sites again once that is mended."


@dataclass(frozen=True)
class Connector:
    """What a site needs to connect, whoever is left.

    Attributes
    ----------
    fingerprint : tells this site's data from others.
    n_features : d.
    """

    site: Site
    credentials: SiteCredentials
    manifest: Manifest
    fingerprint: str
    request: Request
    n_features: int

    def connect(
        self, view: Membership, join_s: float, audit: AuditWriter, hear: Callable[[int, str], None]
    ) -> GrpcTransport:
        """Links to the neighbours of one membership; ``hear`` is called with what they say of losses."""
        site, credentials, members = self.site, self.credentials, view.members
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
            Credentials(credentials.key, credentials.certificate, credentials.authorities),
            Run(
                self._run_id(view),
                view.epoch,
                self.manifest.text,
                self._largest_message(),
                fingerprint=self.fingerprint,
            ),
            listen=str(site.listen) if site.listen is not None and None in addresses.values() else None,
            journal=site.out.journal_of(view.epoch),
            patience_s=site.settings.patience_s,
            join_s=join_s,
            # A neighbour that lives may itself wait for one that has yet to join.
            round_s=ROUND_S + join_s,
            on_sent=self._audited(audit),
            on_control=hear,
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

    def _run_id(self, view: Membership) -> bytes:
        """The run with these members: messages of another membership are of another run."""
        return hashlib.sha256(self.manifest.run_id + (view.digest.encode() if view.lost else b"")).digest()[:16]

    def _largest_message(self) -> int:
        """Bytes in the largest message of the run: of an iteration, the certificate, the moments or a check."""
        d, wanted, solver = self.n_features, self.request.n_components, self.request.solver
        # A share of the variance may take all components.
        k = min(wanted, d) if isinstance(wanted, int) else d
        iteration = d * d if solver is None else solver.largest_message(k, d)
        return 8 * (max(iteration, d * max(k, PROBE_COLUMNS), 2 * d + 1) + 4096)


def _differing(ours: str, theirs: str) -> list[str]:
    return differences(Manifest.parse(ours), Manifest.parse(theirs))
