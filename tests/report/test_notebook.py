"""Live progress in notebooks, and a fitted estimator in one."""

import json
import re
import sys
from html import unescape
from types import SimpleNamespace

import numpy as np
import pytest

from eigenmesh import DecentralizedPCA
from eigenmesh.events import Ended, Entry, Record, Started
from eigenmesh.report.notebook import MOST_EVENTS, notebook, notebook_progress

STARTED = Started("oi", "tree", ("a", "b"), (("a", "b"),), 4, 2, 1e-6, 100)
CODE = """
import numpy as np
from eigenmesh import DecentralizedPCA, StreamingPCA
X = np.random.default_rng(0).standard_normal((200, 30)) * np.linspace(3, 1, 30)
pca = DecentralizedPCA(2, n_nodes=3, verbose=True, random_state=0).fit(X)
stream = StreamingPCA(2, n_nodes=3, verbose=True).partial_fit(X)
pca
"""


def events_of(shown):
    """The events of the page in a frame, without the words of its script."""
    page = unescape(re.fullmatch(r"<iframe [^>]*srcdoc=\"([^\"]*)\"></iframe>", shown)[1])
    return json.loads(re.search(r'id="run">(.*?)</script>', page, re.DOTALL)[1])["events"]


def test_a_notebook_shows_a_fit_as_a_page_and_what_came_out():
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    page = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CODE)])
    nbclient.NotebookClient(page, timeout=300, kernel_name="python3").execute()
    shown = [one for one in page.cells[0].outputs if one.output_type != "stream"]
    first, second, estimator = (one["data"]["text/html"] for one in shown)
    events = events_of(first)
    assert [event["tol"] for event in events if event["kind"] == "started"] == [1e-6]
    bounds = [event["bound"] for event in events if event["kind"] == "record"]
    assert next(bound for bound in reversed(bounds) if bound is not None) < 1e-6
    assert [event["converged"] for event in events if event["kind"] == "ended"] == [True]
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


def test_the_last_page_is_that_of_the_whole_run():
    shown = told([np.nan, 1e-2, 1e-8])
    assert events_of(shown[0]) == []
    started, *records, ended = events_of(shown[-1])
    assert (started["max_rounds"], started["tol"]) == (100, 1e-6)
    assert [(one["rounds"], one["bytes"], one["bound"]) for one in records] == [
        (7, 1000, None),
        (14, 1000, 1e-2),
        (21, 1000, 1e-8),
    ]
    assert (ended["kind"], ended["time_s"] - started["time_s"]) == ("ended", 3.0)


def test_the_page_of_a_long_run_is_small_and_has_its_last_record():
    shown = told(np.geomspace(1.0, 1e-8, 20 * MOST_EVENTS))
    events = events_of(shown[-1])
    assert len(events) <= MOST_EVENTS
    assert events[-2]["bound"] == pytest.approx(1e-8)


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
