"""Create and save figures without a screen."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from eigenmesh._atomic_write import require_writable, write_atomically
from eigenmesh.errors import InputError, import_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    place: Any = {"xycoords": "axes fraction", "xytext": (0, 6), "textcoords": "offset points"}
    axes.annotate(subtitle, (0, 1), **place, fontsize=TEXT_SIZE, annotation_clip=False)


def draw_frame(axes: Axes, x: str, y: str) -> None:
    """Names of the axes, a light grid, and no lines at the top and on the right."""
    axes.set_xlabel(x, fontsize=TEXT_SIZE)
    axes.set_ylabel(y, fontsize=TEXT_SIZE)
    axes.tick_params(labelsize=TEXT_SIZE)
    axes.grid(color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def require_picture(path: str | os.PathLike[str]) -> Path:
    """Raise before any work if a picture cannot be drawn or written there."""
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"cannot draw {path}: its suffix is {path.suffix!r}; pictures end in {', '.join(SUFFIXES)}.")
    path = require_writable(path)
    matplotlib("figure")
    return path


def save_picture(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write the figure atomically as PNG, SVG or PDF, by the suffix of the path."""
    path = require_picture(path)
    write_atomically(path, lambda file: write_figure(figure, file, path.suffix.lower().removeprefix(".")))
    return path


def write_figure(figure: Figure, file: Any, kind: str, fonttype: str = "none") -> None:
    """Write a figure so that the same run gives the same bytes; by default text stays text in an SVG."""
    without = {"svg": ("Creator", "Date", "Format", "Type"), "pdf": ("CreationDate",)}
    metadata = dict.fromkeys(without[kind]) if kind in without else None
    settings = {"svg.fonttype": fonttype, "svg.hashsalt": "eigenmesh"}
    with import_extra("matplotlib", "report", "drawing a picture").rc_context(settings):
        figure.savefig(file, format=kind, dpi=DOTS_PER_INCH, metadata=metadata)
