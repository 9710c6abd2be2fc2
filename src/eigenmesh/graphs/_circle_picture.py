"""A small picture of a graph for notebooks: nodes on a circle, links as lines."""

import math
from collections.abc import Mapping
from html import escape
from typing import Any

import networkx as nx

SIZE, RADIUS = 300, 115
NOTHING: Mapping[frozenset[Any], int] = {}
# With more nodes, or more names, nothing could be seen.
MOST_NODES, MOST_NAMES = 500, 40


def circle_picture(graph: nx.Graph, sent: Mapping[frozenset[Any], int] = NOTHING) -> str:
    """An SVG of the graph; empty for a very large graph. A one-way link is thick at its receiver.

    The more bytes were ``sent`` over a link, the wider it is.
    """
    nodes = list(graph.nodes)
    if len(nodes) > MOST_NODES:
        return ""
    angles = {node: 2 * math.pi * place / len(nodes) - math.pi / 2 for place, node in enumerate(nodes)}
    places = {node: (_at(RADIUS, math.cos(angle)), _at(RADIUS, math.sin(angle))) for node, angle in angles.items()}
    lines, most = [], max(sent.values(), default=1) or 1
    for one, other in graph.edges:
        (x1, y1), (x2, y2) = places[one], places[other]
        width = 1 + 5 * math.sqrt(sent.get(frozenset((one, other)), 0) / most)
        lines.append(_line(x1, y1, x2, y2, width))
        if graph.is_directed():
            lines.append(_line(round(x2 + (x1 - x2) / 4, 1), round(y2 + (y1 - y2) / 4, 1), x2, y2, width + 2))
    dots = [
        f'<circle cx="{x}" cy="{y}" r="5"><title>{escape(str(node))}</title></circle>'
        for node, (x, y) in places.items()
    ]
    names = [
        f'<text x="{_at(RADIUS + 16, math.cos(angle))}" y="{_at(RADIUS + 16, math.sin(angle)) + 4}" font-size="11" '
        f'text-anchor="middle">{escape(str(node)[:12])}</text>'
        for node, angle in angles.items()
        if len(nodes) <= MOST_NAMES
    ]
    words = f"{len(nodes)} nodes and {graph.number_of_edges()} links"
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE} {SIZE}" width="{SIZE}" role="img"'
    shapes = "".join([*lines, *dots, *names])
    return f'{start} aria-label="{words}" style="background: white">{shapes}</svg>'


def _line(x1: float, y1: float, x2: float, y2: float, width: float) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#0072b2" stroke-width="{width:.1f}"/>'


def _at(radius: float, share: float) -> float:
    return round(SIZE / 2 + radius * share, 1)
