"""Names in pictures differ, and none lies on another."""

import matplotlib.legend
import numpy as np
import pytest

from eigenmesh import graphs
from eigenmesh.report import network_picture, scores_picture
from eigenmesh.report.pictures import MOVABLE, short_names

LONG = [f"concentration of substance {number:02d} in the serum of the patient" for number in range(30)]


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["height", "weight"], ["height", "weight"]),
        ([3, 14], ["3", "14"]),
        (["a feature with a very long name", "age"], ["a feature with a …", "age"]),
        (LONG[3:5], ["…bstance 03 in th…", "…bstance 04 in th…"]),
        (["x" * 30 + "a", "y" * 30, "x" * 30 + "b"], ["x" * 15 + "… 1", "y" * 15 + "… 2", "x" * 15 + "… 3"]),
        (["the same long name at both", "the same long name at both"], ["the same long nam…"] * 2),
    ],
    ids=["short", "numbers", "end", "middle", "numbered", "equal"],
)
def test_names_are_cut_where_they_do_not_differ(names, short):
    assert short_names(names) == short


@pytest.mark.parametrize("seed", range(5))
def test_different_names_stay_different_and_short(seed):
    rng = np.random.default_rng(seed)
    names = ["".join(rng.choice(list("ab "), rng.integers(1, 60))) for _ in range(50)]
    short = short_names(names)
    assert len(set(short)) == len(set(names))
    assert max(map(len, short)) <= 18


def biplot():
    rng = np.random.default_rng(0)
    components = np.linalg.qr(rng.standard_normal((30, 2)))[0].T
    nodes = [f"university hospital number {number % 12:02d} of the north" for number in range(300)]
    return scores_picture(rng.standard_normal((300, 2)), nodes, loadings=components, names=LONG, most=30)


PICTURES = {
    "biplot": biplot,
    "ring": lambda: network_picture(graphs.metropolis(graphs.topologies.cycle(30)), LONG),
    "random graph": lambda: network_picture(graphs.metropolis(graphs.topologies.erdos_renyi(30, seed=0)), LONG),
}


@pytest.mark.parametrize("dpi", [72, 150], ids=["svg and pdf", "png"])
@pytest.mark.parametrize("name", PICTURES)
def test_thirty_long_names_do_not_lie_on_each_other(name, dpi):
    figure = PICTURES[name]()
    figure.set_dpi(dpi)
    figure.draw_without_rendering()
    names = [one for one in figure.findobj(lambda artist: artist.get_gid() == MOVABLE) if one.get_visible()]
    assert len(names) >= {"biplot": 15, "ring": 30, "random graph": 25}[name]
    boxes = [one.get_window_extent() for one in names]
    boxes += [legend.get_window_extent() for legend in figure.findobj(matplotlib.legend.Legend)]
    assert not any(one.overlaps(other) for at, one in enumerate(boxes) for other in boxes[:at])
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)
