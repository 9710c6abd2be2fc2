"""A result as a small piece of HTML, for notebooks: tables and sentences, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eigenmesh.iteration._result import Result


def result_html(result: Result) -> str:
    """Components with their bounds, what was sent in each phase, and the certificate in words."""
    state = "converged" if result.converged else f"not converged ({result.stop_reason.label})"
    title = f"{result.solver} on {result.n_nodes} nodes: {state} after {result.iterations} iterations"
    sentences = [f"<p>{escape(sentence)}</p>" for sentence in _sentences(result)]
    return f"<div><p><b>{escape(title)}</b></p>{_components(result)}{''.join(sentences)}{_traffic(result)}</div>"


def _components(result: Result) -> str:
    total, bounds = result.total_variance, result.certificate.error_bounds
    rows = [
        [str(k + 1), f"{value:.6g}", *([] if total is None else [f"{value / total:.2%}"]), f"{bounds[k]:.1e}"]
        for k, value in enumerate(result.explained_variance)
    ]
    return _table(["component", "variance", *([] if total is None else ["share"]), "sin(angle) at most"], rows)


def _traffic(result: Result) -> str:
    sent = {**result.traffic_by_phase, "all": result.traffic}
    rows = [[phase, f"{one.rounds}", f"{one.messages}", f"{one.bytes}"] for phase, one in sent.items()]
    return _table(["phase", "rounds", "messages", "bytes"], rows)


def _sentences(result: Result) -> Iterable[str]:
    yield (
        "The sine of the angle between a component at any node and the true one is at most "
        f"{result.certificate.error_bound:.1e}."
    )
    for note in result.certificate.warnings:
        yield f"{note[0].upper()}{note[1:]}."
    if not result.converged:
        yield result.stop_reason.advice


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line("td", row) for row in rows)
    return f"<table><thead>{line('th', head)}</thead><tbody>{body}</tbody></table>"
