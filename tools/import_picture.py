"""A layered drawing of the import graph as plain SVG.

A room stands on the lowest layer that is above all it imports. An arrow that follows from others is left out (a imports
b and b imports c, so a stands above c anyway): the picture stays readable, and shows the same order. An arrow that
spans several layers passes between the boxes of those layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

BOX_WIDTH, BOX_HEIGHT = 112, 30
LAYER_HEIGHT, COLUMN_WIDTH, LANE_WIDTH = 78, 132, 26
MARGIN, FOOT = 24, 46
SWEEPS = 40
COLOURS = {"import": "#4a6fa5", "lazy": "#8a94a3", "up": "#c0392b"}
STYLE = """
  text { font: 13px system-ui, sans-serif; text-anchor: middle; fill: #1b2430; }
  .foot { font-size: 12px; text-anchor: start; fill: #5a6675; }
  rect { fill: #eef3fb; stroke: #4a6fa5; rx: 6; }
  path { fill: none; stroke-width: 1.3; }
""" + "".join(f"  .{kind} {{ stroke: {colour}; }}\n" for kind, colour in COLOURS.items())
STYLE += "  .lazy { stroke-dasharray: 5 4; }\n  .up { stroke-width: 2; }\n"

Edge = tuple[str, str]


@dataclass(frozen=True)
class Place:
    """A box, or the place where an arrow passes a layer.

    Attributes
    ----------
    room : str
        Its name; empty where an arrow passes.
    edge : tuple of two rooms, or None
        The arrow that passes.
    """

    room: str
    layer: int
    edge: Edge | None = None


def svg(rooms: Sequence[str], found: Iterable[Any]) -> str:
    """The picture of imports between rooms, given from bottom to top."""
    found = list(found)
    height = {room: position for position, room in enumerate(rooms)}
    always = {(one.importer, one.imported) for one in found if not one.lazy}
    lazy = {(one.importer, one.imported) for one in found if one.lazy} - always
    down = {(above, below) for above, below in always | lazy if height[above] > height[below]}
    kinds = dict.fromkeys(_needed(rooms, always & down), "import")
    kinds |= dict.fromkeys((_needed(rooms, down) | lazy - down) & lazy, "lazy")
    kinds |= dict.fromkeys(always - down, "up")
    layers = _layers(rooms, kinds, {edge for edge in kinds if height[edge[0]] > height[edge[1]]})
    return _drawn(rooms, layers, _columns(layers, kinds), kinds)


def _needed(rooms: Sequence[str], edges: set[Edge]) -> set[Edge]:
    """The edges, all of which point down, that do not follow from others."""
    reach: dict[str, set[str]] = {}
    for room in rooms:
        direct = {below for above, below in edges if above == room}
        reach[room] = direct.union(*(reach[below] for below in direct))
    return {(above, below) for above, below in edges if not any(below in reach[middle] for middle in reach[above])}


def _layers(rooms: Sequence[str], edges: Iterable[Edge], down: set[Edge]) -> list[list[Place]]:
    """Boxes by layer from bottom to top, with places for the arrows that pass."""
    level: dict[str, int] = {}
    for room in rooms:
        level[room] = 1 + max((level[below] for above, below in down if above == room), default=-1)
    layers: list[list[Place]] = [[] for _ in range(1 + max(level.values()))]
    for room in rooms:
        layers[level[room]].append(Place(room, level[room]))
    for edge in sorted(edges):
        low, high = sorted(level[room] for room in edge)
        for layer in range(low + 1, high):
            layers[layer].append(Place("", layer, edge))
    return layers


def _columns(layers: list[list[Place]], edges: Iterable[Edge]) -> dict[Place, float]:
    """Horizontal position of each place, such that arrows are short and rarely cross."""
    x = {place: COLUMN_WIDTH * position for layer in layers for position, place in enumerate(layer)}
    near = _neighbours(layers, edges)
    for sweep in range(SWEEPS):
        for layer in layers if sweep % 2 else reversed(layers):
            wish = {
                place: sum(x[other] for other in near[place]) / len(near[place]) if near[place] else x[place]
                for place in layer
            }
            layer.sort(key=lambda place: (wish[place], place.room, place.edge or ()))
            x.update(_spread(layer, wish))
    left = min(x[place] - _width(place) / 2 for place in x)
    return {place: x[place] - left + MARGIN for place in x}


def _neighbours(layers: list[list[Place]], edges: Iterable[Edge]) -> dict[Place, list[Place]]:
    """Places that are connected to each place by a piece of an arrow."""
    near: dict[Place, list[Place]] = {place: [] for layer in layers for place in layer}
    for edge in edges:
        for one, other in pairwise(_chain(layers, edge)):
            near[one].append(other)
            near[other].append(one)
    return near


def _chain(layers: list[list[Place]], edge: Edge) -> list[Place]:
    """The places that an arrow goes through, with both ends."""
    chain = [place for layer in layers for place in layer if place.edge == edge or place.room in edge]
    return chain if chain[0].room == edge[0] else chain[::-1]


def _spread(layer: list[Place], wish: dict[Place, float]) -> dict[Place, float]:
    """Positions near the wished ones, in order and without overlap: least squares by pooling neighbours."""
    groups: list[list[Any]] = []  # [members, offsets from the first, position of the first]
    for place in layer:
        groups.append([[place], [0.0], wish[place]])
        while len(groups) > 1:
            left, right = groups[-2], groups[-1]
            gap = (_width(left[0][-1]) + _width(right[0][0])) / 2
            shift = left[1][-1] + gap
            if left[2] + shift <= right[2]:
                break
            members, offsets = left[0] + right[0], left[1] + [shift + offset for offset in right[1]]
            start = fmean(wish[one] - offset for one, offset in zip(members, offsets, strict=True))
            groups[-2:] = [[members, offsets, start]]
    return {
        one: start + offset for members, offsets, start in groups for one, offset in zip(members, offsets, strict=True)
    }


def _width(place: Place) -> float:
    return COLUMN_WIDTH if place.room else LANE_WIDTH


def _drawn(rooms: Sequence[str], layers: list[list[Place]], x: dict[Place, float], kinds: dict[Edge, str]) -> str:
    boxes = {place.room: place for place in x if place.room}
    width = max(x[place] + _width(place) / 2 for place in x) + MARGIN
    height = 2 * MARGIN + (len(layers) - 1) * LAYER_HEIGHT + BOX_HEIGHT + FOOT

    def y(layer: int) -> float:
        return MARGIN + BOX_HEIGHT / 2 + (len(layers) - 1 - layer) * LAYER_HEIGHT

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}">',
        f"<style>{STYLE}</style>",
        f"<defs>{''.join(_tip(kind) for kind in COLOURS)}</defs>",
        f'<rect width="{width:.0f}" height="{height:.0f}" style="fill:#ffffff;stroke:none"/>',
    ]
    for edge, kind in sorted(kinds.items()):
        path = _curve(_chain(layers, edge), x, y)
        lines.append(f'<path class="{kind}" marker-end="url(#{kind}-tip)" d="{path}"/>')
    for room in rooms:
        place = boxes[room]
        left, top = x[place] - BOX_WIDTH / 2, y(place.layer) - BOX_HEIGHT / 2
        lines.append(f'<rect x="{left:.1f}" y="{top:.1f}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}"/>')
        lines.append(f'<text x="{x[place]:.1f}" y="{y(place.layer) + 4.5:.1f}">{room}</text>')
    foot = "Arrows point to what is imported; one that follows from others is left out. Dashed: inside functions only."
    lines.append(f'<text class="foot" x="{MARGIN}" y="{height - MARGIN / 2 - 4:.1f}">{foot}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _tip(kind: str) -> str:
    return (
        f'<marker id="{kind}-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0,0 L8,4 L0,8 z" style="fill:{COLOURS[kind]};stroke:none"/></marker>'
    )


def _curve(chain: list[Place], x: dict[Place, float], y: Any) -> str:
    """A smooth path from the edge of the first box to that of the last, straight down through the places between."""
    sign = 1 if chain[0].layer >= chain[-1].layer else -1
    half = sign * BOX_HEIGHT / 2
    points = [(x[place], y(place.layer)) for place in chain]
    points[0] = (points[0][0], points[0][1] + half)
    points[-1] = (points[-1][0], points[-1][1] - half)
    path = f"M{points[0][0]:.1f},{points[0][1]:.1f}"
    for (x0, y0), (x1, y1) in pairwise(points):
        bend = (y1 - y0) / 2
        path += f" C{x0:.1f},{y0 + bend:.1f} {x1:.1f},{y1 - bend:.1f} {x1:.1f},{y1:.1f}"
    return path
