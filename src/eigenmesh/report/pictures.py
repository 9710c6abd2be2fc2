"""Create and save figures without a screen."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from eigenmesh.atomic_write import require_writable, write_atomically
from eigenmesh.certificate import Certificate
from eigenmesh.errors import AtFirstUse, InputError, import_extra
from eigenmesh.events import Record
from eigenmesh.graphs import Weights
from eigenmesh.iteration import Result
from eigenmesh.words import readable_bytes

if TYPE_CHECKING:
    import networkx as nx
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
else:
    nx = AtFirstUse("networkx")

SUFFIXES = (".png", ".svg", ".pdf")
TITLE_SIZE, TEXT_SIZE = 11, 9
DOTS_PER_INCH = 150


def matplotlib(module: str) -> ModuleType:
    """A module of matplotlib, or the error that says how to install it."""
    return import_extra(f"matplotlib.{module}", "report", "drawing a picture")


def new_figure(width: float, height: float) -> Figure:
    """White figure of this size in inches that draws into memory, without pyplot."""
    layout = matplotlib("layout_engine").ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08)
    figure: Figure = matplotlib("figure").Figure(figsize=(width, height), layout=layout, facecolor="white")
    matplotlib("backends.backend_agg").FigureCanvasAgg(figure)
    return figure


def set_heading(axes: Axes, title: str, subtitle: str) -> None:
    """Title in bold at the left with a smaller line under it."""
    axes.set_title(title, loc="left", pad=22, fontsize=TITLE_SIZE, fontweight="bold")
    position: Any = {"xycoords": "axes fraction", "xytext": (0, 6), "textcoords": "offset points"}
    axes.annotate(subtitle, (0, 1), **position, fontsize=TEXT_SIZE, annotation_clip=False)


def draw_frame(axes: Axes, x: str, y: str) -> None:
    """Names of the axes, a light grid, and no lines at the top and on the right."""
    axes.set_xlabel(x, fontsize=TEXT_SIZE)
    axes.set_ylabel(y, fontsize=TEXT_SIZE)
    axes.tick_params(labelsize=TEXT_SIZE)
    axes.grid(color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def require_picture(path: str | os.PathLike[str]) -> Path:
    """Raise before any work if a picture cannot be drawn or written there.

    Parameters
    ----------
    path : path-like
        A file that ends in .png, .svg or .pdf.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"cannot draw {path}: its suffix is {path.suffix!r}; pictures end in {', '.join(SUFFIXES)}.")
    path = require_writable(path)
    matplotlib("figure")
    return path


def save_picture(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a figure atomically as PNG, SVG or PDF.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        What to write.
    path : path-like
        A file that ends in .png, .svg or .pdf.
    """
    path = require_picture(path)
    write_atomically(path, lambda file: write_figure(figure, file, path.suffix.lower().removeprefix(".")))
    return path


def write_figure(figure: Figure, file: Any, kind: str, fonttype: str = "none") -> None:
    """Write a figure so that the same run gives the same bytes. By default text stays text in an SVG."""
    without = {"svg": ("Creator", "Date", "Format", "Type"), "pdf": ("CreationDate",)}
    metadata = dict.fromkeys(without[kind]) if kind in without else None
    settings = {"svg.fonttype": fonttype, "svg.hashsalt": "eigenmesh"}
    with import_extra("matplotlib", "report", "drawing a picture").rc_context(settings):
        figure.savefig(file, format=kind, dpi=DOTS_PER_INCH, metadata=metadata)


# Names in pictures: shortened but different, and placed so that they do not overlap.


MOST_LETTERS = 18
# Background of a name, so that lines do not cross it.
BEHIND_NAMES = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
# The gid of names that may be moved.
MOVABLE = "name"
# Sides of a point, and how the text is aligned there.
SIDES = ((0, -1), (0, 1), (1, 0), (-1, 0), (1, -1), (-1, -1), (1, 1), (-1, 1))
ALIGNED_X, ALIGNED_Y = {0: "center", 1: "left", -1: "right"}, {0: "center", 1: "bottom", -1: "top"}


def short_names(names: Sequence[object], most: int = MOST_LETTERS) -> list[str]:
    """Names shortened to ``most`` letters: long names lose their end or, if they begin alike, the common beginning.

    Different names stay different: if they would be equal after both cuts, they get numbers.
    """
    texts = [str(name) for name in names]
    alike = [len(set(letters)) == 1 for letters in zip(*texts, strict=False)]
    # Some letters before the first different one are kept, so that the name can be recognised.
    start = max(0, [*alike, False].index(False) - most // 2)
    ends = [text if len(text) <= most else f"{text[: most - 1]}…" for text in texts]
    middles = [text if len(text) <= most else f"…{text[start : start + most - 2]}…" for text in texts]
    for cut in (ends, middles):
        if len(set(cut)) == len(set(texts)):
            return cut
    numbers = {text: f" {number}" for number, text in enumerate(dict.fromkeys(texts), start=1)}
    return [text if len(text) <= most else f"{text[: most - 1 - len(numbers[text])]}…{numbers[text]}" for text in texts]


def draw_name(axes: Axes, text: str, point: np.ndarray, offset: np.ndarray, **style: Any) -> None:
    """Put a name next to a point; ``offset`` is in typographic points. :func:`part_names` may move it later."""
    offset_style: Any = {"textcoords": "offset points", "xytext": (offset[0], offset[1]), "gid": MOVABLE}
    axes.annotate(text, (point[0], point[1]), **offset_style, **style).set_in_layout(False)


def part_names(figure: Figure) -> None:
    """Move each name to a side of its point where it is inside the picture and covers no other name or legend.

    The side on which it was put is tried first, and sides where it would cover no other named point are preferred. A
    name without a free side is hidden. Names are placed in order, so earlier ones choose first.
    """
    figure.draw_without_rendering()
    names: list[Any] = figure.findobj(lambda artist: artist.get_gid() == MOVABLE)
    points = [_around(name) for name in names]
    legends = figure.findobj(matplotlib("legend").Legend)
    taken: list[Any] = [legend.get_window_extent().padded(8) for legend in legends]
    for at, name in enumerate(names):
        others = points[:at] + points[at + 1 :]
        box = _move_aside(name, taken + others) or _move_aside(name, taken)
        name.set_visible(box is not None)
        taken += [] if box is None else [box]


def _around(name: Any) -> Any:
    """The box of the point that a name belongs to, in pixels."""
    (x, y), size = name.axes.transData.transform(name.xy), np.hypot(*name.xyann)
    half = 0.8 * size * name.axes.figure.dpi / 72
    return matplotlib("transforms").Bbox.from_extents(x - half, y - half, x + half, y + half)


def _move_aside(name: Any, taken: list[Any]) -> Any:
    """Move a name to a free side and return its box there; None if no side is free."""
    put = np.array(name.xyann)
    page = name.axes.figure.bbox
    for side in sorted(SIDES, key=lambda side: -float(put @ side) / np.hypot(*side)):
        x, y = side
        name.xyann = tuple(np.hypot(*put) * np.array(side) / np.hypot(*side))
        name.set(ha=ALIGNED_X[x], va=ALIGNED_Y[y])
        # Padded, because letters are a little wider or narrower at other resolutions.
        box = name.get_window_extent().padded(2)
        inside = page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1
        if inside and not any(box.overlaps(other) for other in taken):
            return box
    name.xyann = tuple(put)
    return None


# Pictures of components: explained variance, loadings and scores; and of the nodes' disagreement and traffic.


# Colours that colour-blind readers can distinguish; with the markers, eight groups need no colour at all.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#8C6BB1", "#7F7F7F")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
MOST_FEATURES, MOST_LINKS, MOST_COMPONENTS = 12, 20, 6
# More groups than this are drawn without a legend.
MOST_GROUPS = 24
# Share of normal samples that an ellipse holds, and its radius in standard deviations: -2 log(0.05), square root.
ELLIPSE_SHARE = 0.95
ELLIPSE_RADIUS = float(np.sqrt(-2 * np.log(1 - ELLIPSE_SHARE)))


def result_picture(
    shares: np.ndarray,
    loadings: np.ndarray,
    names: Sequence[str] | None = None,
    *,
    scores: np.ndarray | None = None,
    labels: Sequence[object] | np.ndarray | None = None,
    components: Sequence[int] = (1, 2),
    ellipses: bool = False,
    image_shape: tuple[int, int] | None = None,
    title: str = "",
) -> Figure:
    """Figure of the result of a fit: explained variance, scores and loadings.

    Parameters
    ----------
    shares : array of shape (K,)
        The share of the variance of each component.
    loadings : array of shape (K, d)
        One component per row.
    names : sequence of str, optional
        The names of the d features.
    scores : array of shape (n, K), optional
        Samples on the components. With one component they are not drawn.
    labels : sequence of length n, optional
        The group of each sample, which decides its colour and marker.
    components : pair of int
        Which components are the axes of the scores, and whose loadings are drawn, from 1 on.
    ellipses : bool
        Draw an ellipse around each group, which would hold 95 % of normally distributed samples.
    image_shape : pair of int, optional
        Rows and columns, if each sample is an image. The components are then drawn as images.
    title : str
        The heading of the figure.
    """
    with_scores = scores is not None and len(loadings) > 1
    shown = components if with_scores else (1, 2)[: len(loadings)]
    figure = new_figure(11.5, 8.6)
    if title:
        figure.suptitle(title, fontsize=TITLE_SIZE + 2)
    halves: Any = figure.subfigures(2, 1, height_ratios=[5.0, 3.2 if image_shape is None else 2.2])
    upper, lower = halves
    if scores is not None and with_scores:
        left, right = upper.subfigures(1, 2, width_ratios=[1, 1.5])
        scree_picture(shares, ax=left.subplots())
        scores_picture(scores, labels, components=shown, shares=shares, ellipses=ellipses, ax=right.subplots())
    else:
        scree_picture(shares, ax=upper.subplots())
    if image_shape is not None:
        draw_components(lower, loadings, image_shape, shares)
    else:
        panels = np.atleast_1d(lower.subplots(1, len(shown)))
        for number, panel in zip(shown, panels, strict=True):
            loadings_picture(loadings, names, components=(number,), ax=panel)
    return figure


def require_components(chosen: Sequence[int], there_are: int, wanted: int | None = None) -> tuple[int, ...]:
    """Raise unless these are distinct components from 1 on, and ``wanted`` of them."""
    numbers = tuple(chosen)
    whole = all(isinstance(number, int | np.integer) for number in numbers)
    if not whole or len(set(numbers)) < len(numbers) or not all(1 <= number <= there_are for number in numbers):
        raise InputError(f"components = {chosen} must be distinct numbers from 1 to {there_are}; correct them.")
    if wanted is not None and len(numbers) != wanted:
        raise InputError(f"components = {chosen} must be {wanted} numbers, such as {tuple(range(1, wanted + 1))}.")
    return tuple(map(int, numbers))


def scree_picture(shares: np.ndarray, *, ax: Axes | None = None) -> Figure:
    """Share of the variance that each component explains, and the cumulative share.

    Parameters
    ----------
    shares : array of shape (K,)
        The share of each component.
    ax : matplotlib.axes.Axes, optional
        Where to draw, if not in a new figure.
    """
    figure, axes = _place(ax, 6.5, 4.2)
    positions = np.arange(1, len(shares) + 1)
    axes.bar(positions, shares, color=COLOURS[0], label="each")
    axes.plot(positions, np.cumsum(shares), "o-", color="0.1", label="together")
    axes.set_xticks(positions if len(positions) <= 20 else positions[:: len(positions) // 10])
    axes.set_ylim(0, 1.03)
    draw_frame(axes, "component", "share of the variance")
    axes.yaxis.set_major_formatter(matplotlib("ticker").PercentFormatter(1.0))
    _draw_legend(axes, outside=False)
    many = counted(len(shares), "component")
    set_heading(axes, "Explained variance", f"{float(np.sum(shares)):.1%} by {many}")
    return figure


def loadings_picture(
    loadings: np.ndarray,
    names: Sequence[str] | None = None,
    *,
    components: Sequence[int] | None = None,
    most: int = MOST_FEATURES,
    ax: Axes | None = None,
) -> Figure:
    """The largest loadings of components.

    Parameters
    ----------
    loadings : array of shape (K, d)
        One component per row.
    names : sequence of str, optional
        The names of the d features.
    components : sequence of int, optional
        Which ones, from 1 on; by default the first six.
    most : int
        How many loadings are shown of each component.
    ax : matplotlib.axes.Axes, optional
        Where to draw one component, if not in a new figure.
    """
    names = _names_of(names, loadings.shape[1])
    shown = range(1, min(len(loadings), MOST_COMPONENTS) + 1) if components is None else components
    numbers = require_components(shown, len(loadings), None if ax is None else 1)
    if ax is not None:
        _draw_loadings(ax, loadings[numbers[0] - 1], names, most, numbers[0])
        return root_figure(ax)
    columns, rows = min(3, len(numbers)), -(-len(numbers) // 3)
    figure = new_figure(4.2 * columns, (0.9 + 0.26 * min(most, len(names))) * rows)
    panels = np.atleast_1d(figure.subplots(rows, columns, squeeze=False)).ravel()
    for panel, number in zip(panels, numbers, strict=False):
        _draw_loadings(panel, loadings[number - 1], names, most, number)
    for panel in panels[len(numbers) :]:
        panel.set_visible(False)
    return figure


def _draw_loadings(axes: Axes, component: np.ndarray, names: Sequence[str], most: int, number: int) -> None:
    """Bars of the largest loadings of a component, the largest at the top."""
    order = np.argsort(-np.abs(component), kind="stable")[:most][::-1]
    axes.barh(np.arange(len(order)), component[order], color=COLOURS[0])
    axes.set_yticks(np.arange(len(order)), short_names([names[at] for at in order]))
    draw_frame(axes, "loading", "")
    axes.axvline(0, color="0.1", linewidth=0.8)
    few = "" if len(order) == len(names) else f": {len(order)} of {len(names):,} loadings"
    axes.set_title(f"Component {number}{few}", loc="left", fontsize=TEXT_SIZE + 1, fontweight="bold")


def scores_picture(
    scores: np.ndarray,
    labels: Sequence[object] | np.ndarray | None = None,
    *,
    components: Sequence[int] = (1, 2),
    shares: np.ndarray | None = None,
    ellipses: bool = False,
    loadings: np.ndarray | None = None,
    names: Sequence[str] | None = None,
    most: int = MOST_FEATURES,
    ax: Axes | None = None,
) -> Figure:
    """Samples on two components, by group. With loadings it is a biplot.

    Parameters
    ----------
    scores : array of shape (n, K)
        The samples on at least two components.
    labels : sequence of length n, optional
        The group of each sample, such as its site, which decides its colour and marker.
    components : pair of int
        Which components are the axes, from 1 on.
    shares : array of shape (K,), optional
        The share of the variance of each component, to write on the axes.
    ellipses : bool
        Draw an ellipse around each group of three samples or more, which would hold 95 % of normally distributed
        samples with the mean and covariance of the group.
    loadings : array of shape (K, d), optional
        The components, for arrows that show the features of largest weight.
    names : sequence of str, optional
        The names of the d features.
    most : int
        How many arrows are drawn.
    ax : matplotlib.axes.Axes, optional
        Where to draw, if not in a new figure.
    """
    scores, labels = np.asarray(scores), [""] * len(scores) if labels is None else labels
    if scores.ndim != 2 or scores.shape[1] < 2:
        raise InputError("a picture of scores needs two components, but there is one; fit at least two.")
    shown = require_components(components, scores.shape[1], 2)
    if len(labels) != len(scores):
        raise InputError(f"{len(labels)} labels for {len(scores)} samples; give one for each.")
    figure, axes = _place(ax, 7.5, 6.0)
    columns = [number - 1 for number in shown]
    points = scores[:, columns]
    n_groups = _draw_groups(axes, points, [str(label) for label in labels], ellipses)
    named = [f"component {number}" for number in shown]
    if shares is not None:
        named = [f"{name} ({shares[number - 1]:.1%})" for name, number in zip(named, shown, strict=True)]
    draw_frame(axes, *named)
    groups = "" if n_groups < 2 else f" in {n_groups} groups"
    around = f", ellipses for {ELLIPSE_SHARE:.0%} of each" if ellipses else ""
    set_heading(axes, "Scores", f"{counted(len(scores), 'sample')}{groups}{around}")
    if loadings is not None:
        _draw_arrows(axes, points, np.asarray(loadings)[columns].T, names, most)
    # Axes of a user's figure may have neighbours, on which a legend outside would lie, unless its layout makes room.
    _draw_legend(axes, outside=figure.get_layout_engine() is not None)
    if loadings is not None:
        part_names(figure)
    return figure


def _draw_groups(axes: Axes, points: np.ndarray, labels: Sequence[str], ellipses: bool) -> int:
    """Draw points (n, 2), with a colour and marker for each group, and ellipses around groups; returns their number."""
    texts, kinds = np.array(labels), list(dict.fromkeys(labels))
    kinds = kinds if kinds == [""] else sorted(kinds, key=_natural)
    for number, (kind, label) in enumerate(zip(kinds, short_names(kinds), strict=True)):
        own, colour = points[texts == kind], COLOURS[number % 8]
        style: Any = {"color": colour, "markersize": 4, "alpha": 0.6, "markeredgewidth": 0}
        # Names that start with an underscore are not shown in a legend.
        style["label"] = label if label and len(kinds) <= MOST_GROUPS else f"_{label}"
        axes.plot(own[:, 0], own[:, 1], MARKERS[(number // 8 + number) % 8], **style)
        if ellipses and len(own) > 2:
            axes.plot(*_ellipse(own).T, color=colour, linewidth=1.4)
    return len(kinds)


def _natural(label: str) -> tuple[int, float, str]:
    """Order of labels: numbers by size, then words by letters."""
    try:
        return 0, float(label), label
    except ValueError:
        return 1, 0.0, label


def _ellipse(points: np.ndarray) -> np.ndarray:
    """Outline of the ellipse that holds 95 % of normal samples with the mean and covariance of these: (n, 2)."""
    values, vectors = np.linalg.eigh(np.cov(points.T))
    turn = np.linspace(0, 2 * np.pi, 121)
    circle = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    outline: np.ndarray = points.mean(axis=0) + ELLIPSE_RADIUS * (circle * np.sqrt(np.maximum(values, 0))) @ vectors.T
    return outline


def _draw_arrows(axes: Axes, points: np.ndarray, weights: np.ndarray, names: Sequence[str] | None, most: int) -> None:
    """Arrows for the features of largest weight (d, 2) on the two components shown."""
    names = _names_of(names, len(weights))
    length = np.linalg.norm(weights, axis=1)
    order = np.argsort(-length, kind="stable")[:most]
    stretch = 0.8 * float(np.abs(points).max()) / max(float(length[order[0]]), np.finfo(float).tiny)
    shown = short_names([names[feature] for feature in order])
    for feature, name in zip(order, shown, strict=True):
        tip = stretch * weights[feature]
        axes.annotate("", tip, (0, 0), arrowprops={"arrowstyle": "->", "color": "0.1"})
        outwards = 4 * tip / max(float(np.linalg.norm(tip)), np.finfo(float).tiny)
        draw_name(axes, name, tip, outwards, fontsize=TEXT_SIZE, bbox=BEHIND_NAMES)


def _names_of(names: Sequence[str] | None, d: int) -> Sequence[str]:
    """The names of d features, or their numbers."""
    if names is not None and len(names) != d:
        raise InputError(f"{len(names)} names for {d} features; give one for each.")
    return [f"feature {number}" for number in range(d)] if names is None else names


def _place(ax: Axes | None, width: float, height: float) -> tuple[Figure, Axes]:
    """The axes of a user and their figure, or a new figure of this size and its axes."""
    if ax is not None:
        return root_figure(ax), ax
    figure = new_figure(width, height)
    return figure, figure.subplots()


def root_figure(axes: Axes) -> Figure:
    """The whole figure that axes belong to, of which they may be in a part."""
    figure: Any = axes.figure
    while figure.figure is not figure:
        figure = figure.figure
    return figure  # type: ignore[no-any-return]


def _draw_legend(axes: Axes, outside: bool) -> None:
    """A legend, if there is anything to name: to the right of the axes, or where it covers least."""
    if axes.get_legend_handles_labels()[1]:
        place: Any = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)} if outside else {"loc": "best"}
        axes.legend(fontsize=TEXT_SIZE, frameon=False, **place)


def disagreement_picture(
    node_components: np.ndarray, nodes: Sequence[str] | None = None, *, ax: Axes | None = None
) -> Figure:
    """How far each node's components are from the average, as sines of angles.

    Parameters
    ----------
    node_components : array of shape (nodes, K, d)
        The components of every node.
    nodes : sequence of str, optional
        The names of the nodes.
    ax : matplotlib.axes.Axes, optional
        Where to draw, if not in a new figure.
    """
    mean = node_components.mean(axis=0)
    mean /= np.linalg.norm(mean, axis=1, keepdims=True)
    own = node_components / np.linalg.norm(node_components, axis=2, keepdims=True)
    # The norm of a difference, because 1 - cos^2 would lose all digits where nodes agree.
    away = own - np.einsum("mkd,kd->mk", own, mean)[:, :, None] * mean
    sines = np.maximum(np.linalg.norm(away, axis=2), 1e-17)
    figure, axes = _place(ax, 7.0, 4.2)
    for k, values in enumerate(sines.T[:8]):
        axes.plot(np.arange(len(values)), values, MARKERS[k], color=COLOURS[k], label=f"component {k + 1}")
    axes.set_yscale("log")
    if nodes is not None and len(nodes) <= 24:
        axes.set_xticks(np.arange(len(nodes)), short_names(nodes), rotation=60, ha="right")
    draw_frame(axes, "node", "sine of the angle to the average")
    axes.legend(fontsize=TEXT_SIZE, frameon=False, ncols=2)
    set_heading(axes, "Disagreement of nodes", f"at most {float(sines.max()):.1e}")
    return figure


def traffic_picture(links: Mapping[tuple[str, str], int], *, ax: Axes | None = None) -> Figure:
    """Bytes of each link, both directions together, largest first.

    Parameters
    ----------
    links : mapping
        Bytes by sender and receiver.
    ax : matplotlib.axes.Axes, optional
        Where to draw, if not in a new figure.
    """
    sums: dict[tuple[str, str], int] = {}
    for (sender, receiver), count in links.items():
        pair = min(sender, receiver), max(sender, receiver)
        sums[pair] = sums.get(pair, 0) + count
    order = sorted(sums, key=lambda pair: (-sums[pair], pair))[:MOST_LINKS][::-1]
    figure, axes = _place(ax, 6.5, 1.2 + 0.26 * max(1, len(order)))
    axes.barh(np.arange(len(order)), [sums[pair] for pair in order], color=COLOURS[0])
    names = list(dict.fromkeys(name for pair in order for name in pair))
    short = dict(zip(names, short_names(names), strict=True))
    axes.set_yticks(np.arange(len(order)), [f"{short[one]} – {short[other]}" for one, other in order])
    draw_frame(axes, "bytes", "")
    set_heading(axes, "Traffic by link", f"{len(order)} of {len(sums)} links, {sum(sums.values()):,} bytes in all")
    return figure


# A picture of a network: its nodes and links.


# Kamada-Kawai gives better pictures, but its cost grows faster than the square of the number of nodes.
KAMADA_KAWAI_NODES = 80
# Points on paper per unit of a picture, and the smallest circle that a number fits into.
POINTS = 150
LABELLED_POINTS = 11
# With more links than this, an SVG stores them as pixels.
VECTOR_LINKS = 5000


def network_picture(
    weights: Weights, names: Sequence[str] | None = None, title: str = "Network", *, ax: Axes | None = None
) -> Figure:
    """The nodes and links of a network: links as grey lines, nodes as numbered circles.

    Parameters
    ----------
    weights : Weights
        The network.
    names : sequence of str, optional
        The names of the nodes, which show their numbers otherwise.
    title : str
        The heading of the figure.
    ax : matplotlib.axes.Axes, optional
        Where to draw, if not in a new figure.
    """
    figure, axes = _place(ax, 6.0, 6.2)
    graph = weights.graph
    positions = node_positions(graph)
    ends = np.array([(positions[a], positions[b]) for a, b in graph.edges]).reshape(-1, 2, 2)
    crowding = min(1.0, 60 / max(len(ends), 1)) ** 0.5
    line_style = {"colors": "0.25", "linewidths": 0.5 + crowding, "alpha": 0.85 * crowding}
    links = matplotlib("collections").LineCollection(ends, **line_style, zorder=1)
    links.set_rasterized(len(ends) > VECTOR_LINKS)
    axes.add_collection(links)
    _draw_nodes(axes, positions, names)
    axes.set_aspect("equal", anchor="NW")
    axes.set(xlim=(-1.12, 1.12), ylim=(-1.12, 1.12))
    axes.axis("off")
    set_heading(axes, title, describe_network(weights))
    part_names(figure)
    return figure


def describe_network(weights: Weights) -> str:
    """Size and speed of a network in one line."""
    size = f"{counted(weights.n_nodes, 'node')}, {counted(weights.edges, 'link')}"
    return f"{size}, diameter {weights.spectrum.diameter}, beta {weights.spectrum.beta:.3f}"


def counted(count: int, noun: str) -> str:
    """A number with its noun: 1 link, 2 links."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def node_positions(graph: nx.Graph) -> np.ndarray:
    """Position of each node: (M, 2), centred, from -1 to 1.

    If node i is linked to i + 1 all the way round, the nodes form a circle. Otherwise linked nodes are near each other.
    """
    n_nodes = graph.number_of_nodes()
    if n_nodes == 1:
        return np.zeros((1, 2))
    if n_nodes > 2 and all(graph.has_edge(node, (node + 1) % n_nodes) for node in graph):
        angles = np.pi / 2 - 2 * np.pi * np.arange(n_nodes) / n_nodes
        return np.stack([np.cos(angles), np.sin(angles)], axis=1)
    small = n_nodes <= KAMADA_KAWAI_NODES
    layout = nx.kamada_kawai_layout(graph) if small else nx.spring_layout(graph, seed=0, iterations=100)
    positions = _upright(np.array([layout[node] for node in range(n_nodes)], dtype=float), graph)
    positions -= (positions.max(axis=0) + positions.min(axis=0)) / 2
    return np.asarray(positions / max(float(np.abs(positions).max()), 1e-12))


def _upright(positions: np.ndarray, graph: nx.Graph) -> np.ndarray:
    """Rotate the picture so that links run along the axes if possible, and it is not taller than wide."""
    ends = positions @ np.array([1, 1j])
    links = np.array([ends[a] - ends[b] for a, b in graph.edges])
    # The fourth power maps the four directions of the axes to one.
    turned = ends * np.exp(-0.25j * np.angle(np.sum(links**4)))
    if np.ptp(turned.imag) > np.ptp(turned.real):
        turned = turned * 1j
    return np.stack([turned.real, turned.imag], axis=1)


def _draw_nodes(axes: Axes, positions: np.ndarray, names: Sequence[str] | None) -> None:
    size = _circle_points(positions)
    labelled = size >= LABELLED_POINTS
    circle: Any = {"c": "white", "linewidths": 1.2} if labelled else {"c": "0.1", "linewidths": 0}
    axes.scatter(positions[:, 0], positions[:, 1], s=size**2, edgecolors="0.1", zorder=2, **circle)
    if not labelled:
        return
    for text, position in zip(short_names(range(len(positions)) if names is None else names), positions, strict=True):
        if len(text) <= 4:
            font = 8 if len(text) < 3 and size > 14 else 6
            axes.text(position[0], position[1], text, ha="center", va="center_baseline", fontsize=font, zorder=3)
        else:
            style: Any = {"fontsize": TEXT_SIZE - 1, "bbox": BEHIND_NAMES, "zorder": 3}
            # Away from the middle, where there are fewer links.
            outwards = position / np.linalg.norm(position) if position.any() else np.array([0.0, -1.0])
            draw_name(axes, text, position, (0.5 * size + 2) * outwards, **style)


def _circle_points(positions: np.ndarray) -> float:
    """Diameter of the circles such that hardly any two touch."""
    if len(positions) == 1:
        return 18.0
    distances = np.linalg.norm(positions[:, None] - positions[None], axis=-1)
    np.fill_diagonal(distances, np.inf)
    # One close pair must not shrink all circles.
    apart = float(np.quantile(distances.min(axis=1), 0.1)) * POINTS
    return float(np.clip(0.85 * apart, 2.5, 18.0))


# Pictures of a run: error against rounds, and the network; and components as images.


LARGEST_STRIP = 10


def run_picture(
    weights: Weights, result: Result, tol: float, *, title: str = "", names: Sequence[str] | None = None
) -> Figure:
    """Figure with the network on the left and the convergence on the right.

    Parameters
    ----------
    weights : Weights
        The network.
    result : Result
        The run.
    tol : float
        The tolerance of the run, which is drawn as a line.
    title : str
        The heading of the figure.
    names : sequence of str, optional
        The names of the nodes.
    """
    figure = new_figure(11.5, 5.4)
    if title:
        figure.suptitle(title, fontsize=TITLE_SIZE + 2)
    parts: Any = figure.subfigures(1, 2, width_ratios=[1, 1.2])
    convergence_picture(result, tol, ax=parts[1].subplots())
    return network_picture(weights, names, ax=parts[0].subplots())


def draw_components(figure: SubFigure, loadings: np.ndarray, image_shape: tuple[int, int], shares: np.ndarray) -> None:
    """Draw the first components as images: mid-grey is zero, darker is negative, lighter is positive."""
    n_pixels, n_features = image_shape[0] * image_shape[1], loadings.shape[1]
    if n_pixels != n_features:
        raise InputError(
            f"image_shape = {image_shape} has {n_pixels} pixels, but components have {n_features}; make them equal."
        )
    shown = loadings[:LARGEST_STRIP]
    title = f"Components 1 to {len(shown)} as images" if len(shown) > 1 else "Component 1 as an image"
    title += " (grey: zero, dark: negative, light: positive)"
    figure.suptitle(title, fontsize=TITLE_SIZE, fontweight="bold")
    panels = np.atleast_1d(figure.subplots(1, len(shown)))
    for k, (panel, component) in enumerate(zip(panels, shown, strict=True)):
        largest = float(np.abs(component).max())
        panel.imshow(component.reshape(image_shape), cmap="gray", vmin=-largest, vmax=largest)
        panel.set(xticks=[], yticks=[])
        panel.set_xlabel(f"{k + 1}: {shares[k]:.1%}", fontsize=TEXT_SIZE)


def convergence_picture(result: Result, tol: float, title: str = "Convergence", *, ax: Axes | None = None) -> Figure:
    """The residual against rounds, and the true error if it is known. The lines differ in dashes, not in colour.

    Parameters
    ----------
    result : Result
        The run.
    tol : float
        The tolerance of the run, which is drawn as a line.
    title : str
        The heading of the figure.
    ax : matplotlib.axes.Axes, optional
        Where to draw, if not in a new figure.
    """
    figure, axes = _place(ax, 7.0, 5.2)
    scale, yardstick = residual_scale(result.certificate)
    # The record of the certificate is drawn as the stop.
    history = tuple(record for record in result.history if np.isnan(record.bound))
    _draw_line(axes, history, [record.residual / scale for record in history], "-", yardstick)
    # The paper's error is the mean of sin^2; its root is an angle like the rest of the picture.
    errors = [float(np.sqrt(record.error)) for record in history]
    _draw_line(axes, history, errors, "--", "true error: root mean square of sin(angle)")
    axes.axhline(tol, color="0.1", linestyle=":", linewidth=1.2, label=f"tol = {tol:g}")
    bound, reason = result.certificate.error_bound, result.stop_reason.label.replace("_", " ")
    stop: Any = {"label": f"certificate at the stop ({reason}): sin(angle) at most {bound:.1e}", "markersize": 7}
    marker = "o" if result.converged else "X"
    axes.plot([result.traffic.rounds], [bound], marker, color="0.1", clip_on=False, zorder=4, **stop)
    axes.set_yscale("log")
    axes.set_xlim(left=0)
    draw_frame(axes, "rounds of neighbour exchange", "sine of the angle to the true components")
    axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.14), fontsize=TEXT_SIZE, frameon=False)
    traffic = result.traffic
    sent = f"{traffic.rounds:,} rounds, {traffic.messages:,} messages, {readable_bytes(traffic.bytes)} sent"
    set_heading(axes, title, f"{result.solver}: {sent}")
    return figure


def residual_scale(certificate: Certificate) -> tuple[float, str]:
    """Divisor that turns residuals into angles, and the name of the quotient.

    It is the smallest gap, since sin(angle) is at most residual / gap. Without a gap it is the largest eigenvalue.
    """
    gaps = certificate.gaps[np.isfinite(certificate.gaps)]
    if len(gaps) and gaps.min() > 0:
        return float(gaps.min()), "estimate of the nodes: largest residual / smallest gap"
    return max(float(certificate.values[0]), np.finfo(float).tiny), "largest residual / largest eigenvalue"


def _draw_line(axes: Axes, history: tuple[Record, ...], values: list[float], dashes: str, label: str) -> None:
    points = [(r.rounds, value) for r, value in zip(history, values, strict=True) if np.isfinite(value) and value > 0]
    if points:
        marker = "." if len(points) < 30 else ""
        axes.plot(*zip(*points, strict=True), dashes, marker=marker, color="0.1", linewidth=1.6, label=label)
