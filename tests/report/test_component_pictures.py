"""What pictures of components say, read off their artists."""

import matplotlib.figure
import numpy as np
import pytest

from eigenmesh.errors import InputError
from eigenmesh.report import (
    disagreement_picture,
    loadings_picture,
    result_picture,
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
    numbered = loadings_picture(components, most=1, components=(2,)).axes[0]
    assert [label.get_text() for label in numbered.get_yticklabels()] == ["feature 0"]
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
    figure = scores_picture(scores, nodes, loadings=components, names=NAMES)
    lines = {line.get_label(): line.get_xydata() for line in figure.axes[0].lines}
    assert sorted(lines) == ["site 0", "site 1", "site 2"]
    assert np.array_equal(lines["site 1"], scores[1::3])
    assert {"height", "weight", "age"} <= set(texts(figure))
    with pytest.raises(InputError, match="needs two components"):
        scores_picture(scores[:, :1], nodes)
    with pytest.raises(InputError, match="2 labels for 60 samples"):
        scores_picture(scores, nodes[:2])


def test_any_two_components_are_drawn_with_their_shares():
    scores = np.random.default_rng(0).standard_normal((40, 4))
    axes = scores_picture(scores, components=(4, 2), shares=np.array([0.4, 0.3, 0.2, 0.05])).axes[0]
    assert np.array_equal(axes.lines[0].get_xydata(), scores[:, [3, 1]])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("component 4 (5.0%)", "component 2 (30.0%)")
    assert axes.get_legend() is None
    arrows = scores_picture(scores, components=(1, 3), loadings=np.eye(4)[:, :3], names=list("abc"), most=2)
    assert {"a", "c"} <= set(texts(arrows))


@pytest.mark.parametrize("components", [(1, 5), (0, 1), (2, 2), (1, 2, 3), (1,), (1.0, 2)])
def test_components_that_cannot_be_drawn_are_refused(components):
    with pytest.raises(InputError, match=r"components = .* must be"):
        scores_picture(np.zeros((5, 4)), components=components)


def test_an_ellipse_holds_95_percent_of_normal_samples_of_its_group():
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((4000, 2)) @ np.array([[3.0, 1.0], [0.0, 0.5]]) + [5, -2]
    labels = ["many"] * 3998 + ["two"] * 2
    lines = {len(line.get_xdata()): line for line in scores_picture(scores, labels, ellipses=True).axes[0].lines}
    # Two samples have no ellipse.
    assert sorted(lines) == [2, 121, 3998]
    outline = matplotlib.path.Path(lines[121].get_xydata())
    assert outline.contains_points(scores).mean() == pytest.approx(0.95, abs=0.01)


def test_groups_are_in_the_order_of_numbers_and_too_many_have_no_legend():
    scores = np.random.default_rng(0).standard_normal((60, 2))
    axes = scores_picture(scores, [f"{number % 12}" for number in range(60)]).axes[0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [str(number) for number in range(12)]
    assert scores_picture(scores, list(range(60))).axes[0].get_legend() is None


def test_pictures_are_drawn_into_the_axes_of_a_user():
    figure = matplotlib.figure.Figure()
    axes = figure.subplots(1, 3)
    components = np.array([[0.1, -0.9, 0.4, 0.0], [0.7, 0.0, 0.0, -0.7]])
    scores = np.random.default_rng(0).standard_normal((30, 2))
    assert scree_picture(np.array([0.5, 0.3]), ax=axes[0]) is figure
    assert scores_picture(scores, ["a", "b"] * 15, ax=axes[1]) is figure
    assert loadings_picture(components, NAMES, components=(2,), ax=axes[2]) is figure
    assert len(figure.axes) == 3
    assert [len(one.patches) for one in axes] == [2, 0, 4]
    assert len(axes[1].lines) == 2
    with pytest.raises(InputError, match="must be 1 numbers"):
        loadings_picture(components, NAMES, ax=axes[2])


def test_the_picture_of_a_result_has_scree_scores_and_loadings_and_no_network(tmp_path):
    rng = np.random.default_rng(0)
    shares, loadings, scores = (
        np.array([0.5, 0.2, 0.1]),
        np.linalg.qr(rng.standard_normal((4, 3)))[0].T,
        rng.random((9, 3)),
    )
    settings = {"scores": scores, "labels": list("aabbccabc"), "components": (1, 3), "title": "PCA of a table"}
    figure = result_picture(shares, loadings, NAMES, **settings)
    scree, points, first, second = figure.axes
    assert [bar.get_height() for bar in scree.patches] == shares.tolist()
    assert sorted(line.get_label() for line in points.lines) == ["a", "b", "c"]
    assert (points.get_xlabel(), points.get_ylabel()) == ("component 1 (50.0%)", "component 3 (10.0%)")
    assert [axes.get_title(loc="left") for axes in (first, second)] == ["Component 1", "Component 3"]
    assert sorted(bar.get_width() for bar in second.patches) == pytest.approx(sorted(loadings[2]))
    paths = [
        save_picture(result_picture(shares, loadings, NAMES, **settings), tmp_path / f"{name}.svg") for name in "ab"
    ]
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_one_component_has_no_scores_and_components_of_images_are_images():
    figure = result_picture(np.array([0.5]), np.eye(4)[:1], NAMES, scores=np.zeros((5, 1)))
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["Explained variance", "Component 1"]
    figure = result_picture(np.array([0.5, 0.2]), np.eye(4)[:2], scores=np.zeros((5, 2)), image_shape=(2, 2))
    strips = [axes.images[0].get_array() for axes in figure.axes if axes.images]
    assert np.array_equal(np.stack(strips).reshape(2, 4), np.eye(4)[:2])
    with pytest.raises(InputError, match=r"\(4, 4\) has 16 pixels, but components have 4"):
        result_picture(np.array([0.5]), np.eye(4)[:1], image_shape=(4, 4))


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
