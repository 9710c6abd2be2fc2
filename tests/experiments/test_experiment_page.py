"""The paper's settings, the page made of them and its pictures."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
from small import made_up, small_panel

from eigenmesh.experiments.catalogue import FIGURES, figure_1, figure_2, figure_3, unlike_experiment
from eigenmesh.experiments.claims import CostRow, check_claims
from eigenmesh.experiments.experiment import DataSet, Experiment, Method
from eigenmesh.experiments.figures import STYLES, Axis, errors_picture, panel_svg, styles_of
from eigenmesh.experiments.pages import Chapter, PanelResult, experiments_page
from eigenmesh.solvers import DSA, SADOT, SDOT, FastPCA, SequentialDistributedPower

EIGHT = ["OI", "SeqPM", "SeqDistPM", "S-DOT", "SA-DOT", "DeEPCA", "DSA", "FAST-PCA"]
# Elements that HTML leaves open.
VOID = {"meta", "img", "br"}


class Reader(HTMLParser):
    """Checks that elements nest, and collects what a page refers to and says."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []
        self.pictures: list[bytes] = []
        self.text: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attributes:
            if name in ("src", "href", "data", "action", "poster"):
                self.references.append(value)
                if value.startswith("data:image/svg+xml;base64,"):
                    self.pictures.append(base64.b64decode(value.partition(",")[2]))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def assert_self_contained(html: str) -> Reader:
    page = Reader(html)
    assert all(reference.startswith(("data:", "#")) for reference in page.references)
    assert "<script" not in html
    assert "<link" not in html
    assert not re.search(r"url\(|@import", html)
    for picture in page.pictures:
        svg = picture.decode()
        ElementTree.fromstring(svg)
        assert not re.search(r'(href|src)="(?!#)', svg)
    return page


def results_of(experiment: Experiment) -> list[PanelResult]:
    """Made-up results: method number n falls by a tenth every n + 1 rounds."""
    panels = []
    for panel in experiment.panels:
        rows, runs = [], []
        for number, method in enumerate(panel.methods):
            curves = [made_up(10.0 ** (-np.arange(1, 30) / (number + 1 + trial))) for trial in range(2)]
            rows.append(CostRow.of(method, curves))
            runs.append(curves)
        panels.append(PanelResult(panel, rows, runs))
    return panels


def test_figures_have_the_settings_of_the_paper():
    for make, kind in ((figure_1, "paper"), (figure_2, "equal")):
        panels = make().panels
        assert [(panel.topology, panel.data.name, panel.data.split) for panel in panels] == [
            (topology, f"synthetic:kind={kind},d=20,k=5,gap={gap},n=100000", "contiguous")
            for topology in ("erdos_renyi", "cycle")
            for gap in (0.8, 0.97)
        ]
        for panel in panels:
            assert (panel.n_nodes, panel.n_components) == (20, 5)
            assert_eight(panel, step=0.7 if panel.topology == "erdos_renyi" else 0.1)
    mnist, cifar = figure_3().panels
    assert (mnist.data, mnist.n_components) == (DataSet("mnist"), 10)
    assert (cifar.data, cifar.n_components) == (DataSet("cifar10", unit=True), 5)
    assert_eight(mnist, step=0.1)
    assert_eight(cifar, step=0.8)
    assert {panel.topology for panel in (mnist, cifar)} == {"erdos_renyi"}
    assert {panel.n_nodes for panel in (mnist, cifar)} == {20}


def assert_eight(panel, step):
    assert [method.label for method in panel.methods] == EIGHT
    solvers = {type(method.solver): method.solver for method in panel.methods}
    assert solvers[FastPCA] == FastPCA(step_size=step)
    assert solvers[DSA] == DSA(step_size=step)
    assert solvers[SDOT].mixes == solvers[SADOT].cap == solvers[SequentialDistributedPower].mixes == 50


@pytest.mark.parametrize("name", FIGURES)
def test_budget_of_a_figure_can_be_set(name):
    experiment = FIGURES[name](70)
    assert {panel.rounds for panel in experiment.panels} == {70}
    assert experiment.says


@pytest.mark.slow
def test_page_is_whole_self_contained_and_names_every_method():
    experiment = figure_1()
    panels = results_of(experiment)
    findings = check_claims([(result.panel.title, result.rows) for result in panels], nearly_equal=False)
    html = experiments_page("Title & more", [Chapter(experiment, panels, findings)], {"command": "eigenmesh <x>"})
    page = assert_self_contained(html)
    assert len(page.pictures) == 4
    text = " ".join(page.text)
    for words in (*EIGHT, "Title & more", "eigenmesh <x>", "Erdős–Rényi, gap 0.97", "supported", experiment.says):
        assert words in text
    for row in panels[0].rows:
        assert f"{row.typical('rounds')[0]:,.0f}" in page.text
    alternatives = re.findall(r'alt="([^"]*)"', html)
    assert all(label in words for words in alternatives for label in EIGHT)
    assert 'name="viewport"' in html


def test_page_says_what_is_missing_and_shows_the_rest():
    experiment = figure_3()
    mnist, cifar = results_of(experiment)
    gone = PanelResult(cifar.panel, missing="cifar10_gray.npz was not found; put it into /there")
    page = assert_self_contained(experiments_page("t", [Chapter(experiment, [mnist, gone])], {}))
    text = " ".join(page.text)
    assert len(page.pictures) == 1
    assert "CIFAR-10, K = 5 is not shown. cifar10_gray.npz was not found; put it into /there" in text
    nothing = PanelResult(mnist.panel, missing="mnist.npz was not found")
    page = assert_self_contained(experiments_page("t", [Chapter(experiment, [nothing, gone])], {}))
    assert page.pictures == []
    assert "mnist.npz was not found" in " ".join(page.text)


def test_page_says_plainly_when_a_claim_rests_on_counting():
    ours, theirs = (Method(name, FastPCA(step_size=step)) for name, step in (("FAST-PCA", 0.1), ("OI", 0.2)))
    rounds = np.arange(1, 200)
    fast = made_up(10.0 ** (-rounds / 12), rounds=rounds, matrices=2 * rounds)
    slow = made_up(10.0 ** (-rounds / 10))
    rows = [CostRow.of(ours, [fast]), CostRow.of(theirs, [slow])]
    panel = small_panel(methods=(ours, theirs))
    experiment = Experiment("fig1", "Figure 1: x", "says", {}, (panel,))
    findings = check_claims([(panel.title, rows)], nearly_equal=False)
    html = experiments_page("t", [Chapter(experiment, [PanelResult(panel, rows, [[fast], [slow]])], findings)], {})
    page = assert_self_contained(html)
    assert "<td>FAST-PCA is close to centralised OI</td><td>supported</td><td>not supported</td>" in html
    # The numbers behind both verdicts are there as well.
    assert sum(words.startswith("1e-2: ") for words in page.text) == 2


def test_unlike_page_counts_problems():
    experiment = unlike_experiment(quick=True)
    panels = results_of(experiment)[:2]
    page = assert_self_contained(experiments_page("t", [Chapter(experiment, panels)], {"command": "x"}))
    assert "2 of 2" in " ".join(page.text)
    assert "300 rounds per run" in " ".join(page.text)


def test_lines_can_be_told_apart_without_colour():
    looks = [(str(style.dashes), style.marker) for style in STYLES.values()]
    assert len(set(looks)) == len(looks)
    (result, *_) = results_of(figure_1())
    styles = styles_of([*result.lines, result.lines[0], result.lines[0]])
    assert len(set(styles)) == 10


def test_picture_has_a_legend_with_every_method_and_the_medians():
    panels = results_of(figure_1())
    figure = errors_picture([Axis(p.panel.title, "", p.lines) for p in panels], "Title")
    (legend,) = figure.legends
    named = [text.get_text() for text in legend.get_texts()]
    assert named == ["OI (centralised)", "SeqPM (centralised)", *EIGHT[2:]]
    assert len(figure.axes) == 4
    (line,) = [line for line in figure.axes[0].get_lines() if line.get_label() == "FAST-PCA"]
    cost, error = line.get_data()
    np.testing.assert_allclose(cost, panels[0].lines[-1].cost)
    np.testing.assert_allclose(error, panels[0].lines[-1].median)


def test_svg_of_a_panel_is_the_same_every_time():
    (result, *_) = results_of(figure_2())
    axis = Axis("title", "subtitle", result.lines)
    assert panel_svg(axis) == panel_svg(axis)
