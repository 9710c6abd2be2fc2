"""A picture of error against seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from eigenmesh.report._error_picture import LEAST_ERROR, SPARE_STYLES, STYLES
from eigenmesh.report._pictures import TEXT_SIZE, draw_frame, new_figure, set_heading

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKERS = 8


def seconds_picture(curves: Mapping[str, np.ndarray], title: str, subtitle: str) -> Figure:
    """Figure of the mean error against seconds; curves by name, (n, 2) each: seconds and errors."""
    figure = new_figure(7.5, 5.2)
    axes, spare = figure.subplots(), iter(SPARE_STYLES * len(curves))
    for name, curve in curves.items():
        style = STYLES.get(name) or next(spare)
        every = max(1, len(curve) // MARKERS)
        look = {"color": style.colour, "linestyle": style.dashes, "marker": style.marker, "linewidth": style.width}
        axes.plot(curve[:, 0], np.maximum(curve[:, 1], LEAST_ERROR), label=name, markersize=5, markevery=every, **look)
    axes.set(yscale="log", ylim=(LEAST_ERROR, 2), xlim=(0, None))
    draw_frame(axes, "virtual seconds", "error: mean of sin²(angle)")
    set_heading(axes, title, subtitle)
    axes.legend(fontsize=TEXT_SIZE, frameon=False)
    return figure
