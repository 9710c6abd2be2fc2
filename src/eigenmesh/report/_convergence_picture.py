"""A picture of a run: error against rounds."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from eigenmesh._text import readable_bytes
from eigenmesh.certificate._certify import Certificate
from eigenmesh.events import Record
from eigenmesh.iteration._result import Result
from eigenmesh.report._pictures import TEXT_SIZE, new_figure, set_heading

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
    _draw_stop(axes, result)
    axes.set_yscale("log")
    axes.set_xlim(left=0)
    axes.set_xlabel("rounds of neighbour exchange", fontsize=TEXT_SIZE + 1)
    axes.set_ylabel("sine of the angle to the true components", fontsize=TEXT_SIZE + 1)
    axes.tick_params(labelsize=TEXT_SIZE)
    axes.grid(color="0.88", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
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
        return float(gaps.min()), "what the nodes see: largest residual / smallest gap"
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
    # A check adds to the usual distance; a certificate takes several times as many rounds.
    spans = [(a, b - usual) for a, b in pairwise(rounds) if b - a > 2 * usual + 10]
    spans.append((rounds[-1] if rounds else 0, end_of_run))
    for number, (start, end) in enumerate(spans):
        label = "a certificate is being made" if number == 0 else None
        axes.axvspan(start, end, color="0.9", linewidth=0, zorder=0, label=label)


def _draw_stop(axes: Axes, result: Result) -> None:
    rounds, bound = result.traffic.rounds, result.certificate.error_bound
    marker, reason = "o" if result.converged else "X", result.stop_reason.label.replace("_", " ")
    label = f"certificate at the stop ({reason}): sin(angle) at most {bound:.1e}"
    axes.plot([rounds], [bound], marker, color="0.1", markersize=7, clip_on=False, zorder=4, label=label)
