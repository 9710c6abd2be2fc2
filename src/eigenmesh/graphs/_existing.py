"""Graphs from networkx or from a file, and the checks of any graph."""

import itertools
import os
import re
from collections.abc import Collection, Hashable
from pathlib import Path

import networkx as nx

from eigenmesh.errors import GraphError, UnreadableFileError

NAMED_IN_MESSAGES = 5


def from_networkx(graph: nx.Graph) -> nx.Graph:
    """Copy of an undirected simple graph on the nodes 0..M-1, in its node order.

    The node attribute "name" keeps the old name of a node.
    """
    require_simple(graph)
    return nx.convert_node_labels_to_integers(nx.Graph(graph), label_attribute="name")


def from_edge_list(path: str | os.PathLike[str]) -> nx.Graph:
    """Graph of a text file, one link per line: two names, separated by white space or a comma; # starts a comment.

    Nodes are numbered 0..M-1 in the order of their names if all names are whole numbers, otherwise as they first
    appear. The node attribute "name" keeps the name, a string.
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
    ordered = nx.Graph()
    ordered.add_nodes_from(names)
    ordered.add_edges_from(links.edges)
    return from_networkx(ordered)


def require_simple(graph: nx.Graph) -> None:
    """Raise GraphError unless the graph is undirected, with nodes, without parallel links and self-loops."""
    if not isinstance(graph, nx.Graph):
        raise GraphError(f"the graph is a {type(graph).__name__}; give a networkx.Graph.")
    if graph.is_directed():
        raise GraphError("the graph is directed, but links must work both ways; use graph.to_undirected().")
    if graph.is_multigraph():
        raise GraphError("the graph is a multigraph, but two nodes share one link; use networkx.Graph(graph).")
    if not graph:
        raise GraphError("the graph has 0 nodes; give at least 1.")
    loops = list(nx.nodes_with_selfloops(graph))
    if loops:
        raise GraphError(
            f"{len(loops)} nodes are linked to themselves ({_some(graph, loops)}); "
            "use graph.remove_edges_from(networkx.selfloop_edges(graph))."
        )


def require_numbered(graph: nx.Graph) -> None:
    """Raise GraphError unless the nodes are 0..M-1."""
    n_nodes = graph.number_of_nodes()
    numbers = set(range(n_nodes))
    unknown = next((node for node in graph if node not in numbers), None)
    if unknown is not None:
        raise GraphError(
            f"nodes must be numbered 0 to {n_nodes - 1}, but one is called {unknown!r}; "
            "number them with eigenmesh.graphs.from_networkx(graph)."
        )


def require_connected(graph: nx.Graph) -> None:
    """Raise GraphError unless there is a path between any two nodes."""
    require_simple(graph)
    components = sorted(nx.connected_components(graph), key=len, reverse=True)
    if len(components) == 1:
        return
    isolated = list(nx.isolates(graph))
    smallest = f"without any link: {_some(graph, isolated)}"
    if not isolated:
        smallest = f"the smallest has: {_some(graph, components[-1])}"
    found = f"the graph has {len(components)} components, 1 is needed ({smallest})"
    raise GraphError(f"{found}; add links between the components.")


def _some(graph: nx.Graph, nodes: Collection[Hashable]) -> str:
    """First few of the nodes, by the names they were given."""
    names = [str(graph.nodes[node].get("name", node)) for node in itertools.islice(nodes, NAMED_IN_MESSAGES)]
    return ", ".join(names) + (f" and {len(nodes) - len(names)} more" if len(nodes) > len(names) else "")


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise UnreadableFileError(f"{path} does not exist; give the path of a text file of links.") from error
    except OSError as error:
        raise UnreadableFileError(
            f"{path} cannot be read: {error.strerror}; give a readable text file of links."
        ) from error
    except UnicodeDecodeError as error:
        raise UnreadableFileError(
            f"{path} is not UTF-8 text (byte {error.start}); give a text file with one link per line."
        ) from error


def _parse_link(content: str, where: str) -> tuple[str, str]:
    """The two names in a line that is not empty and not a comment."""
    names = re.split(r"\s*,\s*|\s+", content)
    if len(names) != 2 or not all(names):
        raise GraphError(f"{where}: {content!r} is not a link; write two names separated by a space or a comma.")
    if names[0] == names[1]:
        raise GraphError(f"{where}: {content!r} links a node to itself; remove the line.")
    return names[0], names[1]
