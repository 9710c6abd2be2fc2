"""Masks: who sees what, as site files say it, and what attacks find in masked messages."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy import stats

from attacks import M, of_noise, off, overlap, sizes_of_words, watched, worked_out
from eigenmesh import graphs
from eigenmesh.averaging import Integers, Polynomial
from eigenmesh.errors import DataError, InputError
from eigenmesh.fitting.node_data import NodeData
from eigenmesh.masking import MaskContext, PairwiseMasks, SiteKey, Transcript, pair_key, pairwise_masks
from eigenmesh.sites import read_network_file, read_site
from eigenmesh.sites.audit import summary
from eigenmesh.sites.site import require_terms
from killed import masking_command
from mesh import Mesh, ring
from processes import command

# Who sees what, as site files say it: masked where that can be, refused by name where it hides nothing.


SETTINGS = "[settings]\n"


def with_settings(*lines):
    return SETTINGS, SETTINGS + "".join(f"{line}\n" for line in lines)


def test_three_sites_are_masked_unless_they_say_otherwise(write_network):
    assert read_network_file(write_network()).settings.request().masked
    assert read_network_file(write_network(with_settings('privacy = "open"'))).settings.asked.privacy == "open"


@pytest.mark.parametrize("lines", [(), ('privacy = "masked"',)])
def test_two_sites_have_to_say_that_they_see_each_other(write_network, lines):
    links = ('[["oslo", "bergen"], ["bergen", "trondheim"], ["trondheim", "oslo"]]', '[["oslo", "bergen"]]')
    two = links, ('[[site]]\nname = "trondheim"\n', "")
    with pytest.raises(InputError, match="with two sites each finds the other's numbers by subtraction"):
        read_network_file(write_network(*two, with_settings(*lines)))
    assert read_network_file(write_network(*two, with_settings('privacy = "open"'))).settings.asked.privacy == "open"


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('solver = "fast-pca"', "'fast-pca' does not average in integers"),
        ('privacy = "secret"', "masked, open"),
        ("min_samples = -1", "min_samples"),
    ],
)
def test_what_cannot_be_masked_is_refused_by_name(write_network, line, what):
    with pytest.raises(InputError, match=what):
        read_network_file(write_network(with_settings(line)))


def test_the_terms_of_a_run_are_looked_at_before_anybody_is_called(mesh):
    site = read_site(mesh / "oslo" / "site.toml")
    require_terms(site, 10)
    with pytest.raises(DataError, match="oslo has 9 samples, fewer than min_samples_per_site = 10"):
        require_terms(site, 9)
    require_terms(replace(site, settings=replace(site.settings, min_samples_per_site=5)), 5)
    with pytest.raises(InputError, match=r"needs \[fingerprints\], because without them the authority"):
        require_terms(replace(site, fingerprints={}), 10)
    leaving = replace(site, settings=replace(site.settings, on_loss="continue"))
    with pytest.raises(InputError, match="Each site must agree to that first"):
        require_terms(leaving, 10)
    require_terms(replace(leaving, agrees_to_continue=True), 10)
    seen = replace(leaving.settings, asked=replace(leaving.settings.asked, privacy="open"))
    require_terms(replace(leaving, settings=seen, fingerprints={}), 10)


@pytest.fixture
def three():
    X = np.random.default_rng(3).standard_normal((90, 6)) * [6.0, 4.0, 2.0, 1.0, 0.5, 0.2]
    return {"oslo": X[:20], "bergen": X[20:50], "voss": X[50:]}


@pytest.mark.slow
def test_all_sites_of_a_masked_run_have_the_same_bits_and_say_what_it_showed(tmp_path, three):
    with Mesh(tmp_path, three, ring(list(three)), n_components=2, min_samples=90) as mesh:
        mesh.start_anew()
        assert set(mesh.wait().values()) == {0}
        mesh.assert_exact()
        models = [dict(np.load(mesh.out(name) / "result.npz")) for name in three]
        assert all(np.array_equal(models[0][key], other[key]) for other in models[1:] for key in ("components", "mean"))
        told = [mesh.numbers(name)["privacy"] for name in three]
        assert told[0] == told[1] == told[2]
        assert (told[0]["mode"], told[0]["masks"], told[0]["of_one_site"]) == ("masked", "all pairs", "nothing")
        # Two products with all six columns.
        assert told[0]["of_all_samples"].startswith("N, mean, variances, and the pooled covariance on all 6 dimensions")
        assert told[0]["columns"] >= 6
        assert told[0]["colluders"] == "the numbers of two honest sites stay hidden from 1 that collude"
        assert told[0]["of_lost_sites"] == {}
        (run,) = summary(mesh.out("oslo") / "audit.jsonl").runs
        assert run.masked
        lines = [json.loads(line) for line in (mesh.out("oslo") / "audit.jsonl").read_text().splitlines()]
        # What is not an integer are maxima of what all know: no number per column leaves in the open.
        arrays = [
            pair
            for line in lines
            if line["kind"] == "DATA"
            for pair in zip(line["dtypes"], line["shapes"], strict=True)
        ]
        assert {dtype for dtype, shape in arrays if 6 in shape} == {"uint64"}


@pytest.mark.slow
def test_few_features_take_one_sum_unless_the_sites_name_another_solver(tmp_path, three):
    """Counts are not needed, nor a common start: one sum, in which one site has values beyond the usual range."""
    three["voss"][3, 2] = 3e9
    with Mesh(tmp_path, three, ring(list(three)), n_components=2, solver="auto") as mesh:
        mesh.start_anew()
        assert set(mesh.wait().values()) == {0}
        models = [dict(np.load(mesh.out(name) / "result.npz")) for name in three]
        assert all(np.array_equal(models[0][key], other[key]) for other in models[1:] for key in ("components", "mean"))
        true = np.linalg.eigh(np.cov(np.vstack(list(three.values())).T))[1][:, :-3:-1].T
        np.testing.assert_allclose(np.abs(np.sum(models[0]["components"] * true, axis=1)), 1, atol=1e-12)
        numbers = mesh.numbers("oslo")
        assert numbers["solver"] == "one-sum"
        known = "N, mean, variances, and the pooled covariance on all 6 dimensions, by one sum"
        assert (numbers["privacy"]["of_all_samples"], numbers["privacy"]["of_one_site"]) == (known, "nothing")
        (run,) = summary(mesh.out("oslo") / "audit.jsonl").runs
        assert run.covariance_shaped > 0
        assert run.sample_shaped == 0


@pytest.mark.slow
def test_too_few_samples_in_all_end_the_run_once_they_are_counted(tmp_path, three):
    with Mesh(tmp_path, three, ring(list(three)), n_components=2, min_samples=91) as mesh:
        mesh.start_anew()
        assert 0 not in mesh.wait().values()
        assert "all nodes have 90 samples together; min_samples = 91 asks for more" in mesh.said("oslo")
        lines = [json.loads(line) for line in (mesh.out("oslo") / "audit.jsonl").read_text().splitlines()]
        # One number in two words, and nothing else that is a number of this site.
        sums = {tuple(map(tuple, line["shapes"])) for line in lines if "uint64" in line.get("dtypes", ())}
        assert sums == {((1, 2),)}


@pytest.mark.slow
def test_after_a_loss_console_page_and_result_say_what_is_known_about_the_site_that_left(tmp_path):
    # Far more columns than a block has, so that several products follow the sum of the moments.
    rows = np.random.default_rng(4).standard_normal((120, 40)) * np.linspace(6, 1, 40)
    four = dict(zip(("oslo", "bergen", "voss", "narva"), np.split(rows, [20, 50, 90]), strict=True))
    settings = {"n_components": 2, "on_loss": "continue", "patience_s": 5}
    with Mesh(tmp_path, four, ring(list(four)), **settings) as mesh:
        # It is killed when all know the sum of its moments.
        mesh.start("voss", work=partial(masking_command, tmp_path / "notes.jsonl", 1, 0))
        mesh.start("oslo", "bergen", "narva")
        assert set(mesh.wait("oslo", "bergen", "narva").values()) == {0}
        assert mesh.running["voss"].poll() == -signal.SIGKILL
        for name in ("oslo", "bergen", "narva"):
            known = mesh.numbers(name)["privacy"]["of_lost_sites"]["voss"]
            assert known.startswith("N, mean, variances, and products")
            said = mesh.said(name)
            assert (
                f"voss left during the run. The others can work out what a node that leaves has sent: {known}" in said
            )
            assert "Masked: nobody has learned a number of any other single node; the numbers of two" in said
            assert "any single node" not in said
            assert mesh.numbers(name)["privacy"]["of_one_site"] == "nothing, except of those that left"
            events = map(json.loads, (mesh.out(name) / "events.jsonl").read_text().splitlines())
            (words,) = [event["words"] for event in events if event["kind"] == "certificate"]
            assert any(line.startswith("voss left during the run.") for line in words)
            assert not any("any single node" in line for line in words)


def inflating(*words):
    """``command`` in a process that says that it has more samples, but only when they are counted first."""
    total = NodeData.total
    NodeData.total = lambda data, network, counts: total(data, network, [count + 5000 for count in counts])
    command(*words)


@pytest.mark.slow
def test_a_count_that_is_true_only_later_ends_the_run_by_name(tmp_path, three):
    with Mesh(tmp_path, three, ring(list(three)), n_components=2, min_samples=5000) as mesh:
        mesh.start("voss", work=inflating)
        mesh.start("oslo", "bergen")
        assert 0 not in mesh.wait().values()
        for name in ("oslo", "bergen"):
            assert "counted 5,090 samples at first, but their sums are over 90" in mesh.said(name).replace("\n", " ")
            assert not (mesh.out(name) / "result.npz").exists()


# The attacks that succeed on open messages, on masked ones: a parent, neighbours and M - 2 colluders have noise.


DRAWS, SIZES = 20, (200, 12, 200, 200)
# On a path the second site is the root: the third has it as its parent, and the fourth as its child.
PARENT, VICTIM, CHILD = 1, 2, 3
INNER = (200, 200, 12, 200)


def is_noise(found, blocks, run, true):
    """Whether overlaps of repeated draws cannot be told from those of random words."""
    noise = of_noise(blocks, sizes_of_words(run.scaled), true)
    return stats.ks_2samp(found, noise).pvalue > 1e-6 and max(map(abs, found)) < 0.5


@pytest.fixture(scope="module")
def masked_runs():
    """What a parent has seen of a leaf in so many runs with masks."""
    return [watched(SIZES, graphs.topologies.star(M), Integers(), (0,), masked=True) for _ in range(DRAWS)]


def test_integers_alone_show_the_parent_what_numbers_show():
    run = watched(SIZES, graphs.topologies.star(M), Integers(), (0,))
    assert overlap(worked_out(run.products(0), victim=1)[0], run.true[1]) > 1 - 1e-9


def test_with_masks_the_parent_has_noise(masked_runs):
    first, true = masked_runs[0], masked_runs[0].true[1]
    found = [overlap(worked_out(run.products(0), victim=1)[0], true) for run in masked_runs]
    assert is_noise(found, [B for B, sent in first.products(0) if 1 in sent], first, true)


def test_masked_words_are_evenly_spread(masked_runs):
    """Chi-square over leading bytes, and Kolmogorov-Smirnov, of all that the parent got from the leaf in these runs."""
    words = np.concatenate([one.got[1][0].ravel() for run in masked_runs for one in run.seen[0] if one.got.get(1)])
    assert words.size > 10_000
    counts = np.bincount((words >> np.uint64(56)).astype(int), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-6
    assert stats.kstest(words / 2.0**64, "uniform").pvalue > 1e-6


@pytest.mark.parametrize(
    "topology", [graphs.topologies.path(M), graphs.topologies.cycle(M)], ids=["child", "beside the tree"]
)
def test_a_neighbour_that_is_not_the_parent_gets_pooled_sums_or_nothing(topology):
    """In an open run that weighs what it receives, the same neighbour works out the covariance."""
    open_ = watched(INNER, topology, Polynomial(), (CHILD,))
    assert overlap(worked_out(open_.products(CHILD), VICTIM)[0], open_.true[VICTIM]) > 1 - 1e-9
    run = watched(INNER, topology, Integers(), (0, CHILD), masked=True)
    got = [one.got.get(VICTIM, []) for one in run.seen[CHILD]]
    if topology.number_of_edges() == M:
        # Of the links of a ring one is not in the tree: no product goes over it.
        assert not any(got)
        return
    assert sum(map(len, got)) > 3
    sums = [one.got[PARENT] for one in run.seen[0]]
    for arrays, total in zip(got, sums, strict=True):
        # The same bits as go to a site at the other end of the network.
        assert [array.tobytes() for array in arrays] == [array.tobytes() for array in total]
    pooled = [(one.block, {VICTIM: run.decoded(one.got[VICTIM][0]) / M}) for one in run.seen[CHILD]]
    assert off(worked_out(pooled, VICTIM)[0], sum(run.true) / M) < 1e-6


def of_colluders(run):
    """What the parent and the child of a site know of its products: they take out what they sent and their masks."""
    left = []
    for above, below in zip(run.seen[PARENT], run.seen[CHILD], strict=True):
        if not above.got.get(VICTIM):
            continue
        words = above.got[VICTIM][0] - below.sent[0]
        if run.keys[PARENT]:
            known = {one: run.keys[one][VICTIM] for one in (PARENT, CHILD)}
            masks = PairwiseMasks(VICTIM, known, above.heard)
            words = words - masks.words(above.number, words.size).reshape(words.shape)
        left.append((above.block, {VICTIM: run.decoded(words)}))
    return left


def test_all_sites_but_two_together_have_noise():
    """All neighbours of the victim collude: what is left is its mask with the one site that does not, M - 2 in all."""
    assert M - len((PARENT, CHILD)) == 2
    open_ = watched(INNER, graphs.topologies.path(M), Integers(), (PARENT, CHILD))
    assert overlap(worked_out(of_colluders(open_), VICTIM)[0], open_.true[VICTIM]) > 1 - 1e-9
    runs = [watched(INNER, graphs.topologies.path(M), Integers(), (PARENT, CHILD), masked=True) for _ in range(DRAWS)]
    products = [of_colluders(run) for run in runs]
    found = [overlap(worked_out(one, VICTIM)[0], runs[0].true[VICTIM]) for one in products]
    assert is_noise(found, [B for B, _ in products[0]], runs[0], runs[0].true[VICTIM])


def test_with_one_site_left_over_nothing_is_hidden():
    """All others together know every key that it shares."""
    rng = np.random.default_rng(6)
    context = MaskContext("attack", 0, b"", ("a", "b", "c"))
    keys = [SiteKey.generate(rng.bytes(32)) for _ in context.names]
    publics = [key.public for key in keys]
    words = rng.integers(0, 2**64, 9, np.uint64)
    masked = pairwise_masks(keys[0], publics, 0, context).masked(0, words)
    known = {other: pair_key(keys[other], (publics[0], publics[other]), (0, other), context) for other in (1, 2)}
    assert np.array_equal(masked - PairwiseMasks(0, known, Transcript(context, publics)).words(0, 9), words)
