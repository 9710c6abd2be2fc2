"""Masked averages: their requirements, and the keys that nodes make for one fit."""

from __future__ import annotations

from eigenmesh.averaging import AllReduce, Averaging, Integers, Tree, name_of
from eigenmesh.errors import InputError, TransportError
from eigenmesh.fitting._network_calls import NetworkCall
from eigenmesh.fitting._tables import gather_bytes, words_for
from eigenmesh.masking import MIN_SITES, MaskContext, SiteKey, pairwise_masks
from eigenmesh.masking._keys import KEY_BYTES
from eigenmesh.networks import Network
from eigenmesh.networks._integers import Masking


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
    if isinstance(averaging, Tree | AllReduce):
        return Integers(averaging)
    raise InputError(
        f"averaging {name_of(averaging)!r} cannot be masked: masks cancel only in plain sums, and it weights what it "
        f"receives. Use tree, allreduce or integers."
    )


def add_masks(network: Network) -> None:
    """Give the nodes in this process their masks: those of the transport, or from keys made for this network.

    Public keys reach all nodes by one exchange of maxima. They are not signed, so this does not protect against nodes
    that forge messages; the sites of ``eigenmesh site run`` sign their keys.
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


def key_exchange(n_nodes: int) -> NetworkCall:
    """The network call of ``add_masks`` if the transport provides no masks."""
    return NetworkCall(compared=8 * n_nodes * words_for(KEY_BYTES))
