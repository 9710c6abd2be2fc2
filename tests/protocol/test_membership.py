"""Survivors of a loss come to the same view, whatever the order of events, and only ends of a link speak for it."""

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenmesh.errors import FrameError, TransportError
from eigenmesh.protocol.membership import Membership, TwiceError
from eigenmesh.protocol.setup import Statement, Topic, make_statement, read_statement
from eigenmesh.rehearsal.world import SecretKeyring

NAMES = tuple("abcdefgh")
RUN = bytes(16)


def network(graph):
    return [(NAMES[a], NAMES[b]) for a, b in graph.edges]


def said(kind, site, content):
    return make_statement(SecretKeyring(site), RUN, kind, site, content)


def lose(membership, link):
    """One site loses a link of its own, and signs the view that follows."""
    membership.add(said(Topic.LOST, membership.name, sorted(link)))
    membership.add(said(Topic.VIEW, membership.name, [*membership.view, ""]))


def tell(teller, listener):
    """One site tells another all that it knows; the listener signs a view that has grown. True if anything was new."""
    before, new = listener.lost, False
    for statement in teller.statements:
        new |= listener.add(statement)
    if listener.lost != before:
        listener.add(said(Topic.VIEW, listener.name, [*listener.view, ""]))
    return new


def settle(views, rng, dead=()):
    """Deliver statements between living neighbours in random order until nobody has anything new to say."""
    edges = {tuple(sorted(edge)) for view in views.values() for edge in view.edges}
    waiting = [(a, b) for edge in edges for a, b in (edge, edge[::-1]) if a not in dead and b not in dead]
    while waiting:
        teller, listener = waiting.pop(rng.randrange(len(waiting)))
        if tell(views[teller], views[listener]):
            others = [a if b == listener else b for a, b in edges if listener in (a, b)]
            waiting += [(listener, other) for other in others if other not in dead]


@settings(max_examples=60)
@given(st.integers(4, 8), st.integers(0, 10**6), st.randoms(use_true_random=False))
def test_survivors_agree_on_members_and_links(n, seed, rng):
    graph = nx.gnp_random_graph(n, 0.6, seed=seed)
    if not nx.is_connected(graph):
        graph = nx.cycle_graph(n)
    edges, dead = network(graph), {NAMES[rng.randrange(n)]}
    views = {name: Membership(name, NAMES[:n], edges) for name in NAMES[:n] if name not in dead}
    for name, view in views.items():
        for edge in edges:
            if name in edge and set(edge) & dead:
                lose(view, edge)
    settle(views, rng, dead)
    left = graph.copy()
    left.remove_nodes_from([NAMES.index(name) for name in dead])
    for part in nx.connected_components(left):
        names = tuple(NAMES[node] for node in sorted(part))
        for name in names:
            assert views[name].members == names
            assert not views[name].undecided
            assert views[name].lost == views[names[0]].lost


def test_a_lost_link_need_not_be_a_lost_site():
    view = Membership("a", NAMES[:5], network(nx.cycle_graph(5)))
    lose(view, ("a", "b"))
    assert view.members == NAMES[:5]
    assert view.lost == (("a", "b"),)
    assert view.undecided == ("b", "c", "d", "e")


def test_not_agreed_before_all_members_have_signed_the_view():
    edges = network(nx.path_graph(4))
    views = {name: Membership(name, NAMES[:4], edges) for name in "abc"}
    lose(views["c"], ("c", "d"))
    tell(views["c"], views["b"])
    assert views["b"].undecided
    tell(views["b"], views["a"])
    assert not views["a"].undecided
    assert views["b"].undecided
    tell(views["a"], views["b"])
    assert not views["b"].undecided


def test_of_two_halves_neither_goes_on():
    edges = network(nx.path_graph(4))
    for name in "bc":
        view = Membership(name, NAMES[:4], edges, [("b", "c")])
        with pytest.raises(TransportError, match="only 2 of 4 sites can still reach each other"):
            view.require_majority()
    most = Membership("a", NAMES[:4], edges, [("c", "d")])
    most.require_majority()
    assert most.missing == ("d",)


@pytest.mark.parametrize(
    ("kind", "site", "content"),
    [
        (Topic.LOST, "a", ["b", "c"]),  # of which it is no end
        (Topic.LOST, "a", ["a", "c"]),  # which is no link
        (Topic.LOST, "a", 3),
        (Topic.VIEW, "b", [9, "x", ""]),
        (Topic.VIEW, "b", {"n": 1}),
        (Topic.RESULT, "b", [-1, "x"]),
        (Topic.INSTANCE, "z", ["i", 1, "n", ""]),
        (Topic.INSTANCE, "b", ["i"]),
        (Topic.INSTANCE, "b", ["i", 1, "n", "not a key"]),
        (Topic.VIEW, "b", [1, "x", "ab"]),
        ("other", "b", []),
    ],
)
def test_statements_that_make_no_sense_are_refused_and_change_nothing(kind, site, content):
    view = Membership("c", NAMES[:3], [("a", "b"), ("b", "c")])
    with pytest.raises(FrameError):
        view.add(Statement(kind, site, content, ""))
    assert (view.statements, view.lost) == ([], ())


def test_what_is_stored_does_not_grow_with_what_is_said():
    view = Membership("a", NAMES[:3], [("a", "b"), ("b", "c")])
    for start in range(2, 1000):
        assert view.add(said(Topic.INSTANCE, "b", ["journal", start, "n", ""]))
        assert not view.add(said(Topic.INSTANCE, "b", ["journal", start - 1, "n", ""]))
    assert len(view.statements) == 1


def test_a_site_that_runs_twice_is_found_out():
    view = Membership("a", NAMES[:3], [("a", "b"), ("b", "c")])
    view.add(said(Topic.INSTANCE, "b", ["journal 2", 3, "one", ""]))
    with pytest.raises(TwiceError, match="b has started the run over, or runs twice"):
        view.add(said(Topic.INSTANCE, "b", ["journal 2", 3, "other", ""]))
    # As long as no numbers were used a site may begin anew; an older journal is never taken instead.
    assert not view.add(said(Topic.INSTANCE, "b", ["journal 1", 9, "one", ""]))
    assert view.add(said(Topic.INSTANCE, "b", ["journal 3", 1, "one", ""]))
    view.fresh = False
    with pytest.raises(TwiceError):
        view.add(said(Topic.INSTANCE, "b", ["journal 4", 1, "one", ""]))


def test_nobody_can_sign_for_another_site():
    true = said(Topic.RESULT, "b", [0, "digest"])
    assert read_statement(true.text, SecretKeyring("a"), RUN) == true
    forged = make_statement(SecretKeyring("c"), RUN, Topic.RESULT, "b", [0, "digest"])
    with pytest.raises(FrameError, match="in the name of b is not signed by it"):
        read_statement(forged.text, SecretKeyring("a"), RUN)
    with pytest.raises(FrameError, match="not signed"):
        read_statement(true.text.replace("digest", "other!"), SecretKeyring("a"), RUN)
    with pytest.raises(FrameError, match="not signed"):
        read_statement(true.text, SecretKeyring("a"), b"another run     ")
