"""Pages in a real browser: what they show of real runs, at two widths, light and dark, and what they ask for."""

import re
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest
from typer.testing import CliRunner

from eigenmesh import StreamingPCA
from eigenmesh.cli import app
from eigenmesh.data import Shards
from eigenmesh.events import (
    Ended,
    Entry,
    EventLog,
    EventReader,
    JsonlWriter,
    LinkLatency,
    LinkTraffic,
    Members,
    NeighbourStatus,
    Planned,
    Record,
    Started,
)
from eigenmesh.fitting import NodeData, Request, fit, prepare
from eigenmesh.graphs import metropolis
from eigenmesh.graphs.topologies import cycle
from eigenmesh.report.notebook import notebook_progress
from eigenmesh.report.page import Feed, PageServer, report_page
from mesh import Mesh, ring

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
# On a busy machine a browser takes its time.
LIMIT_MS = 120_000
LOOKS = [(1400, "light"), (1400, "dark"), (390, "light"), (390, "dark")]


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        # Tests may run as root, where Chromium has no sandbox.
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=LIMIT_MS)
        yield launched
        launched.close()


@pytest.fixture
def run(tmp_path):
    """A listener that writes the events of a run to a file, which pages read."""
    with JsonlWriter(tmp_path / "live.jsonl") as writer:
        yield writer


@contextmanager
def opened(browser, address, width=1400, scheme="light"):
    """A page without a word on the console, that asks its own host alone."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.set_default_timeout(LIMIT_MS)
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    yield page
    assert said == []
    assert {url.split("?")[0].removesuffix("events") for url in asked} == {address.split("?")[0]}
    page.close()


def no_serious_finding(page):
    """None of the rules that axe calls serious or critical is broken."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    found = axe.Axe().run(page).response["violations"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")] == []


def cells(page, rows):
    """The words of a table, row by row."""
    return [row.inner_text().split("\t") for row in page.locator(rows).all()]


def state(page):
    return page.inner_text("#state")


def shows(page, text):
    page.wait_for_selector(f'#state:has-text("{text}")')


def test_a_fit_as_it_goes_and_its_report(browser, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["eigenmesh", "fit"])
    words = ["fit", "digits", "-k", "3", "--nodes", "8", "--seed", "0", "--report", "fit.html"]
    CliRunner().invoke(app, words, catch_exceptions=False)
    X = np.random.default_rng(0).standard_normal((80, 6)) * [5, 4, 3, 1, 1, 1]
    with PageServer(Feed(run.path), "Eight nodes") as server, opened(browser, server.address) as page:
        assert state(page) == "No event yet."
        data = NodeData(Shards.from_list(np.split(X, 8)), metropolis(cycle(8)))
        log = EventLog(run)
        result = fit(prepare(Request.parse(n_components=2, random_state=0), data), events=log).result
        log.emit(result.ended)
        shows(page, "Done: every component is within")
        assert page.locator("#map line[data-look=up]").count() == 8
        assert page.locator("#links tbody tr").count() == 8
        # Through time by keyboard: at the first event nothing had been found.
        page.focus("#time")
        page.keyboard.press("Home")
        page.keyboard.press("ArrowRight")
        assert state(page).startswith("Preparing")
        page.click("#latest")
        assert state(page).startswith("Done")
        page.click("text=seconds")
        assert page.get_attribute("[data-axis=seconds]", "aria-pressed") == "true"
    for width, scheme in LOOKS:
        with opened(browser, (tmp_path / "fit.html").as_uri(), width, scheme) as page:
            assert state(page).startswith("Done")
            assert page.locator("#components canvas").count() == 3
            assert "eigenmesh" in page.inner_text("#repeat")
            marks = page.locator(".legend.dots path").all()
            assert len({(mark.get_attribute("d"), mark.get_attribute("fill")) for mark in marks}) == len(marks) == 8
            assert re.search(r"forecast of the planner: \d+ rounds", page.inner_text("#chart-legend"))
            assert page.locator("#chart line[stroke-linecap=round]").count() == 1
            page.click("text=seconds")
            assert "20 ms per round" in page.inner_text("#chart-legend")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            no_serious_finding(page)


def test_a_notebook_shows_the_page_in_a_frame(browser, tmp_path):
    shown = []
    with notebook_progress(lambda html: shown.append, keep=True) as listen:
        listen(Entry(10.0, Started("oi", "tree", ("a", "b"), (("a", "b"),), 4, 2, 1e-6, 100)))
        for number, bound in enumerate([np.nan, 1e-2, 1e-8], start=1):
            listen(Entry(10.0 + number, Record(number, 7 * number, 0, 0, 1000, 0.5**number, bound=bound)))
    (tmp_path / "notebook.html").write_text(f"<!DOCTYPE html><h1>A notebook</h1>{shown[-1]}", encoding="utf-8")
    page = browser.new_page()
    page.goto((tmp_path / "notebook.html").as_uri())
    frame = page.frame_locator("iframe")
    frame.locator('#state:has-text("round 21")').wait_for(timeout=LIMIT_MS)
    words = frame.locator("#state").inner_text()
    assert words == "Running: round 21 of a budget of 100, certified bound 1e−8, target 1e−6, 1.00 kB sent."
    assert frame.locator("#chart polyline").count() == 2
    assert frame.locator("#map line[data-look=up]").count() == 1
    page.close()


# What `eigenmesh fit --events run.jsonl` does with a solver that never ends.
ENDLESS_FIT = """
import itertools, time
from pathlib import Path
from eigenmesh.events import Record, Started, event_log

with event_log(Path("run.jsonl")) as log:
    log.emit(Started("oi", "tree", ("a", "b"), (("a", "b"),), 9, 1, 1e-3, 1000))
    for n in itertools.count(1):
        log.emit(Record(n, n, n, n, n, residual=1.0))
        time.sleep(0.1)
"""


@contextmanager
def endless_fit(folder):
    """A fit in a process of its own, which writes its events to run.jsonl; and the address of a page that shows it."""
    command = [sys.executable, "-c", ENDLESS_FIT]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL) as process:
        try:
            with PageServer(Feed(folder / "run.jsonl"), "Endless") as server:
                yield process, server.address
        finally:
            process.kill()


def told(page):
    """The sentences at the top."""
    return [page.inner_text(part) for part in ("#state", "#why", "#heard")]


def reported(browser, folder):
    """The sentences of the report of run.jsonl as it is now."""
    written = ["watch", str(folder / "run.jsonl"), "--report", str(folder / "run.html")]
    assert CliRunner().invoke(app, written, catch_exceptions=False).exit_code == 0
    with opened(browser, (folder / "run.html").as_uri()) as page:
        return told(page)


@pytest.mark.slow
def test_a_fit_that_is_killed_is_said_to_be_lost(browser, tmp_path):
    with endless_fit(tmp_path) as (process, address), opened(browser, address) as page:
        shows(page, "Running: round")
        page.wait_for_selector('#heard:has-text("Last event")')
        assert reported(browser, tmp_path)[0].startswith("Running: round")
        process.kill()
        process.wait()
        shows(page, "The run is lost: its process has ended without saying why.")
        assert "It had reached round" in state(page)
        assert page.inner_text("#why") == "Start it again: a fit begins anew."
    lost, _, heard = reported(browser, tmp_path)
    assert lost.startswith("The run is lost: its process has ended without saying why. It had reached round")
    assert "before this page was written" in heard
    with PageServer(Feed(tmp_path / "run.jsonl"), "Lost") as server, opened(browser, server.address) as page:
        shows(page, "The run is lost: its process has ended without saying why.")
        no_serious_finding(page)


@pytest.mark.slow
def test_a_page_whose_server_has_gone_says_so(browser, tmp_path):
    with endless_fit(tmp_path) as (_, address):
        # Chromium writes failed requests to the console, which other tests want to be empty.
        page = browser.new_page()
        page.goto(address)
        page.wait_for_selector('#heard:has-text("Last event")', timeout=LIMIT_MS)
    page.wait_for_selector('#heard:has-text("its server has not answered since")', timeout=LIMIT_MS)
    assert "The run may go on." in page.inner_text("#heard")
    page.close()


@pytest.mark.slow
def test_a_fit_that_is_interrupted_was_stopped(browser, tmp_path):
    with endless_fit(tmp_path) as (process, address), opened(browser, address) as page:
        shows(page, "Running: round")
        process.send_signal(signal.SIGINT)
        shows(page, "The run was stopped: interrupted by Ctrl-C.")
        process.wait()
        assert reported(browser, tmp_path)[0] == "The run was stopped: interrupted by Ctrl-C."


def test_a_run_beyond_its_budget_says_so_in_words(browser, run):
    X = np.random.default_rng(0).standard_normal((80, 6)) * [5, 4, 3, 1, 1, 1]
    data = NodeData(Shards.from_list(np.split(X, 8)), metropolis(cycle(8)))
    log = EventLog(run)
    request = Request.parse(n_components=2, solver="fast-pca", max_rounds=60, random_state=0)
    result = fit(prepare(request, data), events=log).result
    assert result.traffic.rounds > 60
    with PageServer(Feed(run.path), "Budget") as server, opened(browser, server.address) as page:
        shows(page, f"round {result.traffic.rounds} of a budget of 60")
        log.emit(result.ended)
        shows(page, "the round budget ended before the certificate reached tol.")
        assert "max_rounds" not in state(page)


def test_the_true_error_is_drawn_as_a_sine_like_the_target(browser, tmp_path):
    events = [
        Started("oi", "tree", ("a", "b"), (("a", "b"),), 9, 1, 1e-3, 100),
        *(Record(n, n, n, n, n, error=10.0 ** (-2 * n)) for n in range(1, 6)),
    ]
    path = tmp_path / "run.html"
    path.write_text(report_page("Two nodes", [Entry(float(at), event) for at, event in enumerate(events)]))
    with opened(browser, path.as_uri()) as page:
        assert "true error: root mean square of sin(angle)" in page.inner_text("#chart-legend")
        target = float(page.get_attribute('#chart line[stroke="var(--green)"]', "y1"))
        heights = [float(dot.get_attribute("cy")) for dot in page.locator('#chart circle[fill="var(--ink)"]').all()]
        # The mean of sin^2 is 1e-6 after the third record, and the target is 1e-3.
        assert heights[2] == pytest.approx(target, abs=0.1)
        assert len(heights) == 5


def test_several_fits_are_in_one_plot_against_seconds(browser, tmp_path):
    entries = []
    for number, solver in enumerate(("block-krylov", "asynchronous", "deadlines")):
        entries.append(Entry(0.5, Started(solver, "tree", ("a", "b"), (("a", "b"),), 9, 1, 1e-3, 100)))
        points = [(n * (number + 1.0), Record(n, 10 * n, n, n, n, error=10.0 ** (-2 * n))) for n in range(1, 6)]
        entries += [Entry(*point) for point in points]
        entries.append(Entry(6.0 * (number + 1), Ended("done", True)))
    path = tmp_path / "run.html"
    path.write_text(report_page("Three solvers", entries))
    with opened(browser, path.as_uri()) as page:
        assert page.get_attribute("[data-axis=seconds]", "aria-pressed") == "true"
        assert page.locator("#chart polyline").count() == 3
        named = page.inner_text("#chart-legend")
        assert all(words in named for words in ("true error", "block-krylov", "asynchronous", "deadlines", "target"))
        ends = [float(one.get_attribute("points").split()[-1].split(",")[0]) for one in page.locator("polyline").all()]
        assert ends == sorted(ends)
        page.click("text=rounds")
        ends = [one.get_attribute("points").split()[-1].split(",")[0] for one in page.locator("polyline").all()]
        assert page.get_attribute("[data-axis=rounds]", "aria-pressed") == "true"
        assert len(set(ends)) == 1
        no_serious_finding(page)


def is_neighbour(entry):
    return isinstance(entry.event, NeighbourStatus)


def milliseconds(page, link):
    """The time on a link, to three digits; nothing where it has none."""
    shown = page.locator(f'#map text[data-trip="{link}"]').all_text_contents()
    return f"{float(shown[0].removesuffix(' ms')):.3g}" if shown else ""


def test_the_time_over_a_link_is_that_of_the_events(browser, run):
    names = ("oslo", "bergen", "molde")
    run(Entry(0.0, Members("cohort", "oslo", 0, names)))
    run(Entry(0.0, NeighbourStatus("bergen", True, round_trip_s=0.0432)))
    run(Entry(0.0, NeighbourStatus("molde", True)))
    run(Entry(0.0, LinkLatency("bergen", "molde", 2.5)))
    run(Entry(0.0, Started("oi", "tree", names, tuple(ring(list(names))), 4, 2, 1e-6, 100)))
    with PageServer(Feed(run.path), "Times") as server, opened(browser, server.address, 390) as page:
        page.wait_for_selector("#map text.trip", state="attached")
        shown = {one.get_attribute("data-trip"): one.text_content() for one in page.locator("#map text.trip").all()}
        assert shown == {"oslo bergen": "43.2 ms", "bergen molde": "2.5 s"}
        titles = page.locator("#map line title").all_text_contents()
        assert [title.partition("round trip ")[2] for title in titles] == ["43.2 ms", "2.5 s", ""]
        assert cells(page, "#links tr")[:3] == [
            ["neighbour", "bergen", "molde"],
            ["link", "up", "up"],
            ["round trip", "43.2 ms", "–"],
        ]
        looks = {
            line.get_attribute("data-link"): line.get_attribute("data-look") for line in page.locator("#map line").all()
        }
        assert looks == {"oslo bergen": "up", "bergen molde": "unseen", "molde oslo": "up"}
        assert "round trip over a link" in page.inner_text("#map-legend")
        assert page.evaluate(WITHIN) == []
        no_serious_finding(page)


def test_a_peer_that_is_killed_is_seen_to_go_and_to_come_back(browser, tmp_path):
    names = ("oslo", "bergen", "tromso", "molde", "narvik")
    X = np.random.default_rng(1).standard_normal((300, 8)) * np.linspace(3, 1, 8)
    parts = {name: X[number::5] for number, name in enumerate(names)}
    # With this step FAST-PCA takes thousands of rounds: time enough to look.
    slow = {"solver": "fast-pca", "solver_parameters": {"step_size": 0.002}, "max_rounds": 30000, "n_components": 2}
    with Mesh(tmp_path, parts, ring(list(names)), patience_s=200, tol=1e-3, **slow) as mesh:
        events = mesh.out("oslo") / "events.jsonl"
        with PageServer(Feed(events), "oslo") as server, opened(browser, server.address, 390, "dark") as page:
            mesh.start()
            shows(page, "Running: round")
            assert page.locator("#map circle").count() == 5
            mesh.kill("bergen", signal.SIGKILL)
            page.wait_for_selector("#map line[data-link*=bergen][data-look=down]", state="attached")
            assert "bergen" in page.inner_text("#why")
            mesh.start("bergen")
            page.wait_for_selector("#map line[data-look=down]", state="detached")
            assert set(mesh.wait().values()) == {0}
            shows(page, "Done")
            told = {entry.event.name: entry.event for entry in EventReader(events).new() if is_neighbour(entry)}
            assert set(told) == {"bergen", "narvik"}
            for name, link in told.items():
                # Where the system does not tell, nothing is shown.
                expected = f"{1e3 * link.round_trip_s:.3g}" if link.round_trip_s else ""
                assert milliseconds(page, f"oslo {name}") == expected
            assert "between a component at any node and the true one is at most" in page.inner_text("#certificate")
            no_serious_finding(page)


def test_a_stream_with_an_alarm(browser, run):
    rng, log = np.random.default_rng(5), EventLog(run)
    pca = StreamingPCA(3, n_nodes=4)
    with PageServer(Feed(run.path), "A stream") as server, opened(browser, server.address) as page:
        for tick in range(8):
            X = rng.standard_normal((200, 10)) * np.linspace(6, 1, 10)
            if tick == 7:
                X[:, 8] += 9 * rng.standard_normal(200)
            pca.partial_fit(X, nodes=rng.integers(0, 4, 200))
            if tick > 0:
                log.emit(pca.batch_)
        page.wait_for_selector("#alarms li")
        assert "Alarm in batch 7" in page.inner_text("#alarms")
        assert page.locator("#alarms li").count() == 1
        no_serious_finding(page)


WITHIN = """[...document.querySelectorAll("svg text")].filter((text) => {
  const box = text.getBBox(), whole = text.ownerSVGElement.viewBox.baseVal;
  return text.getAttribute("transform") === null && (box.x < 0 || box.x + box.width > whole.width || box.y < 0);
}).map((text) => text.textContent)"""


@pytest.mark.parametrize("width", [1400, 390])
def test_no_name_in_a_picture_is_cut_off(browser, run, width):
    names = ("Oslo", "Bergen hospital", "Trondheim", "Stavanger university", "Tromso")
    links = tuple(ring(list(names)))
    run(Entry(0.0, Members("cohort", "Bergen hospital", 0, names)))
    run(Entry(0.0, Planned(1e6, 1e9, 1e4, 0.02)))
    run(Entry(0.0, Started("oi", "tree", names, links, 4, 2, 1e-6, 100)))
    for number in range(1, 4):
        run(Entry(0.0003 * number, Record(number, 1234 * number, 14, 7, 800, 10.0 ** (3 - 9 * number), bound=0.25)))
    with PageServer(Feed(run.path), "Names") as server, opened(browser, server.address, width) as page:
        shows(page, "Running")
        for axis in ("rounds", "seconds"):
            page.click(f"[data-axis={axis}]")
            assert page.evaluate(WITHIN) == [], axis
            assert page.locator("#chart text", has_text="forecast: ").count() == 1
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_fits_one_after_the_other_are_in_a_table(browser, run):
    for solver, converged in (("block-krylov", True), ("oi", False)):
        run(Entry(0.0, Started(solver, "tree", ("a", "b"), (("a", "b"),), 4, 2, 1e-6, 100)))
        run(Entry(2.5, Record(1, 7, 14, 7, 800, 0.1, bound=0.25)))
        run(Entry(3.0, Ended("done", converged, "budget")))
    shown = ["7", "800 B", "2.5 s", "0.25"]
    rows = [["block-krylov", *shown, "certified"], ["oi", *shown, "not certified"]]
    heads = ["solver", "rounds", "sent", "time", "bound", "end"]
    with PageServer(Feed(run.path), "Two") as server, opened(browser, server.address, 1400) as page:
        shows(page, "oi is done, not certified")
        assert page.inner_text("#fits caption") == "Fits one after the other, tree averaging"
        assert cells(page, "#fits tr") == [heads, *rows]
        # A telephone has no room for so many columns.
        page.set_viewport_size({"width": 390, "height": 900})
        page.wait_for_selector("#fits tbody tr:nth-child(5)")
        assert cells(page, "#fits tr") == [list(line) for line in zip(heads, *rows, strict=True)]
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        no_serious_finding(page)


def test_a_hundred_nodes_and_a_hundred_thousand_events(browser, run):
    nodes = tuple(str(number) for number in range(100))
    links = tuple((nodes[one], nodes[(one + step) % 100]) for one in range(100) for step in (1, 2, 3))
    run(Entry(0.0, Started("fast-pca", "tree", nodes, links, 50, 5, 1e-6, 10**6)))
    for number in range(100_000):
        run(Entry(number / 100, Record(number, number, number, number, number, 2.0 ** (-number / 5000), bound=1.0)))
    for one, other in links:
        run(Entry(1000.0, LinkTraffic(one, other, 10, 100)))
    with PageServer(Feed(run.path), "Many") as server, opened(browser, server.address) as page:
        page.wait_for_selector("body[data-events='100301']")
        # A frame that draws all of it: far from what a busy machine could turn into a failure, near enough to notice.
        assert float(page.get_attribute("body", "data-frame-ms")) < 5000
