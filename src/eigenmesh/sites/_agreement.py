"""After a loss: the remaining sites exchange views of the membership until all have the same one."""

import math
import time

from eigenmesh.errors import TransportError
from eigenmesh.sites._membership import Membership
from eigenmesh.transports.grpc import GrpcTransport

# How often a view is sent again, whether it arrived or not.
SEND_EVERY_S = 1.0
# Neighbours may fall silent one after the other; this bounds the whole agreement, in units of ``patience_s``.
MAX_PATIENCES = 10


def agree(transport: GrpcTransport, view: Membership, patience_s: float, join_s: float) -> None:
    """Exchange views with the remaining neighbours until every member is known to have this one.

    A neighbour that the transport loses meanwhile is lost too. Raises TransportError if half of all sites or more are
    unreachable, if a neighbour has already finished the run, or after a deadline.
    """
    deadline = time.monotonic() + MAX_PATIENCES * patience_s + join_s
    ranks = {neighbour.name: neighbour.rank for neighbour in transport.neighbours}
    sent = -math.inf
    while not view.agreed:
        view.require_majority()
        transport.check()
        finished = [link.name for link in transport.status().links if link.finished and view.has_link(link.name)]
        if finished:
            raise TransportError(
                f"{', '.join(finished)} finished the run before the loss; their result is that of all sites."
            )
        if time.monotonic() > deadline:
            raise TransportError("the remaining sites could not agree on the membership; start the run again.")
        if time.monotonic() - sent > SEND_EVERY_S:
            sent = time.monotonic()
            _send_view(transport, view, ranks)
        received = transport.receive_control(SEND_EVERY_S / 4)
        changed = received is not None and view.merge(received[1])
        silent = [link.name for link in transport.status().links if link.lost]
        if view.lose((view.name, name) for name in silent) or changed:
            sent = -math.inf
    view.require_majority()
    # For neighbours that do not know yet that all agree.
    _send_view(transport, view, ranks)


def _send_view(transport: GrpcTransport, view: Membership, ranks: dict[str, int]) -> None:
    for name, rank in ranks.items():
        if view.has_link(name):
            transport.send_control(rank, view.to_json())
