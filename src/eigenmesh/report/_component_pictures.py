"""Pictures of components: explained variance, loadings and scores; and of the nodes' disagreement and traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from eigenmesh.errors import InputError
from eigenmesh.report._names import BEHIND_NAMES, draw_name, part_names, short_names
from eigenmesh.report._pictures import TEXT_SIZE, draw_frame, new_figure, set_heading

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours that colour-blind readers can distinguish; with the markers, eight nodes need no colour at all.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#8C6BB1", "#7F7F7F")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
MOST_FEATURES, MOST_LINKS, MOST_COMPONENTS = 12, 20, 6


def scree_picture(shares: np.ndarray) -> Figure:
    """Share of the variance that each component explains, and the cumulative share: shares of shape (K,)."""
    figure = new_figure(6.5, 4.2)
    axes: Axes = figure.subplots()
    places = np.arange(1, len(shares) + 1)
    axes.bar(places, shares, color=COLOURS[0], label="each")
    axes.plot(places, np.cumsum(shares), "o-", color="0.1", label="together")
    axes.set_xticks(places if len(places) <= 20 else places[:: len(places) // 10])
    axes.set_ylim(0, 1.03)
    draw_frame(axes, "component", "share of the variance")
    figure.legend(loc="outside right upper", fontsize=TEXT_SIZE, frameon=False)
    set_heading(axes, "Explained variance", f"{float(np.sum(shares)):.1%} by {len(shares)} components")
    return figure


def loadings_picture(components: np.ndarray, names: Sequence[str], most: int = MOST_FEATURES) -> Figure:
    """The largest loadings of the first components: components (K, d), names of the d features."""
    if len(names) != components.shape[1]:
        raise InputError(f"{len(names)} names for {components.shape[1]} features; give one for each.")
    shown, names = components[:MOST_COMPONENTS], short_names(names)
    figure = new_figure(4.2 * min(3, len(shown)), (0.9 + 0.26 * min(most, len(names))) * -(-len(shown) // 3))
    panels = np.atleast_1d(figure.subplots(-(-len(shown) // 3), min(3, len(shown)), squeeze=False)).ravel()
    for number, (panel, component) in enumerate(zip(panels, shown, strict=False)):
        order = np.argsort(-np.abs(component), kind="stable")[:most][::-1]
        panel.barh(np.arange(len(order)), component[order], color=COLOURS[0])
        panel.set_yticks(np.arange(len(order)), [names[at] for at in order])
        draw_frame(panel, "loading", "")
        panel.axvline(0, color="0.1", linewidth=0.8)
        panel.set_title(f"Component {number + 1}", loc="left", fontsize=TEXT_SIZE + 1, fontweight="bold")
    for panel in panels[len(shown) :]:
        panel.set_visible(False)
    return figure


def scores_picture(
    scores: np.ndarray,
    nodes: Sequence[str],
    components: np.ndarray | None = None,
    names: Sequence[str] | None = None,
    most: int = MOST_FEATURES,
) -> Figure:
    """Samples on the first two components, by node: scores (n, K >= 2), the node of each sample.

    With components (K, d) and names of features it is a biplot: arrows for the features of largest weight.
    """
    if scores.shape[1] < 2:
        raise InputError("a picture of scores needs two components, but there is one; fit at least two.")
    if len(nodes) != len(scores):
        raise InputError(f"{len(nodes)} nodes for {len(scores)} samples; give one for each.")
    figure = new_figure(7.5, 6.0)
    axes: Axes = figure.subplots()
    kinds = list(dict.fromkeys(nodes))
    labels = np.asarray(nodes)
    for number, (kind, label) in enumerate(zip(kinds, short_names(kinds), strict=True)):
        rows = scores[labels == kind]
        style: Any = {"color": COLOURS[number % 8], "markersize": 4, "alpha": 0.6, "markeredgewidth": 0}
        axes.plot(rows[:, 0], rows[:, 1], MARKERS[(number // 8 + number) % 8], label=label, **style)
    if components is not None and names is not None:
        _draw_arrows(axes, scores, components, names, most)
    draw_frame(axes, "component 1", "component 2")
    if len(kinds) <= 24:
        figure.legend(loc="outside right upper", fontsize=TEXT_SIZE, frameon=False, title="node")
    set_heading(axes, "Samples", f"{len(scores):,} at {len(kinds)} nodes")
    part_names(figure)
    return figure


def _draw_arrows(axes: Axes, scores: np.ndarray, components: np.ndarray, names: Sequence[str], most: int) -> None:
    weights = components[:2].T
    length = np.linalg.norm(weights, axis=1)
    order = np.argsort(-length, kind="stable")[:most]
    stretch = 0.8 * float(np.abs(scores[:, :2]).max()) / max(float(length[order[0]]), np.finfo(float).tiny)
    shown = short_names([names[feature] for feature in order])
    for feature, name in zip(order, shown, strict=True):
        tip = stretch * weights[feature]
        axes.annotate("", tip, (0, 0), arrowprops={"arrowstyle": "->", "color": "0.1"})
        outwards = 4 * tip / max(float(np.linalg.norm(tip)), np.finfo(float).tiny)
        draw_name(axes, name, tip, outwards, fontsize=TEXT_SIZE, bbox=BEHIND_NAMES)


def disagreement_picture(node_components: np.ndarray, nodes: Sequence[str] | None = None) -> Figure:
    """How far each node's components are from the average: sines of angles, node_components (nodes, K, d)."""
    mean = node_components.mean(axis=0)
    mean /= np.linalg.norm(mean, axis=1, keepdims=True)
    own = node_components / np.linalg.norm(node_components, axis=2, keepdims=True)
    # The norm of a difference, because 1 - cos^2 would lose all digits where nodes agree.
    away = own - np.einsum("mkd,kd->mk", own, mean)[:, :, None] * mean
    sines = np.maximum(np.linalg.norm(away, axis=2), 1e-17)
    figure = new_figure(7.0, 4.2)
    axes: Axes = figure.subplots()
    for k, values in enumerate(sines.T[:8]):
        axes.plot(np.arange(len(values)), values, MARKERS[k], color=COLOURS[k], label=f"component {k + 1}")
    axes.set_yscale("log")
    if nodes is not None and len(nodes) <= 24:
        axes.set_xticks(np.arange(len(nodes)), short_names(nodes), rotation=60, ha="right")
    draw_frame(axes, "node", "sine of the angle to the average")
    axes.legend(fontsize=TEXT_SIZE, frameon=False, ncols=2)
    set_heading(axes, "Disagreement of nodes", f"at most {float(sines.max()):.1e}")
    return figure


def traffic_picture(links: Mapping[tuple[str, str], int]) -> Figure:
    """Bytes of each link, both directions together, largest first."""
    sums: dict[tuple[str, str], int] = {}
    for (sender, receiver), count in links.items():
        pair = min(sender, receiver), max(sender, receiver)
        sums[pair] = sums.get(pair, 0) + count
    order = sorted(sums, key=lambda pair: (-sums[pair], pair))[:MOST_LINKS][::-1]
    figure = new_figure(6.5, 1.2 + 0.26 * max(1, len(order)))
    axes: Axes = figure.subplots()
    axes.barh(np.arange(len(order)), [sums[pair] for pair in order], color=COLOURS[0])
    names = list(dict.fromkeys(name for pair in order for name in pair))
    short = dict(zip(names, short_names(names), strict=True))
    axes.set_yticks(np.arange(len(order)), [f"{short[one]} – {short[other]}" for one, other in order])
    draw_frame(axes, "bytes", "")
    set_heading(axes, "Traffic by link", f"{len(order)} of {len(sums)} links, {sum(sums.values()):,} bytes in all")
    return figure
