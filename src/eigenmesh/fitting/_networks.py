"""The networks of a fit: of all nodes in this process or over a transport, for counting and for the fit itself."""

from __future__ import annotations

from collections.abc import Callable

from eigenmesh.averaging import DEFAULT_ACCURACY, Averaging, Integers, PushSum, Tree, name_of
from eigenmesh.averaging._base import reaches
from eigenmesh.errors import InputError
from eigenmesh.fitting._privacy import add_masks
from eigenmesh.graphs import NetworkSequence, Weights
from eigenmesh.networks import Changing, ChangingPeers, Network, Peers, Stacked
from eigenmesh.transports import Transport

# Averages must be accurate enough to give the number of samples exactly.
LOOSEST_MEAN = 1e-8


def network_over(weights: Weights | NetworkSequence, transport: Transport | None, averaging: Averaging) -> Network:
    """All nodes stacked, or one node with its neighbours over a transport."""
    if isinstance(weights, NetworkSequence):
        push_sum = averaging if isinstance(averaging, PushSum) else None
        return Changing(weights, push_sum) if transport is None else ChangingPeers(weights, transport, push_sum)
    return Stacked(weights, averaging) if transport is None else Peers(weights, transport, averaging)


def with_exact_averages(network: Network, averaging: Averaging, max_rounds: int) -> Network:
    """The network; raises if its averages take more rounds than a run may, or are not accurate enough for moments."""
    wanted = getattr(averaging, "accuracy", DEFAULT_ACCURACY)
    if wanted > LOOSEST_MEAN:
        raise InputError(f"accuracy {wanted:.1g} is too low for exact moments; use {LOOSEST_MEAN:g} or less.")
    network.limit_rounds(max_rounds)
    if not reaches(network.average, wanted):
        reached = f"{name_of(averaging)} averages on this network reach an accuracy of {network.average.accuracy:.1g}"
        why = f"not {wanted:g}, because its weights mix so slowly that rounding errors grow"
        raise InputError(f'{reached}, {why}; use averaging="tree", or weights that mix faster.')
    return network


def counting_network(network_with: Callable[[Averaging], Network], masked: bool) -> Network:
    """A network for counting samples, with masks if requested."""
    network = network_with(Integers() if masked else Tree())
    if masked:
        add_masks(network)
    return network
