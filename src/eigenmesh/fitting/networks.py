"""The networks of a fit: of all nodes in this process or over a transport, for counting and for the fit itself."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from eigenmesh import averaging as averagings
from eigenmesh.arrays import NUMBER_BYTES, as_bytes, as_numbers
from eigenmesh.averaging import Averaging, Integers, PushSum, Tree, name_of
from eigenmesh.errors import InputError, TransportError
from eigenmesh.graphs import NetworkSequence, Weights
from eigenmesh.masking import KEY_BYTES, MIN_SITES, MaskContext, SiteKey, pairwise_masks
from eigenmesh.networks import Changing, Masking, Network, Peers, Stacked
from eigenmesh.transports import Transport

# All-gather of bytes: each node sends a row, and every node receives all rows.


def gather_bytes(network: Network, own: Mapping[int, bytes]) -> list[bytes | None]:
    """The bytes of every node at every node, by one exchange of maxima; None for a node that sent nothing.

    ``own`` has the bytes of each node in this process. They have the same length at all nodes.
    """
    length = len(next(iter(own.values())))
    table = np.full((len(network.ids), network.n_nodes, words_for(length)), -1.0)
    for row, node in enumerate(network.ids):
        table[row, node] = as_numbers(own[node])
    rows = np.asarray(network.maximum(table))[0]
    return [as_bytes(row)[:length] if (row >= 0).all() else None for row in rows]


def words_for(length: int) -> int:
    """Numbers that this many bytes take."""
    return -(-length // NUMBER_BYTES)


# Masked averages: their requirements, and the keys that nodes make for one fit.


def require_enough_nodes(n_nodes: int) -> None:
    """Raise unless masks can hide one node's numbers from the others."""
    if n_nodes < MIN_SITES:
        raise InputError(
            f"{n_nodes} nodes cannot be masked: of two, each knows the other's numbers by subtraction. Take at least "
            f'{MIN_SITES}, or use privacy="open".'
        )


def in_integers(averaging: Averaging) -> Averaging:
    """The averaging with integers in its messages; raises for one that does more than sum."""
    if isinstance(averaging, Integers):
        return averaging
    if isinstance(averaging, Tree | averagings.AllReduce):
        return Integers(averaging)
    raise InputError(
        f"averaging {name_of(averaging)!r} cannot be masked: masks cancel only in plain sums, and it weights what it "
        f"receives. Use tree, allreduce or integers."
    )


def add_masks(network: Network) -> None:
    """Give the nodes in this process their masks: those of the transport, or from keys made for this network.

    Public keys reach all nodes by one exchange of maxima. They are not signed, so this does not protect against nodes
    that forge messages. The sites of ``eigenmesh site run`` sign their keys.
    """
    given = network.given_masks()
    if given is not None:
        network.masking = Masking([given])
        return
    keys = {node: SiteKey.generate(network.private_bytes(KEY_BYTES)) for node in network.ids}
    publics = gather_bytes(network, {node: key.public for node, key in keys.items()})
    silent = [node for node, public in enumerate(publics) if public is None]
    if silent:
        raise TransportError(f"node {silent[0]} sent no key for its masks; the fit ends.")
    context = MaskContext("fit", 0, b"", tuple(str(node) for node in range(network.n_nodes)))
    known = [public for public in publics if public is not None]
    network.masking = Masking([pairwise_masks(keys[node], known, node, context) for node in network.ids])


# Averages must be accurate enough to give the number of samples exactly.
LOOSEST_MEAN = 1e-8


def network_over(weights: Weights | NetworkSequence, transport: Transport | None, averaging: Averaging) -> Network:
    """All nodes stacked, or one node with its neighbours over a transport."""
    if isinstance(weights, NetworkSequence):
        push_sum = averaging if isinstance(averaging, PushSum) else None
        return Changing(weights, push_sum, transport)
    return Stacked(weights, averaging) if transport is None else Peers(weights, transport, averaging)


def with_exact_averages(network: Network, averaging: Averaging, max_rounds: int) -> Network:
    """The network; raises if its averages take more rounds than a run may, or are not accurate enough for moments."""
    wanted = getattr(averaging, "accuracy", averagings.DEFAULT_ACCURACY)
    if wanted > LOOSEST_MEAN:
        raise InputError(f"accuracy {wanted:.1g} is too low for exact moments; use {LOOSEST_MEAN:g} or less.")
    network.limit_rounds(max_rounds)
    if not averagings.reaches(network.average, wanted):
        reached = f"{name_of(averaging)} averages on this network reach an accuracy of {network.average.accuracy:.1g}"
        why = f"not {wanted:g}, because its weights mix so slowly that rounding errors grow"
        raise InputError(f'{reached}, {why}; use averaging="tree", or weights that mix faster.')
    return network
