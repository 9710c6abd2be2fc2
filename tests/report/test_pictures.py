"""Pictures: real images that show what they say they show."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from dataclasses import replace

import matplotlib.image
import numpy as np
import pytest
from sklearn.datasets import load_digits

from eigenmesh import graphs
from eigenmesh.data import Shards, build_covariance, pooled_moments
from eigenmesh.errors import InputError, MissingExtraError, UnreadableFileError
from eigenmesh.iteration.loop import run
from eigenmesh.networks import Stacked
from eigenmesh.report import convergence_picture, network_picture, run_picture, save_picture
from eigenmesh.report.pictures import node_positions, require_picture
from eigenmesh.solvers import FastPCA

TOL = 1e-6


def network(topology: str, n_nodes: int) -> graphs.Weights:
    return graphs.metropolis(graphs.topology(topology, n_nodes))


@pytest.fixture(scope="module")
def weights():
    return network("erdos_renyi", 8)


def fitted(weights, **settings):
    X = load_digits().data
    simulated = Stacked(weights)
    shards = Shards.from_array(X, weights.n_nodes)
    covariance = build_covariance(shards, pooled_moments(shards, simulated))
    return run(FastPCA(), covariance, simulated, 3, tol=TOL, **settings)


@pytest.fixture(scope="module")
def result(weights):
    vectors = np.linalg.eigh(np.cov(load_digits().data, rowvar=False))[1]
    return fitted(weights, reference=vectors[:, ::-1][:, :3])


def line_of(axes, label: str) -> np.ndarray:
    """Points of the line whose label begins so: (2, n)."""
    (line,) = [line for line in axes.get_lines() if str(line.get_label()).startswith(label)]
    return np.array(line.get_data())


def legend_of(axes) -> str:
    return "\n".join(text.get_text() for text in axes.get_legend().get_texts())


def ink(path) -> float:
    """Share of the pixels that are not white."""
    pixels = matplotlib.image.imread(path)[..., :3]
    return float(np.mean(pixels.min(axis=-1) < 0.95))


@pytest.mark.parametrize("topology", sorted(graphs.TOPOLOGIES))
@pytest.mark.parametrize("n_nodes", [1, 2, 4, 16])
def test_every_topology_finds_room_for_its_nodes(topology, n_nodes):
    places = node_positions(graphs.topology(topology, n_nodes))
    assert places.shape == (n_nodes, 2)
    assert np.abs(places).max() <= 1 + 1e-12
    apart = [np.linalg.norm(a - b) for a, b in itertools.combinations(places, 2)]
    assert min(apart, default=1) > 0.05


def test_cycle_stands_on_a_circle_in_order():
    places = node_positions(graphs.topologies.cycle(12))
    np.testing.assert_allclose(np.linalg.norm(places, axis=1), 1)
    steps = np.linalg.norm(places - np.roll(places, 1, axis=0), axis=1)
    np.testing.assert_allclose(steps, 2 * np.sin(np.pi / 12))


def test_path_is_a_level_line_and_grid_stands_upright():
    path = node_positions(graphs.topologies.path(9))
    assert np.ptp(path[:, 1]) < 0.05
    grid = graphs.topologies.grid(16)
    places = node_positions(grid)
    for a, b in grid.edges:
        assert np.abs(places[a] - places[b]).min() < 0.1


def test_network_picture_has_nodes_links_names_and_facts(tmp_path):
    figure = network_picture(network("star", 5), ["hub", "north", "east", "south", "west"], title="Sites")
    save_picture(figure, tmp_path / "n.svg")
    text = (tmp_path / "n.svg").read_text()
    for words in ("Sites", "5 nodes, 4 links, diameter 2, beta 0.800", "hub", "north", "east", "south", "west"):
        assert f">{words}<" in text
    (axes,) = figure.axes
    links, nodes = axes.collections
    assert len(links.get_segments()) == 4
    assert len(nodes.get_offsets()) == 5


@pytest.mark.parametrize(("topology", "n_nodes"), [("complete", 1), ("complete", 2), ("hypercube", 64), ("cycle", 150)])
def test_networks_of_any_size_are_drawn(tmp_path, topology, n_nodes):
    path = save_picture(network_picture(network(topology, n_nodes)), tmp_path / "n.png")
    assert matplotlib.image.imread(path).shape == (930, 900, 4)
    assert 0.001 < ink(path) < 0.5


def test_convergence_picture_shows_the_history_tol_and_the_certificate(result):
    (axes,) = convergence_picture(result, TOL).axes
    history = [record for record in result.history if np.isnan(record.bound)]
    assert len(history) == len(result.history) - 1
    checks = [record for record in history if np.isfinite(record.residual)]
    rounds, values = line_of(axes, "estimate of the nodes")
    assert rounds.tolist() == [record.rounds for record in checks]
    np.testing.assert_allclose(values, [r.residual / result.certificate.gaps.min() for r in checks])
    rounds, values = line_of(axes, "true error")
    assert rounds.tolist() == [record.rounds for record in history]
    np.testing.assert_allclose(values**2, [record.error for record in history])
    assert line_of(axes, "tol = 1e-06")[1].tolist() == [TOL, TOL]
    stop = line_of(axes, "certificate at the stop (converged)")
    assert stop.ravel().tolist() == [result.traffic.rounds, result.certificate.error_bound]
    assert axes.get_yscale() == "log"
    assert axes.get_xlabel() == "rounds of neighbour exchange"
    assert axes.get_ylabel() == "sine of the angle to the true components"


def test_convergence_picture_without_the_truth_has_no_line_for_it(weights):
    short = fitted(weights, max_rounds=60)
    (axes,) = convergence_picture(short, TOL).axes
    legend = legend_of(axes)
    assert "true error" not in legend
    assert "(max rounds)" in legend


def test_convergence_picture_survives_an_empty_history_and_no_gaps(result, tmp_path):
    certificate = replace(result.certificate, gaps=np.full(3, np.inf))
    figure = convergence_picture(replace(result, history=(), certificate=certificate), TOL)
    assert ink(save_picture(figure, tmp_path / "c.png")) > 0.01


def test_run_picture_has_network_and_convergence(weights, result, tmp_path):
    figure = run_picture(weights, result, TOL, title="Digits")
    pixels = matplotlib.image.imread(save_picture(figure, tmp_path / "r.png"))
    assert pixels.shape == (810, 1725, 4)
    dark = pixels[..., :3].min(axis=-1) < 0.5
    # Something is drawn in both parts, and nothing in colour.
    for part in np.array_split(dark, 2, axis=1):
        assert part.mean() > 0.005
    assert np.ptp(pixels[..., :3], axis=-1).max() == 0


def test_text_does_not_overlap(weights, result):
    figure = run_picture(weights, result, TOL, title="Digits")
    figure.canvas.draw()
    texts = [text for text in figure.findobj(matplotlib.text.Text) if text.get_text().strip() and text.get_visible()]
    boxes = [text.get_window_extent() for text in texts]
    for (a, first), (b, second) in itertools.combinations(zip(texts, boxes, strict=True), 2):
        assert not first.overlaps(second), (a.get_text(), b.get_text())


@pytest.mark.slow
def test_the_same_run_gives_the_same_svg(weights, result, tmp_path):
    for name in ("a.svg", "b.svg"):
        save_picture(run_picture(weights, result, TOL), tmp_path / name)
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    assert re.match(r"<\?xml", text)
    for words in ("Network", "Convergence", "rounds of neighbour exchange", "tol = 1e-06"):
        assert f">{words}<" in text


def test_failed_picture_leaves_nothing_behind(weights, tmp_path, monkeypatch):
    figure = network_picture(weights)

    def fail(file, **_):
        file.write(b"half")
        raise RuntimeError("out of ink")

    monkeypatch.setattr(figure, "savefig", fail)
    with pytest.raises(RuntimeError, match="out of ink"):
        save_picture(figure, tmp_path / "n.png")
    assert list(tmp_path.iterdir()) == []


def test_paths_are_checked_before_drawing(tmp_path):
    with pytest.raises(InputError, match=r"'\.gif'; pictures end in \.png, \.svg, \.pdf"):
        require_picture(tmp_path / "n.gif")
    with pytest.raises(UnreadableFileError, match="make it first"):
        require_picture(tmp_path / "none" / "n.png")
    assert require_picture(tmp_path / "N.PNG") == tmp_path / "N.PNG"


def test_missing_matplotlib_says_what_to_install(weights, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'eigenmesh\[report\]'"):
        require_picture(tmp_path / "n.png")
    monkeypatch.setitem(sys.modules, "matplotlib.layout_engine", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'eigenmesh\[report\]'"):
        network_picture(weights)


@pytest.mark.slow
def test_drawing_leaves_pyplot_alone(tmp_path):
    script = (
        "import sys, eigenmesh.report as report\n"
        "assert 'matplotlib' not in sys.modules\n"
        "from eigenmesh.graphs import metropolis, topologies\n"
        f"report.save_picture(report.network_picture(metropolis(topologies.grid(9))), {str(tmp_path / 'n.png')!r})\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)
    assert (tmp_path / "n.png").exists()
