"""A picture of a run: network, convergence and, for images, the components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from eigenmesh.errors import InputError
from eigenmesh.graphs import Weights
from eigenmesh.iteration._result import Result
from eigenmesh.report._convergence_picture import draw_convergence
from eigenmesh.report._network_picture import draw_network
from eigenmesh.report._pictures import TEXT_SIZE, TITLE_SIZE, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

LARGEST_STRIP = 10


def run_picture(
    weights: Weights,
    result: Result,
    tol: float,
    *,
    title: str = "",
    names: Sequence[str] | None = None,
    image_shape: tuple[int, int] | None = None,
    total_variance: float | None = None,
) -> Figure:
    """Figure with the network on the left and the convergence on the right.

    Parameters
    ----------
    names : names of the nodes.
    image_shape : (rows, columns) if each sample is an image; the components are then drawn below.
    total_variance : trace of the covariance, to write each component's share under it.
    """
    figure = new_figure(11.5, 5.4 if image_shape is None else 7.6)
    if title:
        figure.suptitle(title, fontsize=TITLE_SIZE + 2)
    # matplotlib returns an array of subfigures or a single one; the types do not say which.
    upper: Any = figure
    if image_shape is not None:
        upper, lower = upper.subfigures(2, 1, height_ratios=[5.4, 2.2])
        draw_components(lower, result, image_shape, total_variance)
    left, right = upper.subfigures(1, 2, width_ratios=[1, 1.2])
    draw_network(left.subplots(), weights, names)
    draw_convergence(right.subplots(), result, tol)
    return figure


def draw_components(
    figure: Figure | SubFigure, result: Result, image_shape: tuple[int, int], total_variance: float | None = None
) -> None:
    """Draw the first components as images: mid-grey is zero, darker is negative, lighter is positive."""
    n_pixels, n_features = image_shape[0] * image_shape[1], result.components.shape[1]
    if n_pixels != n_features:
        problem = f"image_shape = {image_shape} has {n_pixels} pixels, but components have {n_features} features"
        raise InputError(f"{problem}; make them equal.")
    shown = result.components[:LARGEST_STRIP]
    subject = f"Components 1 to {len(shown)} as images" if len(shown) > 1 else "Component 1 as an image"
    legend = "(grey: zero, dark: negative, light: positive)"
    figure.suptitle(f"{subject} {legend}", fontsize=TITLE_SIZE, fontweight="bold")
    panels = np.atleast_1d(figure.subplots(1, len(shown)))
    for k, (panel, component) in enumerate(zip(panels, shown, strict=True)):
        largest = float(np.abs(component).max())
        panel.imshow(component.reshape(image_shape), cmap="gray", vmin=-largest, vmax=largest)
        panel.set(xticks=[], yticks=[])
        share = "" if total_variance is None else f": {result.explained_variance[k] / total_variance:.1%}"
        panel.set_xlabel(f"{k + 1}{share}", fontsize=TEXT_SIZE)
