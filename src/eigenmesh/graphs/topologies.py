"""Topologies: each is a function of the number of nodes that returns a graph on the nodes 0..M-1."""

from __future__ import annotations

import math
import operator
import os
import random
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eigenmesh.errors import AtFirstUse, GraphError, UnreadableFileError, file_errors
from eigenmesh.words import listed, lookup

if TYPE_CHECKING:
    import networkx as nx
else:
    nx = AtFirstUse("networkx")


# Graphs from networkx or from a file, and checks of a graph.


NAMED_IN_MESSAGES = 5


def from_networkx(graph: nx.Graph) -> nx.Graph:
    """Copy of a simple graph with the nodes 0..M-1, where the links of a ``networkx.DiGraph`` are one-way.

    Nodes that are whole numbers are taken in their order, whatever the order in which they were added. Others are in
    the order of the graph. The node attribute "name" keeps the old name of a node.

    Parameters
    ----------
    graph : networkx.Graph or networkx.DiGraph
        The graph, whose nodes may have any names.
    """
    require_simple(graph)
    names = sorted(graph) if all(isinstance(name, Integral) for name in graph) else list(graph)
    numbers = {name: number for number, name in enumerate(names)}
    numbered = (nx.DiGraph if graph.is_directed() else nx.Graph)(**graph.graph)
    numbered.add_nodes_from((numbers[name], {**graph.nodes[name], "name": name}) for name in names)
    numbered.add_edges_from((numbers[one], numbers[other], facts) for one, other, facts in graph.edges(data=True))
    return numbered


def from_edge_list(path: str | os.PathLike[str]) -> nx.Graph:
    """Graph from a text file with one link per line: two names separated by white space or a comma; # starts a comment.

    Nodes are numbered 0..M-1 in the order of their names if all names are whole numbers, otherwise in the order of
    their first appearance. The node attribute "name" keeps the name, a string.

    Parameters
    ----------
    path : str or path
        The text file.
    """
    links = nx.Graph()
    for number, line in enumerate(_read_text(Path(path)).splitlines(), start=1):
        content = line.partition("#")[0].strip()
        if content:
            links.add_edge(*_parse_link(content, f"{path}, line {number}"))
    if not links:
        raise GraphError(f"{path} has no links; write one per line, two names separated by a space or a comma.")
    names = list(links)
    if all(re.fullmatch(r"[+-]?\d+", name) for name in names):
        names.sort(key=int)
    return from_networkx(graph_of(names, links.edges))


def in_order_of(graph: nx.Graph, names: Sequence[str] | None) -> nx.Graph:
    """The graph with its nodes in the order of ``names`` if these are its node names, otherwise unchanged."""
    own_names = [str(graph.nodes[node].get("name")) for node in range(graph.number_of_nodes())]
    if names is None or len(set(names)) != len(names) or set(own_names) != set(names):
        return graph
    links = [(own_names[a], own_names[b]) for a, b in graph.edges]
    return from_networkx(graph_of(names, links, one_way=graph.is_directed()))


def graph_of(nodes: Iterable[Hashable], links: Iterable[tuple[Hashable, Hashable]], one_way: bool = False) -> nx.Graph:
    """Graph with its nodes in this order, where a one-way link is a pair (sender, receiver)."""
    graph = nx.DiGraph() if one_way else nx.Graph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from(links)
    return graph


def require_simple(graph: nx.Graph) -> None:
    """Raise GraphError unless the graph has nodes, no parallel links and no self-loops."""
    if not isinstance(graph, nx.Graph):
        raise GraphError(f"the graph is a {type(graph).__name__}; give a networkx.Graph or networkx.DiGraph.")
    if graph.is_multigraph():
        simple = "networkx.DiGraph" if graph.is_directed() else "networkx.Graph"
        raise GraphError(f"the graph is a multigraph, but two nodes share one link; use {simple}(graph).")
    if not graph:
        raise GraphError("the graph has 0 nodes; give at least 1.")
    if loops := list(nx.nodes_with_selfloops(graph)):
        some = _some(graph, loops)
        raise GraphError(f"{len(loops)} nodes are linked to themselves ({some}); drop networkx.selfloop_edges(graph).")


def require_both_ways(graph: nx.Graph, what: str) -> None:
    """Raise GraphError if links are one-way."""
    require_simple(graph)
    if graph.is_directed():
        fix = 'use weights="balanced", or a graph that is not directed if every link works both ways'
        raise GraphError(f"{what} need links that go both ways, but the graph is directed; {fix}.")


def require_connected(graph: nx.Graph) -> None:
    """Raise GraphError unless there is a path from any node to any other.

    Parameters
    ----------
    graph : networkx.Graph or networkx.DiGraph
        The graph to check.
    """
    require_simple(graph)
    if graph.is_directed():
        _require_strongly_connected(graph)
        return
    components = sorted(nx.connected_components(graph), key=len, reverse=True)
    if len(components) == 1:
        return
    isolated = list(nx.isolates(graph))
    some = f"{'without any link' if isolated else 'the smallest has'}: {_some(graph, isolated or components[-1])}"
    raise GraphError(f"the graph has {len(components)} components, 1 is needed ({some}); add links between them.")


def _require_strongly_connected(graph: nx.DiGraph) -> None:
    parts = nx.condensation(graph)
    if len(parts) == 1:
        return
    # In topological order, links go only from a part to later parts.
    order, places = list(nx.topological_sort(parts)), {node: place for place, node in enumerate(graph)}
    named = [_some(graph, sorted(parts.nodes[part]["members"], key=places.__getitem__)) for part in order]
    shown = named if len(named) <= NAMED_IN_MESSAGES else [*named[: NAMED_IN_MESSAGES - 1], "...", named[-1]]
    parts_found = f"the directed graph has {len(order)} strongly connected parts, 1 is needed: {'; '.join(shown)}"
    raise GraphError(f"{parts_found}. No links lead from a later part back to an earlier one; add some.")


def _some(graph: nx.Graph, nodes: Collection[Hashable]) -> str:
    """Names of the first few nodes."""
    return listed([graph.nodes[node].get("name", node) for node in nodes], NAMED_IN_MESSAGES)


def _read_text(path: Path) -> str:
    try:
        with file_errors(f"{path} cannot be read", "give the path of a text file of links"):
            return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableFileError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8.") from error


def _parse_link(content: str, where: str) -> tuple[str, str]:
    """The two names in a line that is neither empty nor a comment."""
    names = re.split(r"\s*,\s*|\s+", content)
    if len(names) != 2 or not all(names):
        raise GraphError(f"{where}: {content!r} is not a link; write two names separated by a space or a comma.")
    if names[0] == names[1]:
        raise GraphError(f"{where}: {content!r} links a node to itself; remove the line.")
    return names[0], names[1]


def is_edge_list(topology: Any) -> bool:
    """Whether the topology is a list of pairs of nodes, as in ``[("oslo", "bergen"), ("bergen", "bodo")]``."""
    if not isinstance(topology, list | tuple | set) or not topology:
        return False
    return all(isinstance(link, tuple) and len(link) == 2 for link in topology) and all(
        isinstance(node, str | Integral) for link in topology for node in link
    )


# Most draws of a random graph until one is connected.
DRAWS = 100
DEFAULT_DEGREE = 4
# The default probability of a link between two nodes, which falls with more than this number of nodes.
DENSE_P, DENSE_UP_TO = 0.5, 50
DEFAULT_OUT_DEGREE = 3


def erdos_renyi(n_nodes: int, p: float | None = None, seed: int = 0) -> nx.Graph:
    """Each of the M(M-1)/2 links exists with probability p. The graph is drawn again until connected.

    The default p is 0.5 up to 50 nodes, and (log(M) + 21.1) / M beyond: 28 links per node of 1,000, and 32 of 100,000.
    By the limit law of Erdos and Renyi, such a draw is not connected with probability ``exp(-21.1)``, about 1e-9.

    Parameters
    ----------
    n_nodes : int
        M, the number of nodes.
    p : float, optional
        Probability of each link.
    seed : int
        Seed of the draws.
    """
    n_nodes = _count(n_nodes)
    if p is None:
        p = min(DENSE_P, (math.log(n_nodes) + DENSE_P * DENSE_UP_TO - math.log(DENSE_UP_TO)) / n_nodes)
    _require_probability(p)
    setting = f"p={p}; connectivity needs p of about log(M)/M = {math.log(n_nodes) / n_nodes:.3g}"
    return _draw_connected(lambda rng: nx.fast_gnp_random_graph(n_nodes, p, seed=rng), n_nodes, seed, setting)


def cycle(n_nodes: int) -> nx.Graph:
    """Ring: i is linked to i + 1 mod M, so the diameter is M // 2.

    Parameters
    ----------
    n_nodes : int
        M, the number of nodes.
    """
    return _ring(n_nodes, nx.Graph)


def path(n_nodes: int) -> nx.Graph:
    """Line: i is linked to i + 1, so the diameter is M - 1, the largest possible.

    Parameters
    ----------
    n_nodes : int
        M, the number of nodes.
    """
    return nx.path_graph(_count(n_nodes))


def star(n_nodes: int) -> nx.Graph:
    """Node 0 is linked to all others, so the diameter is 2.

    Parameters
    ----------
    n_nodes : int
        M, the number of nodes.
    """
    return nx.star_graph(_count(n_nodes) - 1)


def complete(n_nodes: int) -> nx.Graph:
    """Every node is linked to every other, so the diameter is 1.

    Parameters
    ----------
    n_nodes : int
        M, the number of nodes.
    """
    return nx.complete_graph(_count(n_nodes))


def grid(n_nodes: int) -> nx.Graph:
    """Square lattice in rows of ceil(sqrt(M)) nodes. The last row is shorter if M does not fill it.

    Parameters
    ----------
    n_nodes : int
        M, the number of nodes.
    """
    n_nodes = _count(n_nodes)
    columns = math.isqrt(n_nodes - 1) + 1
    along = ((node, node + 1) for node in range(n_nodes - 1) if (node + 1) % columns)
    across = ((node, node + columns) for node in range(n_nodes - columns))
    return graph_of(range(n_nodes), (*along, *across))


def hypercube(n_nodes: int) -> nx.Graph:
    """Nodes whose numbers differ in one bit are linked. M is a power of two, 2^n, and the diameter n.

    Parameters
    ----------
    n_nodes : int
        M, a power of two.
    """
    n_nodes = _count(n_nodes)
    dimension = n_nodes.bit_length() - 1
    if n_nodes != 2**dimension:
        near = f"{2**dimension} and {2 ** (dimension + 1)}"
        raise GraphError(f"n_nodes={n_nodes} must be a power of two for a hypercube; the nearest are {near}.")
    flips = [2**bit for bit in range(dimension)]
    return graph_of(range(n_nodes), ((node, node ^ flip) for node in range(n_nodes) for flip in flips))


def regular(n_nodes: int, degree: int | None = None, seed: int = 0) -> nx.Graph:
    """Random graph in which every node has ``degree`` links. It is drawn again until connected.

    The default degree is 4, or M - 1 if that is less.

    Parameters
    ----------
    n_nodes : int
        M, the number of nodes.
    degree : int, optional
        Links of each node.
    seed : int
        Seed of the draws.
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
    """Random points in the unit square, linked if closer than ``radius``. They are drawn again until connected.

    The default radius is sqrt(log(M) / M), which is sqrt(pi) times the connectivity threshold. The node attribute "pos"
    is the point.

    Parameters
    ----------
    n_nodes : int
        M, the number of nodes.
    radius : float, optional
        Distance below which two points are linked.
    seed : int
        Seed of the draws.
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

    Drawn again until connected. The degree must be even. The default is 4, or the largest even number below M if that
    is less.

    Parameters
    ----------
    n_nodes : int
        M, the number of nodes.
    degree : int, optional
        Links of each node before any is rewired.
    p : float
        Probability that a link is rewired.
    seed : int
        Seed of the draws.
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
    """Node i > 0 is linked to its parent, node (i - 1) // 2.

    Parameters
    ----------
    n_nodes : int
        M, the number of nodes.
    """
    return nx.full_rary_tree(2, _count(n_nodes))


def exponential(n_nodes: int) -> nx.Graph:
    """Node i is linked to i + 2^j mod M for all 2^j < M: about 2 log2(M) links per node.

    Parameters
    ----------
    n_nodes : int
        M, the number of nodes.
    """
    n_nodes = _count(n_nodes)
    hops = [2**power for power in range((n_nodes - 1).bit_length())]
    return graph_of(range(n_nodes), ((node, (node + hop) % n_nodes) for node in range(n_nodes) for hop in hops))


def directed_cycle(n_nodes: int) -> nx.DiGraph:
    """One-way ring: i sends to i + 1 mod M, so the diameter is M - 1.

    Parameters
    ----------
    n_nodes : int
        M, the number of nodes.
    """
    return _ring(n_nodes, nx.DiGraph)


def directed_chords(n_nodes: int, chords: int | None = None, seed: int = 0) -> nx.DiGraph:
    """One-way ring with random one-way chords, by default M // 2 of them.

    Parameters
    ----------
    n_nodes : int
        M, the number of nodes.
    chords : int, optional
        Number of chords.
    seed : int
        Seed of the draws.
    """
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

    Parameters
    ----------
    n_nodes : int
        M, the number of nodes.
    degree : int, optional
        Number of nodes that each node sends to.
    seed : int
        Seed of the draws.
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
    """Topology with this name and its default settings. The seed is used if it is random.

    Parameters
    ----------
    name : str
        Name of the topology, in any spelling.
    n_nodes : int
        M, the number of nodes.
    seed : int
        Seed of a random topology.
    """
    build = lookup("topology", name, TOPOLOGIES)
    return build(n_nodes, seed=seed) if build in RANDOM else build(n_nodes)


def _draw_connected(draw: Callable[[random.Random], nx.Graph], n_nodes: int, seed: int, setting: str) -> nx.Graph:
    """First connected graph of a seeded sequence of draws, its nodes in the order 0..M-1."""
    rng = random.Random(_whole("seed", seed))
    for _ in range(DRAWS):
        drawn = draw(rng)
        if nx.is_connected(drawn):
            if list(drawn) == list(range(n_nodes)):
                return drawn
            graph = graph_of(range(n_nodes), drawn.edges)
            graph.add_nodes_from(drawn.nodes(data=True))
            return graph
    raise GraphError(f"none of {DRAWS} draws on {n_nodes} nodes was connected with {setting}.")


def _ring(n_nodes: int, kind: type[nx.Graph]) -> nx.Graph:
    # The ring of networkx links a single node to itself.
    build = nx.cycle_graph if _count(n_nodes) > 1 else nx.empty_graph
    return build(n_nodes, create_using=kind)


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
