"""What pictures of components say, read off their artists."""

import numpy as np
import pytest

from eigenmesh.errors import InputError
from eigenmesh.report import (
    disagreement_picture,
    loadings_picture,
    save_picture,
    scores_picture,
    scree_picture,
    traffic_picture,
)

NAMES = ["height", "weight", "a feature with a very long name", "age"]


def texts(figure):
    figure.canvas.draw()
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_a_scree_picture_has_the_shares_and_their_sums():
    figure = scree_picture(np.array([0.5, 0.3, 0.1]))
    axes = figure.axes[0]
    assert [bar.get_height() for bar in axes.patches] == [0.5, 0.3, 0.1]
    assert axes.lines[0].get_ydata().tolist() == pytest.approx([0.5, 0.8, 0.9])


def test_loadings_are_drawn_largest_first_with_short_names():
    components = np.array([[0.1, -0.9, 0.4, 0.0], [0.7, 0.0, 0.0, -0.7]])
    figure = loadings_picture(components, NAMES, most=2)
    first, second = figure.axes
    assert [bar.get_width() for bar in first.patches] == [0.4, -0.9]
    assert [label.get_text() for label in first.get_yticklabels()] == ["a feature with a …", "weight"]
    assert [bar.get_width() for bar in second.patches] == [-0.7, 0.7]
    with pytest.raises(InputError, match="3 names for 4 features"):
        loadings_picture(components, NAMES[:3])


def test_samples_are_drawn_by_node_with_arrows_for_features():
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((60, 2))
    nodes = [f"site {number % 3}" for number in range(60)]
    components = np.array([[0.6, 0.5, 0.1, 0.0], [0.2, 0.3, 0.9, 0.1]])
    figure = scores_picture(scores, nodes, components, NAMES)
    lines = {line.get_label(): line.get_xydata() for line in figure.axes[0].lines}
    assert sorted(lines) == ["site 0", "site 1", "site 2"]
    assert np.array_equal(lines["site 1"], scores[1::3])
    assert {"height", "weight", "age"} <= set(texts(figure))
    with pytest.raises(InputError, match="needs two components"):
        scores_picture(scores[:, :1], nodes)
    with pytest.raises(InputError, match="2 nodes for 60 samples"):
        scores_picture(scores, nodes[:2])


def test_disagreement_is_the_sine_to_the_average_down_to_the_last_digits():
    small = 1e-10
    one = np.array([[1.0, small, 0.0]])
    other = np.array([[1.0, -small, 0.0]])
    figure = disagreement_picture(np.stack([one, other]), ["a", "b"])
    assert figure.axes[0].lines[0].get_ydata().tolist() == pytest.approx([small, small], rel=1e-6)


def test_traffic_adds_both_directions_and_says_how_many_links_there_are():
    figure = traffic_picture({("a", "b"): 5, ("b", "a"): 7, ("b", "c"): 30})
    axes = figure.axes[0]
    assert [bar.get_width() for bar in axes.patches] == [12, 30]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a – b", "b – c"]
    assert any("2 of 2 links, 42 bytes" in text for text in texts(figure))


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_same_picture_gives_the_same_file(tmp_path, suffix):
    paths = [save_picture(scree_picture(np.array([0.6, 0.2])), tmp_path / f"{name}.{suffix}") for name in "ab"]
    assert paths[0].read_bytes() == paths[1].read_bytes()
