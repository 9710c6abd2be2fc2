"""After a loss: the sites that are left exchange views until all of them have the same."""

from __future__ import annotations

import math
import time

from eigenmesh.errors import TransportError
from eigenmesh.sites._membership import Membership
from eigenmesh.transports.grpc import GrpcTransport

# How often a view is said again, heard or not.
SAY_EVERY_S = 1.0
# How often a neighbour may fall silent in turn before the whole takes too long.
LONGEST_PATIENCES = 10


def agree(transport: GrpcTransport, view: Membership, patience_s: float, join_s: float) -> None:
    """Exchange views with the neighbours that are left until every member is known to have this one.

    A neighbour that the transport gives up meanwhile is lost too. Raises TransportError once half
    of all sites or more are out of reach, if a neighbour has finished the run as it was, or if it takes too long.
    """
    deadline = time.monotonic() + LONGEST_PATIENCES * patience_s + join_s
    ranks = {neighbour.name: neighbour.rank for neighbour in transport.neighbours}
    said = -math.inf
    while not view.agreed:
        view.require_majority()
        transport.check()
        finished = [link.name for link in transport.status().links if link.finished and view.has_link(link.name)]
        if finished:
            raise TransportError(
                f"{', '.join(finished)} finished the run before the loss; their result is that of all."
            )
        if time.monotonic() > deadline:
            raise TransportError("the sites that are left did not come to one view of who they are.")
        if time.monotonic() - said > SAY_EVERY_S:
            said = time.monotonic()
            _say(transport, view, ranks)
        heard = transport.receive_control(SAY_EVERY_S / 4)
        changed = heard is not None and view.hear(heard[1])
        silent = [link.name for link in transport.status().links if link.lost]
        if view.lose((view.name, name) for name in silent) or changed:
            said = -math.inf
    view.require_majority()
    # Whoever has not heard everything yet has it from this.
    _say(transport, view, ranks)


def _say(transport: GrpcTransport, view: Membership, ranks: dict[str, int]) -> None:
    for name, rank in ranks.items():
        if view.has_link(name):
            transport.send_control(rank, view.text())
