"""Masked fits: the same bits as open ones, and nothing leaves a node that shows its own numbers."""

import re
from html import escape

import numpy as np
import pytest
from scipy import stats

from eigenmesh import DecentralizedPCA, graphs
from eigenmesh.averaging import AllReduce, Integers
from eigenmesh.data import Shards
from eigenmesh.errors import InputError, TransportError
from eigenmesh.fitting import NodeData, Request, Spread, fit, prepare
from eigenmesh.fitting.networks import add_masks
from eigenmesh.masking import Disclosure
from eigenmesh.networks import Peers, Stacked
from eigenmesh.transports import Links
from eigenmesh.transports.threads import ThreadTransport, run_threads

SIZES = (40, 7, 90, 25, 33, 60)
ONE_SUM = ({"solver": "one-sum"}, {"solver": "one-sum", "n_components": 0.7, "scale": True})
M = len(SIZES)


def parts(seed=0, d=20):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((n, d)) * rng.uniform(0.2, 3, d) + rng.standard_normal(d) for n in SIZES]


def fitted(samples=None, topology="cycle", **settings):
    usual = {"n_components": 3, "random_state": 1, "topology": topology, "privacy": "masked", "solver": "block-krylov"}
    settings = usual | settings
    return DecentralizedPCA(**settings).fit(parts() if samples is None else samples)


@pytest.mark.parametrize(
    "settings", [{}, {"n_components": None}, {"n_components": 0.7, "scale": True}, *ONE_SUM], ids=str
)
def test_masks_change_no_bit_and_no_round_but_for_the_keys(settings):
    unmasked = fitted(**settings, privacy="open", averaging="integers")
    keys = {}
    for averaging, transport in (
        ("auto", None),
        ("tree", "threads"),
        ("allreduce", None),
        (Integers(AllReduce()), None),
    ):
        masked = fitted(**settings, averaging=averaging, transport=transport)
        assert masked.components_.tobytes() == unmasked.components_.tobytes()
        assert masked.explained_variance_.tobytes() == unmasked.explained_variance_.tobytes()
        assert masked.noise_variance_ == unmasked.noise_variance_
        assert masked.n_iter_ == unmasked.n_iter_
        keys[str(averaging), transport] = masked.traffic_.rounds - unmasked.traffic_.rounds
    # A tree of a cycle of six has three levels; a count of the samples, where it is needed, is an average of both.
    assert keys["auto", None] == keys["tree", "threads"] == 6


class Lying(ThreadTransport):
    """Tells the third node more than the others, while it lies."""

    lies = False

    def exchange(self, arrays, links):
        if not self.lies or 2 not in links.send_to:
            return super().exchange(arrays, links)
        super().exchange(tuple(array + array.dtype.type(1) for array in arrays), Links((2,), ()))
        others = tuple(node for node in links.send_to if node != 2)
        return super().exchange(arrays, Links(others, links.receive_from))


HEARD = {
    "a total": lambda network, own: network.common_mean(own),
    "a broadcast": lambda network, own: network.broadcast(own),
    "a maximum": lambda network, own: network.maximum(own),
    "a maximum that rides along": lambda network, own: network.common_mean_and_maximum(own, own),
}


@pytest.mark.parametrize("lies", [False, True], ids=["true", "a lie"])
@pytest.mark.parametrize("what", HEARD)
def test_sums_after_a_lie_are_noise_whatever_it_was_about(what, lies):
    """On a path of three the node in the middle is the root; what it lies about is all that a node can hear."""
    values, weights = np.random.default_rng(2).standard_normal((3, 1, 50)), graphs.metropolis(graphs.topologies.path(3))

    def work(transport):
        if transport.rank == 1:
            transport.__class__ = Lying
        network, own = Peers(weights, transport, Integers()), values[transport.rank]
        add_masks(network)
        transport.lies = lies
        HEARD[what](network, own)
        transport.lies = False
        return network.n_nodes * network.common_mean(own)[0]

    for found in run_threads(3, work):
        off = np.abs(found - values.sum(axis=(0, 1)))
        assert off.min() > 1e6 if lies else off.max() < 1e-12


class Recorded(ThreadTransport):
    """Keeps what it sends."""

    def __init__(self, link):
        super().__init__(link._hub, link.rank)
        self.messages = []

    def exchange(self, arrays, links):
        if links.send_to:
            self.messages += [np.array(array) for array in arrays]
        return super().exchange(arrays, links)


def all_sent(samples, topology="star", **settings):
    """The words and the other numbers that each node sends in a whole fit."""
    weights = Spread(topology, weights="metropolis").network(M)
    asked = {"n_components": 3, "random_state": 1, "privacy": "masked", "solver": "block-krylov"} | settings
    request = Request.parse(**asked)

    def node(link):
        transport = Recorded(link)
        own = NodeData(Shards.from_list(samples).take([link.rank]), weights, transport)
        fit(prepare(request, own))
        # First comes the digest of the settings, the same at all nodes.
        digest, *messages = transport.messages
        assert (digest.dtype, digest.shape) == (np.uint8, (32,))
        words = [one for one in messages if one.dtype == np.uint64]
        return words, [one for one in messages if one.dtype != np.uint64]

    return run_threads(M, node)


def test_what_is_sent_in_the_clear_does_not_tell_who_has_which_samples():
    samples = parts()
    # The same pooled data, held by others.
    exchanged = [samples[node] for node in (0, 2, 1, 5, 3, 4)]
    before, after = (all_sent(one) for one in (samples, exchanged))
    for (_, clear), (_, other) in zip(before, after, strict=True):
        assert len(clear) == len(other) > 3
        # The keys come first; their table has a row of six numbers for each node.
        keys = [one.shape for one in clear].count((1, 6 * M))
        assert keys > 0
        assert [one.shape for one in clear[:keys]] == [(1, 6 * M)] * keys
        assert all(one.tobytes() == two.tobytes() for one, two in zip(clear[keys:], other[keys:], strict=True))


@pytest.mark.parametrize("settings", [{}, {"n_components": None}, *ONE_SUM], ids=str)
def test_the_words_of_a_leaf_are_uniform_and_its_open_ones_are_not(settings):
    def chances(sent):
        # Every node but the centre of the star sends its own words only; its last ones are the result.
        words = np.concatenate([one.ravel() for own, _ in sent[1:] for one in own])
        counts = np.bincount(words.view(np.uint8), minlength=256)
        return stats.chisquare(counts).pvalue, stats.kstest(words / 2.0**64, "uniform").pvalue, len(words)

    *masked, count = chances(all_sent(parts(), **settings))
    *plain, same = chances(all_sent(parts(), **settings, privacy="open", averaging="integers"))
    assert count >= same > 1000
    assert min(masked) > 1e-9
    assert max(plain) < 1e-12


@pytest.mark.parametrize("settings", [{}, *ONE_SUM], ids=str)
def test_no_word_of_a_node_is_what_it_would_have_sent_openly(settings):
    masked, plain = (all_sent(parts(), **settings, **how) for how in ({}, {"privacy": "open", "averaging": "integers"}))
    for (words, _), (own, _) in zip(masked[1:], plain[1:], strict=True):
        assert not any((one == two).any() for one, two in zip(words, own, strict=True))


@pytest.mark.parametrize(
    "solver", ["fast-pca", "deepca", "tracked-subspace", "s-dot", "sa-dot", "seq-dist-pm", "sanger"]
)
def test_solvers_that_mix_are_refused_by_name(solver):
    with pytest.raises(
        InputError, match=f"solver '{solver}' does not average in integers, masked or not.*block-krylov"
    ):
        fitted(solver=solver, n_components=None)


@pytest.mark.parametrize("averaging", ["gossip", "chebyshev", "polynomial", "factored"])
def test_averagings_that_weigh_are_refused_by_name(averaging):
    with pytest.raises(InputError, match=f"averaging '{averaging}' cannot be masked.*tree, allreduce or integers"):
        fitted(averaging=averaging)


def test_two_nodes_and_unknown_names_are_refused():
    with pytest.raises(InputError, match=r"2 nodes cannot be masked.*by subtraction.*at least 3"):
        fitted(parts()[:2], "complete")
    with pytest.raises(InputError, match=r"unknown privacy 'mask'; there are: masked, open. Did you mean 'masked'"):
        fitted(privacy="mask")


def test_a_second_fit_of_what_was_prepared_uses_no_mask_again():
    weights = Spread("path", weights="metropolis").network(M)
    request = Request.parse(n_components=2, privacy="masked", random_state=1, solver="block-krylov")
    prepared = prepare(request, NodeData(Shards.from_list(parts()), weights))
    first, number = fit(prepared), prepared.network.masking.number
    # A number that is used again is refused by the masks themselves.
    assert fit(prepared).result.components.tobytes() == first.result.components.tobytes()
    assert prepared.network.masking.number > number > 3


def test_a_node_without_a_key_is_named(monkeypatch):
    weights = Spread("path", weights="metropolis").network(M)
    network = Stacked(weights, Integers())
    largest = network.maximum

    def without_two(table):
        table[:, 2] = -1.0
        return largest(table)

    network.maximum = without_two
    with pytest.raises(TransportError, match="node 2 sent no key"):
        add_masks(network)


def test_masks_of_the_transport_are_taken_and_no_keys_are_made():
    given = object()

    def node(link):
        link.masks = lambda: given
        network = Peers(Spread("path", weights="metropolis").network(3), link, Integers())
        add_masks(network)
        return network.masking.masks == [given], network.traffic.messages

    assert run_threads(3, node) == [(True, 0)] * 3


@pytest.mark.parametrize("settings", [{}, {"n_components": None}], ids=str)
def test_the_planner_knows_what_masks_cost(settings):
    asked = DecentralizedPCA(
        **({"n_components": 3, "random_state": 1, "topology": "cycle"} | settings), privacy="masked"
    )
    plan, done = asked.plan(parts()), asked.fit(parts())
    assert {line.averaging for line in plan.forecasts} == {"integers"}
    assert {line.solver for line in plan.forecasts} == {"block-krylov", "one-sum"}
    assert (plan.best.rounds, plan.best.bytes) == (done.traffic_.rounds, done.traffic_.bytes)


@pytest.mark.parametrize("transport", [None, "threads"])
def test_the_certificate_says_what_a_masked_fit_has_shown(transport):
    masked, plain = (fitted(parts(d=120), transport=transport, privacy=privacy) for privacy in ("masked", "open"))
    shown, numbers = masked.certificate_.disclosure, masked.result_.summary()["privacy"]
    # Every product of block Krylov has K + 5 columns, and the certificate needed no other.
    assert shown == Disclosure(M, 120, 8 * masked.n_iter_)
    known = (
        f"the pooled covariance on at most {shown.columns} of 120 dimensions, by {shown.columns} columns of products"
    )
    assert numbers["of_all_samples"] == f"N, mean, variances, and {known}"
    assert (numbers["mode"], numbers["of_one_site"], numbers["masks"]) == (
        "masked",
        "nothing, if all nodes follow the protocol",
        "all pairs",
    )
    assert "nobody has learned a number of any single node, if all nodes follow the protocol" in shown.words[0]
    assert shown.words[1] == f"All nodes now know {numbers['of_all_samples']}."
    assert escape(shown.words[1]) in masked.result_._repr_html_()
    assert plain.certificate_.disclosure.words == ()
    assert plain.result_.summary()["privacy"]["of_one_site"] == "neighbours see what a node adds to an average"


def test_a_solver_that_sums_covariances_shows_the_pooled_one_whole():
    shown = fitted(solver="one-sum").certificate_.disclosure
    assert "the pooled covariance on all 20 dimensions" in shown.of_all_samples


def test_beyond_all_pairs_the_certificate_has_the_chance_of_colluders():
    words = Disclosure(64, 10, 5).words[0]
    assert re.search(
        r"a site has no honest partner with a probability below .* if a third collude at random, .* if half", words
    )
