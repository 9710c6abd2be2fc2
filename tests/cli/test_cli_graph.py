"""``eigenmesh graph``: the numbers of networks that are known by heart."""

from __future__ import annotations

import math
import re

import pytest


def numbers_after(heading: str, text: str) -> list[str]:
    """The cells of the lines that begin with a heading."""
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith(heading)]
    return [cell for line in lines for cell in line.removeprefix(heading).split()]


def test_cycle_has_the_numbers_it_is_known_for(call):
    done = call("graph", "cycle", "--nodes", 20)
    assert done.exit_code == 0, done.output
    beta = (1 + 2 * math.cos(2 * math.pi / 20)) / 3
    assert numbers_after("nodes", done.stdout) == ["20"]
    assert numbers_after("diameter", done.stdout) == ["10"]
    assert numbers_after("links per node", done.stdout) == ["2", "to", "2"]
    assert numbers_after("beta", done.stdout) == [f"{beta:.6f}"]
    rounds = [math.ceil(math.log(accuracy) / math.log(beta)) for accuracy in (1e-6, 1e-12)]
    assert numbers_after("plain gossip", done.stdout) == [
        "1e-06", f"{rounds[0]:,}", f"{40 * rounds[0]:,}", "1e-12", f"{rounds[1]:,}", f"{40 * rounds[1]:,}"
    ]  # fmt: skip
    assert numbers_after("tree", done.stdout) == ["exact", "20", "38"]
    _, fewer, _, _, more, _ = numbers_after("Chebyshev", done.stdout)
    assert int(fewer) < int(more) < rounds[0]


def test_edge_list_says_how_many_nodes_and_is_drawn_with_names(call, tmp_path):
    (tmp_path / "links.txt").write_text("# sites\nnorth hub\nsouth, hub\nwest hub\n")
    done = call("graph", "links.txt", "--weights", "best_constant", "--plot", "g.svg")
    assert done.exit_code == 0, done.output
    assert numbers_after("nodes", done.stdout) == ["4"]
    assert numbers_after("links per node", done.stdout) == ["1", "to", "3"]
    text = (tmp_path / "g.svg").read_text()
    for name in ("north", "south", "west", "hub", "4 nodes, 3 links, diameter 2"):
        assert name in text


def test_seed_fixes_a_random_network(call):
    first, again, other = (call("graph", "erdos_renyi", "--nodes", 12, "--seed", seed).stdout for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("weights", ["push", "pull"])
def test_weights_that_do_not_average_leave_the_tree(call, weights):
    done = call("graph", "star", "--nodes", 5, "--weights", weights)
    assert done.exit_code == 0, done.output
    assert numbers_after("tree", done.stdout) == ["exact", "2", "8"]
    assert "gossip" not in done.stdout
    assert "--weights balanced" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ring",), ("'ring'", "cycle")),
        (("cycle", "--weights", "x"), ("'x'", "metropolis")),
        (("apart.txt",), ("2 components", "add links")),
        (("pair.txt", "--nodes", "3"), ("links 2 nodes", "leave out --nodes")),
        (("directed_cycle", "--weights", "metropolis"), ('use --weights "balanced"', "not directed")),
        (("hypercube", "--nodes", "9"), ("9", "8 and 16")),
        (("none/links.txt",), ("none/links.txt cannot be read: No such file", "give the path")),
        (("cycle", "--plot", "none/g.png"), ("there is no folder none",)),
        (("cycle", "--plot", "g.gif"), ("'.gif'",)),
    ],
)
def test_graph_refuses_bad_input(call, tmp_path, words, said):
    (tmp_path / "apart.txt").write_text("a b\nc d\n")
    (tmp_path / "pair.txt").write_text("a b\n")
    done = call("graph", *words)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert re.match("error: ", done.stderr)
    for fragment in said:
        assert fragment in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["apart.txt", "pair.txt"]
