"""A picture of a network: its nodes and links."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np

from eigenmesh.graphs import Weights
from eigenmesh.report._names import BEHIND_NAMES, draw_name, part_names, short_names
from eigenmesh.report._pictures import TEXT_SIZE, matplotlib, new_figure, set_heading

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Kamada-Kawai gives better pictures, but its cost grows faster than the square of the number of nodes.
KAMADA_KAWAI_NODES = 80
# Points on paper per unit of a picture, and the smallest circle that a number fits into.
POINTS = 150
LABELLED_POINTS = 11
# With more links than this, an SVG stores them as pixels.
VECTOR_LINKS = 5000


def network_picture(weights: Weights, names: Sequence[str] | None = None, title: str = "Network") -> Figure:
    """Figure of the nodes and links of a network; nodes show their ``names``, or else their numbers."""
    figure = new_figure(6.0, 6.2)
    draw_network(figure.subplots(), weights, names, title)
    part_names(figure)
    return figure


def draw_network(axes: Axes, weights: Weights, names: Sequence[str] | None = None, title: str = "Network") -> None:
    """Draw a network into axes: links as grey lines, nodes as numbered circles."""
    graph = weights.graph
    places = node_positions(graph)
    ends = np.array([(places[a], places[b]) for a, b in graph.edges]).reshape(-1, 2, 2)
    room = min(1.0, 60 / max(len(ends), 1)) ** 0.5
    look = {"colors": "0.25", "linewidths": 0.5 + room, "alpha": 0.85 * room}
    links = matplotlib("collections").LineCollection(ends, **look, zorder=1)
    links.set_rasterized(len(ends) > VECTOR_LINKS)
    axes.add_collection(links)
    _draw_nodes(axes, places, names)
    axes.set_aspect("equal", anchor="NW")
    axes.set(xlim=(-1.12, 1.12), ylim=(-1.12, 1.12))
    axes.axis("off")
    set_heading(axes, title, describe_network(weights))


def describe_network(weights: Weights) -> str:
    """Size and speed of a network in one line."""
    size = f"{counted(weights.n_nodes, 'node')}, {counted(weights.edges, 'link')}"
    return f"{size}, diameter {weights.spectrum.diameter}, beta {weights.spectrum.beta:.3f}"


def counted(count: int, noun: str) -> str:
    """A number with its noun: 1 link, 2 links."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def node_positions(graph: nx.Graph) -> np.ndarray:
    """Position of each node: (M, 2), centred, from -1 to 1.

    If node i is linked to i + 1 all the way round, the nodes form a circle; otherwise linked nodes are near each other.
    """
    n_nodes = graph.number_of_nodes()
    if n_nodes == 1:
        return np.zeros((1, 2))
    if n_nodes > 2 and all(graph.has_edge(node, (node + 1) % n_nodes) for node in graph):
        angles = np.pi / 2 - 2 * np.pi * np.arange(n_nodes) / n_nodes
        return np.stack([np.cos(angles), np.sin(angles)], axis=1)
    small = n_nodes <= KAMADA_KAWAI_NODES
    layout = nx.kamada_kawai_layout(graph) if small else nx.spring_layout(graph, seed=0, iterations=100)
    places = _upright(np.array([layout[node] for node in range(n_nodes)], dtype=float), graph)
    places -= (places.max(axis=0) + places.min(axis=0)) / 2
    return np.asarray(places / max(float(np.abs(places).max()), 1e-12))


def _upright(places: np.ndarray, graph: nx.Graph) -> np.ndarray:
    """Rotate the picture so that links run along the axes if possible, and it is not taller than wide."""
    ends = places @ np.array([1, 1j])
    links = np.array([ends[a] - ends[b] for a, b in graph.edges])
    # The fourth power maps the four directions of the axes to one.
    turned = ends * np.exp(-0.25j * np.angle(np.sum(links**4)))
    if np.ptp(turned.imag) > np.ptp(turned.real):
        turned = turned * 1j
    return np.stack([turned.real, turned.imag], axis=1)


def _draw_nodes(axes: Axes, places: np.ndarray, names: Sequence[str] | None) -> None:
    size = _circle_points(places)
    labelled = size >= LABELLED_POINTS
    look: Any = {"c": "white", "linewidths": 1.2} if labelled else {"c": "0.1", "linewidths": 0}
    axes.scatter(places[:, 0], places[:, 1], s=size**2, edgecolors="0.1", zorder=2, **look)
    if not labelled:
        return
    for text, place in zip(short_names(range(len(places)) if names is None else names), places, strict=True):
        if len(text) <= 4:
            font = 8 if len(text) < 3 and size > 14 else 6
            axes.text(place[0], place[1], text, ha="center", va="center_baseline", fontsize=font, zorder=3)
        else:
            style: Any = {"fontsize": TEXT_SIZE - 1, "bbox": BEHIND_NAMES, "zorder": 3}
            # Away from the middle, where there are fewer links.
            outwards = place / np.linalg.norm(place) if place.any() else np.array([0.0, -1.0])
            draw_name(axes, text, place, (0.5 * size + 2) * outwards, **style)


def _circle_points(places: np.ndarray) -> float:
    """Diameter of the circles such that hardly any two touch."""
    if len(places) == 1:
        return 18.0
    distances = np.linalg.norm(places[:, None] - places[None], axis=-1)
    np.fill_diagonal(distances, np.inf)
    # One close pair must not shrink all circles.
    apart = float(np.quantile(distances.min(axis=1), 0.1)) * POINTS
    return float(np.clip(0.85 * apart, 2.5, 18.0))
