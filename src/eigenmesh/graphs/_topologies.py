"""Topologies: each is a function of the number of nodes that returns a graph on the nodes 0..M-1."""

import math
import operator
import random
from collections.abc import Callable

import networkx as nx

from eigenmesh._lookup import lookup
from eigenmesh.errors import GraphError
from eigenmesh.graphs._existing import graph_of

# Most draws of a random graph until one is connected.
DRAWS = 100
DEFAULT_DEGREE = 4
DEFAULT_OUT_DEGREE = 3


def erdos_renyi(n_nodes: int, p: float = 0.5, seed: int = 0) -> nx.Graph:
    """Each of the M(M-1)/2 links exists with probability p; drawn again until connected."""
    n_nodes = _count(n_nodes)
    _require_probability(p)
    setting = f"p={p}; connectivity needs p of about log(M)/M = {math.log(n_nodes) / n_nodes:.3g}"
    return _draw_connected(lambda rng: nx.fast_gnp_random_graph(n_nodes, p, seed=rng), n_nodes, seed, setting)


def cycle(n_nodes: int) -> nx.Graph:
    """Ring: i is linked to i + 1 mod M; diameter M // 2."""
    n_nodes = _count(n_nodes)
    return graph_of(range(n_nodes), ((node, (node + 1) % n_nodes) for node in range(n_nodes) if n_nodes > 1))


def path(n_nodes: int) -> nx.Graph:
    """Line: i is linked to i + 1; diameter M - 1, the largest possible."""
    n_nodes = _count(n_nodes)
    return graph_of(range(n_nodes), ((node, node + 1) for node in range(n_nodes - 1)))


def star(n_nodes: int) -> nx.Graph:
    """Node 0 is linked to all others; diameter 2."""
    n_nodes = _count(n_nodes)
    return graph_of(range(n_nodes), ((0, node) for node in range(1, n_nodes)))


def complete(n_nodes: int) -> nx.Graph:
    """Every node is linked to every other; diameter 1."""
    return nx.complete_graph(_count(n_nodes))


def grid(n_nodes: int) -> nx.Graph:
    """Square lattice in rows of ceil(sqrt(M)) nodes; the last row is shorter if M does not fill it."""
    n_nodes = _count(n_nodes)
    columns = math.isqrt(n_nodes - 1) + 1
    along = ((node, node + 1) for node in range(n_nodes - 1) if (node + 1) % columns)
    across = ((node, node + columns) for node in range(n_nodes - columns))
    return graph_of(range(n_nodes), (*along, *across))


def hypercube(n_nodes: int) -> nx.Graph:
    """Nodes whose numbers differ in one bit are linked; M = 2^n, diameter n."""
    n_nodes = _count(n_nodes)
    dimension = n_nodes.bit_length() - 1
    if n_nodes != 2**dimension:
        near = f"{2**dimension} and {2 ** (dimension + 1)}"
        raise GraphError(f"n_nodes={n_nodes} must be a power of two for a hypercube; the nearest are {near}.")
    flips = [2**bit for bit in range(dimension)]
    return graph_of(range(n_nodes), ((node, node ^ flip) for node in range(n_nodes) for flip in flips))


def regular(n_nodes: int, degree: int | None = None, seed: int = 0) -> nx.Graph:
    """Random graph in which every node has ``degree`` links; drawn again until connected.

    The default degree is 4, or M - 1 if that is less.
    """
    n_nodes = _count(n_nodes)
    degree = _degree(degree, DEFAULT_DEGREE, n_nodes)
    if n_nodes * degree % 2:
        raise GraphError(f"degree={degree} must be even for an odd number of nodes ({n_nodes}); take {degree - 1}.")
    # Drawing few links is fast, drawing nearly all is slow: then draw the missing ones instead.
    sparse = 2 * degree <= n_nodes - 1

    def draw(rng: random.Random) -> nx.Graph:
        drawn = nx.random_regular_graph(degree if sparse else n_nodes - 1 - degree, n_nodes, seed=rng)
        return drawn if sparse else nx.complement(drawn)

    return _draw_connected(draw, n_nodes, seed, f"degree={degree}; from 3 on nearly every draw is connected")


def random_geometric(n_nodes: int, radius: float | None = None, seed: int = 0) -> nx.Graph:
    """Random points in the unit square, linked if closer than ``radius``; drawn again until connected.

    The default radius is sqrt(log(M) / M), which is sqrt(pi) times the connectivity threshold. The node attribute "pos"
    is the point.
    """
    n_nodes = _count(n_nodes)
    threshold = math.sqrt(math.log(n_nodes) / n_nodes)
    radius = threshold if radius is None else radius
    if not 0 <= radius < math.inf:
        raise GraphError(f"radius={radius} must be a finite number of at least 0, for example {threshold:.3g}.")
    setting = f"radius={radius:.3g}; connectivity needs a radius of about sqrt(log(M)/M) = {threshold:.3g}"
    return _draw_connected(lambda rng: nx.random_geometric_graph(n_nodes, radius, seed=rng), n_nodes, seed, setting)


def small_world(n_nodes: int, degree: int | None = None, p: float = 0.3, seed: int = 0) -> nx.Graph:
    """Watts-Strogatz: a ring linked to the ``degree`` nearest nodes, each link rewired with probability p.

    Drawn again until connected. The degree must be even; the default is 4, or the largest even number below M if that
    is less.
    """
    n_nodes = _count(n_nodes)
    _require_probability(p)
    largest = (n_nodes - 1) // 2 * 2
    if degree is None and n_nodes <= 2:
        return complete(n_nodes)
    degree = min(DEFAULT_DEGREE, largest) if degree is None else _whole("degree", degree)
    if degree % 2 or not min(2, n_nodes - 1) <= degree <= largest:
        raise GraphError(f"degree={degree} must be even and from 2 to {largest} for a small world of {n_nodes} nodes.")
    setting = f"degree={degree}, p={p}; raise the degree or lower p"
    return _draw_connected(lambda rng: nx.watts_strogatz_graph(n_nodes, degree, p, seed=rng), n_nodes, seed, setting)


def binary_tree(n_nodes: int) -> nx.Graph:
    """Node i > 0 is linked to its parent, node (i - 1) // 2."""
    n_nodes = _count(n_nodes)
    return graph_of(range(n_nodes), (((node - 1) // 2, node) for node in range(1, n_nodes)))


def exponential(n_nodes: int) -> nx.Graph:
    """Node i is linked to i + 2^j mod M for all 2^j < M: about 2 log2(M) links per node."""
    n_nodes = _count(n_nodes)
    hops = [2**power for power in range((n_nodes - 1).bit_length())]
    return graph_of(range(n_nodes), ((node, (node + hop) % n_nodes) for node in range(n_nodes) for hop in hops))


def directed_cycle(n_nodes: int) -> nx.DiGraph:
    """One-way ring: i sends to i + 1 mod M; diameter M - 1."""
    n_nodes = _count(n_nodes)
    pairs = ((node, (node + 1) % n_nodes) for node in range(n_nodes) if n_nodes > 1)
    return graph_of(range(n_nodes), pairs, one_way=True)


def directed_chords(n_nodes: int, chords: int | None = None, seed: int = 0) -> nx.DiGraph:
    """One-way ring with random one-way chords, by default M // 2 of them."""
    graph = directed_cycle(n_nodes)
    absent = sorted(nx.non_edges(graph))
    chords = min(len(graph) // 2, len(absent)) if chords is None else _whole("chords", chords)
    if not 0 <= chords <= len(absent):
        raise GraphError(f"chords={chords} must be from 0 to {len(absent)} on {len(graph)} nodes.")
    graph.add_edges_from(random.Random(_whole("seed", seed)).sample(absent, chords))
    return graph


def random_out(n_nodes: int, degree: int | None = None, seed: int = 0) -> nx.DiGraph:
    """Each node sends to ``degree`` others: to the next on a random one-way ring, and to others drawn at random.

    The default degree is 3, or M - 1 if that is less.
    """
    n_nodes = _count(n_nodes)
    degree = _degree(degree, DEFAULT_OUT_DEGREE, n_nodes)
    rng = random.Random(_whole("seed", seed))
    ring = rng.sample(range(n_nodes), n_nodes)
    graph = graph_of(range(n_nodes), [], one_way=True)
    for node, next_on_ring in zip(ring, [*ring[1:], ring[0]], strict=True):
        others = [other for other in range(n_nodes) if other not in (node, next_on_ring)]
        receivers = [next_on_ring, *rng.sample(others, degree - 1)] if n_nodes > 1 else []
        graph.add_edges_from((node, receiver) for receiver in receivers)
    return graph


RANDOM = (erdos_renyi, regular, random_geometric, small_world, directed_chords, random_out)
FIXED = (cycle, path, star, complete, grid, hypercube, binary_tree, exponential, directed_cycle)
ONE_WAY = (directed_cycle, directed_chords, random_out)
TOPOLOGIES: dict[str, Callable[..., nx.Graph]] = {build.__name__: build for build in (*RANDOM, *FIXED)}
# Topologies with two-way links.
TWO_WAY = {name: build for name, build in TOPOLOGIES.items() if build not in ONE_WAY}


def by_name(name: str, n_nodes: int, seed: int = 0) -> nx.Graph:
    """Topology with this name and its default settings; the seed is used if it is random."""
    build = lookup("topology", name, TOPOLOGIES)
    return build(n_nodes, seed=seed) if build in RANDOM else build(n_nodes)


def _draw_connected(draw: Callable[[random.Random], nx.Graph], n_nodes: int, seed: int, setting: str) -> nx.Graph:
    """First connected graph of a seeded sequence of draws, its nodes in the order 0..M-1."""
    rng = random.Random(_whole("seed", seed))
    for _ in range(DRAWS):
        drawn = draw(rng)
        if nx.is_connected(drawn):
            graph = graph_of(range(n_nodes), drawn.edges)
            graph.add_nodes_from(drawn.nodes(data=True))
            return graph
    raise GraphError(f"none of {DRAWS} draws on {n_nodes} nodes was connected with {setting}.")


def _count(n_nodes: int) -> int:
    count = _whole("n_nodes", n_nodes)
    if count < 1:
        raise GraphError(f"n_nodes={count} must be at least 1.")
    return count


def _degree(degree: int | None, default: int, n_nodes: int) -> int:
    """Links per node: as given, else the default or, if that is too large, M - 1."""
    fewest, most = min(1, n_nodes - 1), n_nodes - 1
    degree = min(default, most) if degree is None else _whole("degree", degree)
    if not fewest <= degree <= most:
        raise GraphError(f"degree={degree} must be from {fewest} to {most} for {n_nodes} nodes.")
    return degree


def _whole(name: str, value: int) -> int:
    try:
        return operator.index(value)
    except TypeError as error:
        raise GraphError(f"{name}={value!r} must be a whole number.") from error


def _require_probability(p: float) -> None:
    if not 0 <= p <= 1:
        raise GraphError(f"p={p} must be a probability, from 0 to 1.")
