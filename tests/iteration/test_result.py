"""How results show themselves: short in a terminal, as a table in a notebook."""

from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from eigenmesh import DecentralizedPCA, StopReason, graphs

NEVER_CLOSED = {"br", "hr", "img", "input", "link", "meta"}


class Reader(HTMLParser):
    """Texts of the cells, row by row, and an error for tags that do not match."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.rows, self.text = [], [], []

    def handle_starttag(self, tag, attributes):
        assert tag not in NEVER_CLOSED
        assert not attributes
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1] in ("td", "th"):
            self.rows[-1].append(data)
        else:
            self.text.append(data)


def read(html):
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def pca():
    X = np.random.default_rng(0).standard_normal((200, 6)) * [8, 4, 2, 1, 1, 1]
    return DecentralizedPCA(3, n_nodes=4, topology="cycle").fit(X)


def test_reprs_are_short(pca):
    result, bound = pca.result_, pca.certificate_.error_bound
    assert repr(result) == (
        f"Result(solver='block-krylov', n_components=3, n_nodes=4, converged=True, error_bound={bound:.2g}, "
        f"rounds={pca.traffic_.rounds}, bytes={pca.traffic_.bytes})"
    )
    chance = pca.certificate_.chance
    assert repr(pca.certificate_) == (
        f"Certificate(n_components=3, error_bound={bound:.2g}, chance={chance:.1g}, clusters=(), warnings=0)"
    )
    assert repr(graphs.metropolis(graphs.topologies.complete(3))).startswith("Weights(n_nodes=3, edges=3, beta=")


def test_a_plan_shows_the_best_of_its_forecasts(pca):
    plan = pca.plan(np.random.default_rng(0).standard_normal((200, 6)))
    shown = repr(plan)
    for part in (repr(plan.best.solver), repr(plan.best.averaging), f"forecasts={len(plan.forecasts)}"):
        assert part in shown
    assert len(shown) < 200


def test_a_notebook_shows_the_figures(pca):
    result = pca.result_
    page = read(result._repr_html_())
    components, sent = page.rows[:4], page.rows[4:]
    assert components[0] == ["component", "variance", "share", "sin(angle) at most"]
    for k, row in enumerate(components[1:]):
        value, share = pca.explained_variance_[k], pca.explained_variance_ratio_[k]
        assert row == [str(k + 1), f"{value:.6g}", f"{share:.2%}", f"{result.certificate.error_bounds[k]:.1e}"]
    assert sent[0] == ["phase", "rounds", "messages", "bytes"]
    assert [row[0] for row in sent[1:]] == ["set-up", "iterations", "checks", "certificate", "all"]
    figures = np.array([[int(cell) for cell in row[1:]] for row in sent[1:]])
    assert (figures[:-1].sum(axis=0) == figures[-1]).all()
    assert figures[-1].tolist() == [result.traffic.rounds, result.traffic.messages, result.traffic.bytes]
    words = " ".join(page.text)
    assert "block-krylov on 4 nodes: converged" in words
    assert f"at most {result.certificate.error_bound:.1e}" in words


def test_a_notebook_shows_the_certificate_alone(pca):
    certificate = pca.certificate_
    page = read(certificate._repr_html_())
    assert page.rows[0] == ["component", "eigenvalue", "residual", "gap", "sin(angle) at most"]
    assert [row[1] for row in page.rows[1:]] == [f"{value:.6g}" for value in certificate.values]
    assert [row[4] for row in page.rows[1:]] == [f"{bound:.1e}" for bound in certificate.error_bounds]
    assert f"missed is at most {max(certificate.chance, 1e-300):.1e}" in " ".join(page.text)


def test_a_notebook_is_told_what_to_know(pca):
    uncertain = replace(pca.certificate_, clusters=((0, 1),))
    short = replace(
        pca.result_,
        stop_reason=StopReason.MAX_ROUNDS,
        certificate=uncertain,
        solver="<b>mine</b>",
        total_variance=np.nan,
    )
    page = read(short._repr_html_())
    # A run that was not told the total variance shows no share of it.
    assert page.rows[0] == ["component", "variance", "sin(angle) at most"]
    words = " ".join(page.text)
    assert "<b>mine</b> on 4 nodes: not converged (max_rounds)" in words
    assert "Components 1, 2 have eigenvalues too close to tell apart" in words
    assert StopReason.MAX_ROUNDS.advice in words
    assert "http" not in short._repr_html_()
