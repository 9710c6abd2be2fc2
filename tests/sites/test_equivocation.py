"""A site inside the tree that tells sites different numbers: it learns nothing of its victim, and is found out.

With masks that did not depend on what a site was told, such attacks gave numbers of the victim alone, to rounding, and
all sites ended content, with a signed result.
"""

from functools import partial

import networkx as nx
import numpy as np
import pytest

from eigenmesh.averaging import Tree
from eigenmesh.data import CrossProducts
from eigenmesh.graphs import metropolis
from eigenmesh.sites.site import site_graph
from equivocation import BLOCK, COUNT, MEAN, MORE, RANGE, SHIFT, lying, noting_blocks, told_sum
from mesh import Mesh, ring

pytestmark = pytest.mark.slow

D, FAR = 30, 300.0
NAMES = ("oslo", "bergen", "voss", "narva", "turku", "espoo")
NETWORKS = {
    "path of 3": [("oslo", "bergen"), ("bergen", "voss")],
    "star of 5": [("oslo", name) for name in NAMES[1:5]],
    "ring of 6": ring(NAMES),
}


def parts_of(edges):
    """Samples far from zero."""
    rng, names = np.random.default_rng(5), [name for name in NAMES if any(name in edge for edge in edges)]
    return {
        name: FAR + place + rng.standard_normal((40 + 7 * place, D)) * np.linspace(4, 0.5, D)
        for place, name in enumerate(names)
    }


def tree_of(parts, edges):
    """The tree that sums go along, away from its root."""
    names = list(parts)
    graph = site_graph(names, edges)
    root = Tree().prepare(metropolis(graph)).root
    return nx.relabel_nodes(nx.bfs_tree(graph, root), dict(enumerate(names))), names[root]


def roles(parts, edges, inner):
    """The attacker, the neighbour that it lies to, and all sites that hear the lie.

    The attacker is the root, or, if the tree has another ``inner`` site, that one.
    """
    tree, root = tree_of(parts, edges)
    others = [name for name in tree if tree.out_degree(name) and name != root]
    attacker = others[0] if inner and others else root
    victim = list(tree.successors(attacker))[-1]
    return attacker, victim, [victim, *nx.descendants(tree, victim)]


def attacked(root, parts, edges, what, attacker, victim):
    """Exit statuses, what the attacker has noted, what each site said, and the blocks of the victim."""
    with Mesh(root, parts, edges, patience_s=60) as mesh:
        for name in parts:
            work = partial(lying, what, victim, root / "notes.npz") if name == attacker else None
            mesh.start(name, work=work or partial(noting_blocks, root / f"{name}.npz"))
        statuses = mesh.wait()
        said = {name: mesh.said(name) for name in parts}
        results = [name for name in parts if (mesh.out(name) / "result.npz").exists()]
    notes = dict(np.load(root / "notes.npz"))
    blocks = dict(np.load(root / f"{victim}.npz")) if (root / f"{victim}.npz").exists() else {}
    return statuses, said, results, notes, list(blocks.values())


def assert_named(parts, statuses, said, results, attacker):
    """The run has ended at all honest sites, without a result, with the names of two sites that differ."""
    assert results == []
    for name in set(parts) - {attacker}:
        assert statuses[name] not in (0, None), said[name]
        line = next(line for line in said[name].splitlines() if "was told other numbers than" in line)
        assert sum(other in line for other in parts) >= 2, line


def covariance_of(part, mean, N, M):
    """What a site multiplies blocks with, if it was told that mean and that number of samples."""
    return M / (N - 1) * (part - mean).T @ (part - mean)


@pytest.mark.parametrize("what", [MEAN, COUNT])
@pytest.mark.parametrize("edges", NETWORKS.values(), ids=NETWORKS)
def test_a_site_that_tells_a_neighbour_another_mean_or_count_is_found_out_before_any_product(tmp_path, edges, what):
    """Sites compare what they have heard at the end of the set-up, so that nothing is sent about the wrong mean."""
    parts = parts_of(edges)
    attacker, victim, _ = roles(parts, edges, inner=what == MEAN)
    statuses, said, results, notes, blocks = attacked(tmp_path, parts, edges, what, attacker, victim)
    X, form = np.vstack(list(parts.values())), CrossProducts.usual(D, len(parts), squares=True, weighted=True)
    assert form.decode(notes["total 0"][1:]).n_samples == len(X)
    told = form.decode(told_sum(notes["total 0"], what, len(parts))[1:])
    assert (told.n_samples == len(X) + MORE) == (what == COUNT)
    assert not np.allclose(told.mean, X.mean(axis=0), rtol=1e-6)
    assert [name for name in notes if name.startswith(("total", "block"))] == ["total 0"]
    assert blocks == []
    assert_named(parts, statuses, said, results, attacker)


@pytest.mark.parametrize("edges", NETWORKS.values(), ids=NETWORKS)
def test_a_site_that_sends_different_blocks_to_different_sites_gets_noise_and_is_found_out(tmp_path, edges):
    """The attacker knows the pooled covariance, as from an earlier run, and even the block of its victim."""
    parts = parts_of(edges)
    attacker, victim, deceived = roles(parts, edges, inner=False)
    statuses, said, results, notes, blocks = attacked(tmp_path, parts, edges, BLOCK, attacker, victim)
    X, M = np.vstack(list(parts.values())), len(parts)
    own = {name: covariance_of(part, X.mean(axis=0), len(X), M) for name, part in parts.items()}
    first = int(notes["first_product"])
    honest, other = notes["block 1"], blocks[1]
    assert np.array_equal(blocks[0], notes["block 0"])
    assert not np.allclose(honest, other)
    found = notes[f"total {first + 1}"] - sum(own.values()) @ honest
    true = sum(own[name] for name in deceived) @ (other - honest)
    # 240 numbers: the cosine of noise is 0.065 from zero.
    assert abs(np.vdot(found, true)) < 0.45 * np.linalg.norm(found) * np.linalg.norm(true)
    assert_named(parts, statuses, said, results, attacker)


def test_sites_that_no_longer_make_the_same_rounds_find_out_why(tmp_path):
    """The victim hears that a site has values beyond the usual range, so it begins to agree on ranges."""
    edges = NETWORKS["path of 3"]
    parts = parts_of(edges)
    attacker, victim, _ = roles(parts, edges, inner=False)
    statuses, said, results, _, _ = attacked(tmp_path, parts, edges, RANGE, attacker, victim)
    assert_named(parts, statuses, said, results, attacker)


def test_a_lie_that_is_told_to_all_is_not_found_out_and_shows_pooled_numbers_only(tmp_path):
    """A limit of the protocol: what the root learns is what anybody could compute from the pooled samples."""
    edges = NETWORKS["star of 5"]
    parts = parts_of(edges)
    attacker, _, _ = roles(parts, edges, inner=False)
    statuses, said, results, notes, _ = attacked(tmp_path, parts, edges, MEAN, attacker, "")
    assert set(statuses.values()) == {0}, said
    assert set(results) == set(parts)
    X, M = np.vstack(list(parts.values())), len(parts)
    C, number = covariance_of(X, X.mean(axis=0) + SHIFT, len(X), M), int(notes["first_product"])
    while f"block {number - int(notes['first_product'])}" in notes:
        block = notes[f"block {number - int(notes['first_product'])}"]
        assert np.allclose(notes[f"total {number}"], C @ block, rtol=1e-8, atol=1e-8)
        number += 1
    assert number > int(notes["first_product"])
