"""Graphs from networkx or from a file, and checks of a graph."""

import itertools
import os
import re
from collections.abc import Collection, Hashable, Iterable, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

import networkx as nx

from eigenmesh.errors import GraphError, UnreadableFileError

NAMED_IN_MESSAGES = 5


def from_networkx(graph: nx.Graph) -> nx.Graph:
    """Copy of a simple graph with the nodes 0..M-1; the links of a ``networkx.DiGraph`` are one-way.

    Nodes that are whole numbers are taken in their order, whatever the order in which they were added; others in the
    order of the graph. The node attribute "name" keeps the old name of a node.
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
    """The graph with its nodes in the order of ``names`` if these are its node names; otherwise unchanged."""
    own_names = [str(graph.nodes[node].get("name")) for node in range(graph.number_of_nodes())]
    if names is None or len(set(names)) != len(names) or set(own_names) != set(names):
        return graph
    links = [(own_names[a], own_names[b]) for a, b in graph.edges]
    return from_networkx(graph_of(names, links, one_way=graph.is_directed()))


def graph_of(nodes: Iterable[Hashable], links: Iterable[tuple[Hashable, Hashable]], one_way: bool = False) -> nx.Graph:
    """Graph with its nodes in this order; a one-way link is a pair (sender, receiver)."""
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
    """Raise GraphError unless there is a path from any node to any other."""
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
    names = [str(graph.nodes[node].get("name", node)) for node in itertools.islice(nodes, NAMED_IN_MESSAGES)]
    return ", ".join(names) + (f" and {len(nodes) - len(names)} more" if len(nodes) > len(names) else "")


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise UnreadableFileError(f"{path} does not exist; give the path of a text file of links.") from error
    except OSError as error:
        raise UnreadableFileError(f"{path} cannot be read: {error.strerror}; give a text file of links.") from error
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
