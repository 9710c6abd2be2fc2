"""Networks over time: who sends to whom in each round, with which weights, and how reliably."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np

from eigenmesh.arrays import is_sparse
from eigenmesh.errors import AtFirstUse, GraphError
from eigenmesh.graphs.topologies import complete, graph_of, require_simple
from eigenmesh.graphs.weights import Weights, adjacency, digest_of

if TYPE_CHECKING:
    import networkx as nx
else:
    nx = AtFirstUse("networkx")


# Links of one round: (M, M), true where the node of the column sends to the node of the row.
Links = np.ndarray
# Number of rounds whose links nodes compare before a fit.
COMPARED_ROUNDS = 16


@dataclass(frozen=True)
class NetworkSequence:
    """A network that changes from round to round, or loses messages.

    Each round has its own weights, for which a node only needs to know its current links. Two-way links have Metropolis
    weights, ``1 / (1 + max(deg_i, deg_j))``, and one-way links have ``1 / (1 + out-degree_j)``. In both cases the
    columns sum to one.

    Attributes
    ----------
    n_nodes : int
        M.
    links_at : callable
        Function of the round, counted from 0, that returns the links (M, M), true where the node of the column sends to
        that of the row, or a networkx graph of the nodes 0..M-1. Any number but 0 is a link. It must return the same
        links at every node.
    one_way : bool
        True if links are one-way.
    loss : float
        Share of the messages that never arrive.
    delay : int
        Largest delay of a message in rounds. All delays from 0 on are equally likely. Late messages may be reordered.
    duplicates : float
        Share of the messages that arrive twice. The copy has a delay of its own.
    seed : int
        Seed of loss, delay and duplicates.
    """

    n_nodes: int
    links_at: Callable[[int], Links | nx.Graph]
    one_way: bool = False
    loss: float = 0.0
    delay: int = 0
    duplicates: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (isinstance(self.n_nodes, Integral) and self.n_nodes >= 1):
            raise GraphError(f"n_nodes={self.n_nodes!r} must be a whole number of at least 1.")
        if not callable(self.links_at):
            what = f"links_at={self.links_at!r} must be a function of the round"
            raise GraphError(f"{what}; for a network that stays the same use over_time(graph).")
        if not (isinstance(self.loss, Real) and 0 <= self.loss < 1):
            raise GraphError(f"loss={self.loss!r} must be at least 0 and below 1: some messages have to arrive.")
        if not (isinstance(self.duplicates, Real) and 0 <= self.duplicates <= 1):
            raise GraphError(f"duplicates={self.duplicates!r} must be a share, from 0 to 1.")
        if not (isinstance(self.delay, Integral) and self.delay >= 0):
            raise GraphError(f"delay={self.delay!r} must be a whole number of rounds, 0 or more.")

    @property
    def reliable(self) -> bool:
        """Whether every message arrives, once and in its round."""
        return self.loss == self.delay == self.duplicates == 0

    @property
    def summary(self) -> dict[str, Any]:
        """Settings and a digest of the first rounds as JSON values, for a comparison between nodes."""
        settings = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "links_at"}
        first = np.stack([self.weights_at(round_) for round_ in range(COMPARED_ROUNDS)])
        return {**settings, "weights": digest_of(first.reshape(-1, self.n_nodes))[:16]}

    def weights_at(self, round_: int) -> np.ndarray:
        """Weights W(t) of a round: (M, M), columns sum to one. Nodes may have no link at all."""
        links = _links_of(self.links_at(round_), round_)
        if links.shape != (self.n_nodes, self.n_nodes):
            raise GraphError(f"round {round_} has links of shape {links.shape}; there are {self.n_nodes} nodes.")
        if not self.one_way and (links != links.T).any():
            raise GraphError(f"round {round_} has one-way links; set one_way=True.")
        links = links & ~np.eye(self.n_nodes, dtype=bool)
        sends = links.sum(axis=0)
        shares = 1.0 / (1.0 + (sends[np.newaxis] if self.one_way else np.maximum(sends[:, np.newaxis], sends)))
        weights = np.where(links, shares, 0.0)
        np.fill_diagonal(weights, 1.0 - weights.sum(axis=0))
        return np.asarray(weights)

    def arrivals(self, round_: int) -> list[np.ndarray]:
        """Delays in rounds of the messages of this round, -1 if lost: (M, M) for originals and for duplicates."""
        rng, shape = np.random.default_rng([self.seed, round_]), (self.n_nodes, self.n_nodes)
        copies = []
        for share in (1.0, self.duplicates):
            late = rng.integers(0, self.delay + 1, shape) if self.delay else np.zeros(shape, dtype=int)
            arrives = (rng.random(shape) < share) & (rng.random(shape) >= self.loss)
            copies.append(np.where(arrives, late, -1))
        return copies[: 2 if self.duplicates else 1]


def _links_of(given: Any, round_: int) -> Links:
    """The links that ``links_at`` returned for a round, (M, M), from a graph or a matrix of numbers, 0 for no link."""
    if isinstance(given, nx.Graph):
        return np.asarray(adjacency(given).toarray() > 0)
    try:
        links = np.asarray(given.toarray() if is_sparse(given) else given)
    except ValueError:
        links = np.array(None)
    if links.dtype.kind not in "biuf" or not np.isfinite(links).all():
        fix = "give a networkx graph, or a matrix (M, M) of true and false"
        raise GraphError(f"links_at({round_}) gives a {type(given).__name__} that is no links; {fix}.")
    return np.asarray(links != 0)


def over_time(network: nx.Graph | Weights | NetworkSequence) -> NetworkSequence:
    """A graph as a network sequence that does not change.

    Parameters
    ----------
    network : networkx.Graph, Weights or NetworkSequence
        A network, where a sequence is returned as it is.
    """
    if isinstance(network, NetworkSequence):
        return network
    graph = network.graph if isinstance(network, Weights) else network
    require_simple(graph)
    links = adjacency(graph).toarray() > 0
    return NetworkSequence(len(graph), lambda round_: links, one_way=graph.is_directed())


def lossy(
    network: nx.Graph | Weights | NetworkSequence,
    loss: float = 0.1,
    delay: int = 0,
    duplicates: float = 0.0,
    seed: int = 0,
) -> NetworkSequence:
    """The network with messages that get lost, arrive late, out of order or twice.

    Parameters
    ----------
    network : networkx.Graph, Weights or NetworkSequence
        The network, whose own losses are replaced.
    loss : float
        Share of the messages that never arrive.
    delay : int
        Largest delay of a message in rounds.
    duplicates : float
        Share of the messages that arrive twice.
    seed : int
        Seed of loss, delay and duplicates.
    """
    return replace(over_time(network), loss=loss, delay=delay, duplicates=duplicates, seed=seed)


def links_up(network: nx.Graph | Weights | NetworkSequence, probability: float = 0.7, seed: int = 0) -> NetworkSequence:
    """Each link works in each round with this probability, independently of all others.

    Parameters
    ----------
    network : networkx.Graph, Weights or NetworkSequence
        The network whose links come and go.
    probability : float
        Probability that a link works in a round.
    seed : int
        Seed of the draws.
    """
    if not (isinstance(probability, Real) and 0 < probability <= 1):
        raise GraphError(f"probability={probability!r} must be above 0 and at most 1.")
    whole = over_time(network)

    def links_at(round_: int) -> Links:
        drawn = np.random.default_rng([seed, round_]).random((whole.n_nodes, whole.n_nodes)) < probability
        # A two-way link works in both directions or not at all.
        up = drawn if whole.one_way else np.triu(drawn, 1) | np.triu(drawn, 1).T
        return np.asarray((whole.weights_at(round_) > 0) & up)

    return replace(whole, links_at=links_at)


def fresh_graphs(n_nodes: int, p: float = 0.2, seed: int = 0, one_way: bool = False) -> NetworkSequence:
    """A new graph every round, each pair linked with probability p, which need not be connected.

    Parameters
    ----------
    n_nodes : int
        M, the number of nodes.
    p : float
        Probability that two nodes are linked in a round.
    seed : int
        Seed of the draws.
    one_way : bool
        Whether links are one-way.
    """
    whole = complete(n_nodes)
    return links_up(whole.to_directed() if one_way else whole, p, seed)


def periodic(networks: Sequence[nx.Graph]) -> NetworkSequence:
    """Graphs on the same nodes, in turn and repeated.

    Parameters
    ----------
    networks : sequence of networkx.Graph
        The graphs, one for each round of the period.
    """
    if not networks:
        raise GraphError("a periodic network needs at least 1 graph.")
    parts = [over_time(graph) for graph in networks]
    sizes = sorted({part.n_nodes for part in parts})
    if len(sizes) > 1:
        raise GraphError(f"the graphs of a periodic network have {sizes[0]} to {sizes[-1]} nodes; give all the same.")
    one_way = any(part.one_way for part in parts)
    links = [part.weights_at(0) > 0 for part in parts]
    return NetworkSequence(parts[0].n_nodes, lambda round_: links[round_ % len(links)], one_way=one_way)


def dealt_out(graph: nx.Graph, rounds: int = 5, seed: int = 0) -> NetworkSequence:
    """The links of a graph distributed at random over this many rounds: only all rounds together are connected.

    Parameters
    ----------
    graph : networkx.Graph or networkx.DiGraph
        The graph whose links are dealt out.
    rounds : int
        Number of rounds, after which the links are those of the first round again.
    seed : int
        Seed of the draws.
    """
    if not (isinstance(rounds, Integral) and rounds >= 1):
        raise GraphError(f"rounds={rounds!r} must be a whole number of at least 1.")
    links = list(graph.edges)
    order = np.random.default_rng(seed).permutation(len(links))
    hands = [[links[place] for place in order[start::rounds]] for start in range(rounds)]
    return periodic([graph_of(graph, hand, one_way=graph.is_directed()) for hand in hands])


def matchings(network: nx.Graph | Weights | NetworkSequence, seed: int = 0) -> NetworkSequence:
    """In each round every node has at most one partner, drawn from its links: pairwise gossip.

    Parameters
    ----------
    network : networkx.Graph, Weights or NetworkSequence
        The network from whose two-way links partners are drawn.
    seed : int
        Seed of the draws.
    """
    whole = over_time(network)
    if whole.one_way:
        raise GraphError("matchings need links that go both ways, but the graph is directed.")

    def links_at(round_: int) -> Links:
        links = np.argwhere(np.triu(whole.weights_at(round_) > 0, 1))
        matched = np.zeros((whole.n_nodes, whole.n_nodes), dtype=bool)
        taken: set[int] = set()
        for one, other in np.random.default_rng([seed, round_]).permutation(links).tolist():
            if taken.isdisjoint((one, other)):
                taken.update((one, other))
                matched[one, other] = matched[other, one] = True
        return matched

    return replace(whole, links_at=links_at)


# Cost of trees on networks that change or lose messages, where each message is resent until it arrives.


# Rounds from which the share of working links is estimated, and the longest wait that is considered.
SAMPLED_ROUNDS, LONGEST_WAIT = 128, 100_000


def tree_rounds(sequence: NetworkSequence) -> float:
    """Expected rounds of an average over a tree, up and down, which is infinite if the network is not connected.

    A link works in a round with a probability of the share of rounds in which it is up, times the share of messages
    that arrive. The root is the node with the smallest distances to and from its farthest nodes. A level of the tree
    waits for its slowest link.
    """
    from scipy.sparse import csgraph

    works = np.mean([sequence.weights_at(round_) > 0 for round_ in range(SAMPLED_ROUNDS)], axis=0) * (1 - sequence.loss)
    np.fill_diagonal(works, 0.0)
    # Senders in rows, the convention of csgraph; 0 means no link.
    waits = np.divide(1.0, works, out=np.zeros_like(works), where=works > 0).T
    away, towards = csgraph.dijkstra(waits), csgraph.dijkstra(waits.T)
    farthest = away.max(axis=1) + towards.max(axis=1)
    root = int(np.argmin(farthest))
    if not np.isfinite(farthest[root]):
        return np.inf
    return _tree_rounds(waits, root) + _tree_rounds(waits.T, root)


def _tree_rounds(waits: np.ndarray, root: int) -> float:
    """Expected rounds from the root to all nodes, summed over the levels of the tree of shortest waits (M, M)."""
    from scipy.sparse import csgraph

    _, before = csgraph.dijkstra(waits, indices=root, return_predecessors=True)
    tree = csgraph.reconstruct_path(waits, before).tocoo()
    depths = csgraph.dijkstra(tree, indices=root, unweighted=True)[tree.col]
    return sum(_slowest(1.0 / tree.data[depths == depth]) for depth in np.unique(depths))


def _slowest(shares: np.ndarray) -> float:
    """Expected rounds until links with these success probabilities, (links,), have all worked once."""
    expected, left = 0.0, np.ones_like(shares)
    for _ in range(LONGEST_WAIT):
        missing = 1.0 - float(np.prod(1.0 - left))
        expected += missing
        if missing < 1e-9:
            break
        left = left * (1.0 - shares)
    return expected
