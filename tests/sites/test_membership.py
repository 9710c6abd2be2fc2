"""Survivors of a loss come to the same view, whatever the order of events."""

import json

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenmesh.errors import InputError, TransportError
from eigenmesh.sites._membership import Membership

NAMES = tuple("abcdefgh")


def network(graph):
    return [(NAMES[a], NAMES[b]) for a, b in graph.edges]


def settle(views, rng, dead=()):
    """Deliver views between living neighbours in random order until nobody has anything new to say."""
    edges = {tuple(sorted(edge)) for view in views.values() for edge in view.edges}
    waiting = [(a, b) for edge in edges for a, b in (edge, edge[::-1]) if a not in dead and b not in dead]
    delivered = 0
    while waiting:
        sender, receiver = waiting.pop(rng.randrange(len(waiting)))
        if tuple(sorted((sender, receiver))) in views[sender].lost:
            continue
        delivered += 1
        if views[receiver].merge(views[sender].to_json()):
            around = [edge for edge in edges if receiver in edge]
            others = [a if b == receiver else b for a, b in around]
            waiting += [(receiver, other) for other in others if other not in dead]
    return delivered


@settings(max_examples=60)
@given(st.integers(4, 8), st.integers(0, 10**6), st.randoms(use_true_random=False))
def test_survivors_agree_on_members_and_links(n, seed, rng):
    graph = nx.gnp_random_graph(n, 0.6, seed=seed)
    if not nx.is_connected(graph):
        graph = nx.cycle_graph(n)
    edges, dead = network(graph), {NAMES[rng.randrange(n)]}
    views = {name: Membership(name, NAMES[:n], edges) for name in NAMES[:n] if name not in dead}
    for name, view in views.items():
        view.lose(edge for edge in edges if name in edge and set(edge) & dead)
    settle(views, rng, dead)
    left = graph.copy()
    left.remove_nodes_from([NAMES.index(name) for name in dead])
    for part in nx.connected_components(left):
        names = tuple(NAMES[node] for node in sorted(part))
        for name in names:
            assert views[name].members == names
            assert views[name].agreed
            assert views[name].digest == views[names[0]].digest


def test_a_lost_link_need_not_be_a_lost_site():
    edges = network(nx.cycle_graph(5))
    view = Membership("a", NAMES[:5], edges)
    view.lose([("a", "b")])
    assert view.members == NAMES[:5]
    assert view.epoch == 1
    assert not view.agreed  # nobody else is known to have it yet


def test_not_agreed_before_all_members_are_known_to_have_the_view():
    edges = network(nx.path_graph(4))
    views = {name: Membership(name, NAMES[:4], edges) for name in "abc"}
    views["c"].lose([("c", "d")])
    views["b"].merge(views["c"].to_json())
    assert not views["b"].agreed
    views["a"].merge(views["b"].to_json())
    assert views["a"].agreed
    assert not views["b"].agreed
    views["b"].merge(views["a"].to_json())
    assert views["b"].agreed


def test_a_view_that_grows_is_agreed_on_anew():
    edges = network(nx.complete_graph(4))
    views = {name: Membership(name, NAMES[:4], edges) for name in "abc"}
    for name, view in views.items():
        view.lose([(name, "d")])
    for _ in range(2):
        for a in views.values():
            for b in views.values():
                a.merge(b.to_json())
    assert all(view.agreed for view in views.values())
    views["a"].lose([("a", "b")])
    assert not views["a"].agreed
    views["c"].merge(views["a"].to_json())
    assert not views["c"].agreed
    assert views["c"].members == ("a", "b", "c")


def test_of_two_halves_neither_goes_on():
    edges = network(nx.path_graph(4))
    for name, link in (("b", ("b", "c")), ("c", ("c", "b"))):
        view = Membership(name, NAMES[:4], edges, [link])
        with pytest.raises(TransportError, match="only 2 of 4 sites can still reach each other"):
            view.require_majority()
    most = Membership("a", NAMES[:4], edges, [("c", "d")])
    most.require_majority()
    assert most.missing == ("d",)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "null", '{"lost": 3, "reports": {}}', '{"lost": [["a", "z"]], "reports": {}}',
     '{"lost": [], "reports": {"a": 5}}', '{"lost": [["a"]], "reports": {}}', '{"lost": [["a", "c"]], "reports": {}}'],
)  # fmt: skip
def test_views_that_make_no_sense_are_refused_and_change_nothing(text):
    view = Membership("a", NAMES[:3], [("a", "b"), ("b", "c")])
    before = json.loads(view.to_json())
    with pytest.raises((TransportError, InputError)):
        view.merge(text)
    assert json.loads(view.to_json()) == before
