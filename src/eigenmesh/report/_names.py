"""Names in pictures: shortened but different, and placed so that they do not overlap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from eigenmesh.report._pictures import matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    look: Any = {"textcoords": "offset points", "xytext": (offset[0], offset[1]), "gid": MOVABLE}
    axes.annotate(text, (point[0], point[1]), **look, **style).set_in_layout(False)


def part_names(figure: Figure) -> None:
    """Move each name to a side of its point where it is inside the picture and covers no other name or legend.

    The side on which it was put is tried first; sides where it would cover no other named point are preferred. A name
    without a free side is hidden. Names are placed in order, so earlier ones choose first.
    """
    figure.draw_without_rendering()
    names: list[Any] = figure.findobj(lambda artist: artist.get_gid() == MOVABLE)
    points = [_around(name) for name in names]
    taken: list[Any] = [legend.get_window_extent().padded(8) for legend in figure.legends]
    for at, name in enumerate(names):
        others = points[:at] + points[at + 1 :]
        box = _place(name, taken + others) or _place(name, taken)
        name.set_visible(box is not None)
        taken += [] if box is None else [box]


def _around(name: Any) -> Any:
    """The box of the point that a name belongs to, in pixels."""
    (x, y), size = name.axes.transData.transform(name.xy), np.hypot(*name.xyann)
    half = 0.8 * size * name.axes.figure.dpi / 72
    return matplotlib("transforms").Bbox.from_extents(x - half, y - half, x + half, y + half)


def _place(name: Any, taken: list[Any]) -> Any:
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
