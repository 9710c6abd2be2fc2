"""Live progress in notebooks, and a fitted estimator in one."""

import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from eigenmesh import DecentralizedPCA
from eigenmesh.events import Ended, Entry, Record, Started
from eigenmesh.report.notebook import notebook, notebook_progress

STARTED = Started("oi", "tree", ("a", "b"), (("a", "b"),), 4, 2, 1e-6, 100)
CODE = """
import numpy as np
from eigenmesh import DecentralizedPCA, StreamingPCA
X = np.random.default_rng(0).standard_normal((200, 30)) * np.linspace(3, 1, 30)
pca = DecentralizedPCA(2, n_nodes=3, verbose=True, random_state=0).fit(X)
stream = StreamingPCA(2, n_nodes=3, verbose=True).partial_fit(X)
pca
"""


def test_a_notebook_shows_a_fit_as_a_picture_and_what_came_out():
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    page = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CODE)])
    nbclient.NotebookClient(page, timeout=300, kernel_name="python3").execute()
    shown = [one for one in page.cells[0].outputs if one.output_type != "stream"]
    first, second, estimator = (one["data"]["text/html"] for one in shown)
    assert re.search(r"certified bound \S+e-\d+ \(target 1e-06\)", first)
    assert "converged" in first
    assert "<polyline" in first
    # A batch leaves nothing behind.
    assert second == ""
    assert "sin(angle) at most" in estimator


def told(points):
    """What a notebook is shown of a run with these bounds."""
    shown = []

    def put(html):
        shown.append(html)
        return shown.append

    with notebook_progress(put, keep=True) as listen:
        listen(Entry(10.0, STARTED))
        for number, bound in enumerate(points, start=1):
            listen(Entry(10.0 + number, Record(number, 7 * number, 0, 0, 1000, 0.5**number, bound=bound)))
        listen(Entry(13.0, Ended("done", True)))
    return shown


def test_the_last_picture_is_that_of_the_whole_run():
    shown = told([np.nan, 1e-2, 1e-8])
    assert "Preparing." in shown[0]
    assert "round 21 of a budget of 100, 1.0 kB sent, certified bound 1.0e-08 (target 1e-06), 3.0 s" in shown[-1]
    curves = dict(re.findall(r'<polyline points="([^"]*)".*?<title>([^<]*)', shown[-1]))
    bound = next(points for points, words in curves.items() if words == "certified bound")
    # From 1e0 down to 1e-8: rounds 14 and 21 of 21, at a quarter of the height and at its end.
    assert bound.split()[:2] == ["320.0,30.0", "480.0,120.0"]


def test_a_picture_without_a_point_or_with_one_is_words_alone():
    assert "<svg" not in told([])[-1]
    assert "<svg" not in told([0.5])[-1]


def test_marimo_gets_what_it_can_replace(monkeypatch):
    assert notebook() is None
    shown = []
    stand_in = SimpleNamespace(
        running_in_notebook=lambda: True, Html=lambda text: text, output=SimpleNamespace(replace=shown.append)
    )
    monkeypatch.setitem(sys.modules, "marimo", stand_in)
    notebook()("first")("second")
    assert shown == ["first", "second"]
    stand_in.running_in_notebook = lambda: False
    assert notebook() is None


def test_an_estimator_shows_its_result_once_it_has_one():
    pca = DecentralizedPCA(2, n_nodes=3, random_state=0)
    assert "sin(angle) at most" not in pca._repr_mimebundle_()["text/html"]
    pca.fit(np.random.default_rng(0).standard_normal((60, 6)) * [5, 4, 3, 1, 1, 1])
    for shown in (pca._repr_mimebundle_()["text/html"], pca._repr_html_()):
        assert shown.endswith(pca.result_._repr_html_())
