"""The links of a site: the transport for one membership, and the agreement on the next one after a loss."""

import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from eigenmesh.certificate._complement import COLUMNS as PROBE_COLUMNS
from eigenmesh.errors import ParkedError, TransportError, UnreadableFileError
from eigenmesh.fitting import Request
from eigenmesh.sites._audit import AuditWriter
from eigenmesh.sites._manifest import Manifest, differences
from eigenmesh.sites._membership import Membership
from eigenmesh.sites._site import Site
from eigenmesh.transports.grpc import Credentials, GrpcTransport, Neighbour, Run, Sent

# What gRPC can be told, a C int, less the head of a frame. A message beyond it is refused by its sender, with its size.
MAX_MESSAGE_BYTES = (1 << 31) - (1 << 20)
# Longest wait in one round for a neighbour that is alive.
ROUND_S = 3600.0
START_AGAIN = "Start all sites again once that is fixed."
# After a loss a view is sent again this often, whether it arrived or not.
SEND_EVERY_S = 1.0
# Neighbours may fall silent one after the other; this bounds the whole agreement, in units of ``patience_s``.
MAX_PATIENCES = 10


@dataclass(frozen=True)
class Connector:
    """What a site needs to connect in any membership; ``fingerprint`` identifies its data."""

    site: Site
    credentials: Credentials
    manifest: Manifest
    fingerprint: str
    request: Request
    n_features: int

    def connect(
        self, view: Membership, join_s: float, audit: AuditWriter, on_view: Callable[[int, str], None]
    ) -> GrpcTransport:
        """Links to the neighbours of one membership; ``on_view`` is called with the views that they send."""
        site, members = self.site, view.members
        addresses = {name: address for name, address in site.neighbours.items() if view.has_link(name)}
        neighbours = [
            Neighbour(members.index(name), name, None if address is None else str(address))
            for name, address in addresses.items()
        ]
        return GrpcTransport(
            members.index(site.name),
            members,
            neighbours,
            self.credentials,
            Run(self._run_id(view), view.epoch, self.manifest.text, self._largest_message(), self.fingerprint),
            listen=str(site.listen) if site.listen is not None and None in addresses.values() else None,
            journal=site.out.journal_of(view.epoch),
            patience_s=site.settings.patience_s,
            join_s=join_s,
            # A live neighbour may itself wait for one that has not joined yet.
            round_s=ROUND_S + join_s,
            on_sent=partial(self._record, audit),
            on_control=on_view,
            compare=lambda ours, theirs: differences(Manifest.parse(ours), Manifest.parse(theirs)),
        )

    def _record(self, audit: AuditWriter, sent: Sent) -> None:
        """Record what leaves; if that fails, the run is parked and no array leaves."""
        try:
            audit.record(sent)
        except UnreadableFileError as error:
            raise ParkedError(f"{self.site.name} parked the run: {error}. {START_AGAIN}") from error

    def _run_id(self, view: Membership) -> bytes:
        """Run id for this membership, so that messages of another membership are refused."""
        return hashlib.sha256(self.manifest.run_id + (view.digest.encode() if view.lost else b"")).digest()[:16]

    def _largest_message(self) -> int:
        """Bytes of the largest message: of an iteration, the PCA certificate, the moments or a check."""
        d, wanted, solver = self.n_features, self.request.n_components, self.request.solver
        # A share of the variance may need all components.
        k = min(wanted, d) if isinstance(wanted, int) else d
        iteration = d * d if solver is None else solver.largest_message(k, d)
        return min(8 * (max(iteration, d * max(k, PROBE_COLUMNS), 2 * d + 1) + 4096), MAX_MESSAGE_BYTES)


def agree(transport: GrpcTransport, view: Membership, patience_s: float, join_s: float) -> None:
    """Exchange views with the remaining neighbours until every member is known to have this one.

    A neighbour that the transport loses meanwhile is lost too. Raises TransportError if half of all sites or more are
    unreachable, if a neighbour has already finished the run, or after a deadline.
    """
    deadline = time.monotonic() + MAX_PATIENCES * patience_s + join_s
    sent = -math.inf
    while not view.agreed:
        view.require_majority()
        transport.check()
        finished = [link.name for link in transport.status().links if link.finished and view.has_link(link.name)]
        if finished:
            raise TransportError(f"{', '.join(finished)} finished before the loss; their result is that of all sites.")
        if time.monotonic() > deadline:
            raise TransportError("the remaining sites could not agree on the membership; start the run again.")
        if time.monotonic() - sent > SEND_EVERY_S:
            sent = time.monotonic()
            _send_view(transport, view)
        received = transport.receive_control(SEND_EVERY_S / 4)
        changed = received is not None and view.merge(received[1])
        silent = [link.name for link in transport.status().links if link.lost]
        if view.lose((view.name, name) for name in silent) or changed:
            sent = -math.inf
    view.require_majority()
    # For neighbours that do not know yet that all agree.
    _send_view(transport, view)


def _send_view(transport: GrpcTransport, view: Membership) -> None:
    for neighbour in transport.neighbours:
        if view.has_link(neighbour.name):
            transport.send_control(neighbour.rank, view.to_json())
