"""Pictures of a run: error against rounds; with the network and, for images, the components."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from eigenmesh._text import readable_bytes
from eigenmesh.certificate import Certificate
from eigenmesh.errors import InputError
from eigenmesh.events import Record
from eigenmesh.graphs import Weights
from eigenmesh.iteration._result import Result
from eigenmesh.report._names import part_names
from eigenmesh.report._network_picture import draw_network
from eigenmesh.report._pictures import TEXT_SIZE, TITLE_SIZE, draw_frame, new_figure, set_heading

if TYPE_CHECKING:
    from matplotlib.axes import Axes
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
    """Figure with the network, its nodes with ``names``, on the left and the convergence on the right.

    image_shape: (rows, columns) if each sample is an image; the components are then drawn below. total_variance: trace
    of the covariance, to write each component's share under it.
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
    part_names(figure)
    return figure


def draw_components(figure: SubFigure, result: Result, image_shape: tuple[int, int], total: float | None) -> None:
    """Draw the first components as images: mid-grey is zero, darker is negative, lighter is positive."""
    n_pixels, n_features = image_shape[0] * image_shape[1], result.components.shape[1]
    if n_pixels != n_features:
        raise InputError(
            f"image_shape = {image_shape} has {n_pixels} pixels, but components have {n_features}; make them equal."
        )
    shown = result.components[:LARGEST_STRIP]
    title = f"Components 1 to {len(shown)} as images" if len(shown) > 1 else "Component 1 as an image"
    title += " (grey: zero, dark: negative, light: positive)"
    figure.suptitle(title, fontsize=TITLE_SIZE, fontweight="bold")
    panels = np.atleast_1d(figure.subplots(1, len(shown)))
    for k, (panel, component) in enumerate(zip(panels, shown, strict=True)):
        largest = float(np.abs(component).max())
        panel.imshow(component.reshape(image_shape), cmap="gray", vmin=-largest, vmax=largest)
        panel.set(xticks=[], yticks=[])
        share = "" if total is None else f": {result.explained_variance[k] / total:.1%}"
        panel.set_xlabel(f"{k + 1}{share}", fontsize=TEXT_SIZE)


def convergence_picture(result: Result, tol: float, title: str = "Convergence") -> Figure:
    """Figure of the residual against rounds, and of the true error if it is known."""
    figure = new_figure(7.0, 5.2)
    draw_convergence(figure.subplots(), result, tol, title)
    return figure


def draw_convergence(axes: Axes, result: Result, tol: float, title: str = "Convergence") -> None:
    """Draw a run into axes; the lines differ in dashes, so that no colour is needed."""
    scale, yardstick = residual_scale(result.certificate)
    # The record of the certificate is drawn as the stop.
    history = tuple(record for record in result.history if np.isnan(record.bound))
    _draw_line(axes, history, [record.residual / scale for record in history], "-", yardstick)
    # The paper's error is the mean of sin^2; its root is an angle like the rest of the picture.
    errors = [float(np.sqrt(record.error)) for record in history]
    _draw_line(axes, history, errors, "--", "true error: root mean square of sin(angle)")
    _draw_restarts(axes, history)
    _draw_certificates(axes, history, result.traffic.rounds)
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


def residual_scale(certificate: Certificate) -> tuple[float, str]:
    """Divisor that turns residuals into angles, and the name of the quotient.

    The smallest gap, since sin(angle) is at most residual / gap; without a gap, the largest eigenvalue.
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


def _draw_restarts(axes: Axes, history: tuple[Record, ...]) -> None:
    steps = [(record.rounds, record.step_size) for record in history if np.isfinite(record.step_size)]
    shorter = [later[0] for former, later in pairwise(steps) if later[1] < former[1]]
    if shorter:
        label = f"step shortened ({len(shorter)} times)" if len(shorter) > 1 else "step shortened (once)"
        style: Any = {"color": "white", "markeredgecolor": "0.1", "transform": axes.get_xaxis_transform()}
        axes.plot(shorter, [0.02] * len(shorter), "v", label=label, **style)


def _draw_certificates(axes: Axes, history: tuple[Record, ...], end_of_run: int) -> None:
    """Shade the rounds of certificates, in which the iterates do not change."""
    rounds = [record.rounds for record in history]
    usual = float(np.median(np.diff(rounds))) if len(rounds) > 1 else 0.0
    # A check adds some rounds to an iteration; a certificate takes several times as many.
    spans = [(a, b - usual) for a, b in pairwise(rounds) if b - a > 2 * usual + 10]
    spans.append((rounds[-1] if rounds else 0, end_of_run))
    for number, (start, end) in enumerate(spans):
        label = "a certificate is computed" if number == 0 else None
        axes.axvspan(start, end, color="0.9", linewidth=0, zorder=0, label=label)
