"""The manifest: the same at all sites of a run, different as soon as anything that matters differs, and named then."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eigenmesh
from eigenmesh import graphs
from eigenmesh.errors import InputError
from eigenmesh.protocol import wire
from eigenmesh.settings import AT_SITES
from eigenmesh.sites import read_network_file, read_site
from eigenmesh.sites.network_file import Manifest, differences, site_toml
from eigenmesh.solvers import BlockKrylov, FastPCA
from settings_values import another, shown

NAMES = ("age", "bmi", "dose")


@pytest.fixture
def sites(write_network, tmp_path):
    network = read_network_file(write_network(("[settings]", '[settings]\nsolver = "block-krylov"')))
    found = {}
    for name in network.names:
        path = tmp_path / f"{name}.toml"
        path.write_text(site_toml(network, name))
        found[name] = read_site(path)
    return found


def test_all_sites_of_a_run_come_to_the_same_digest_and_run_id(sites):
    made = [Manifest.of(site, 3, NAMES) for site in sites.values()]
    assert len({manifest.text for manifest in made}) == 1
    assert len({manifest.run_id for manifest in made}) == 1
    assert len(made[0].run_id) == 16
    assert differences(made[0], made[1]) == []


def test_the_order_in_which_links_are_listed_does_not_matter(sites):
    oslo = sites["oslo"]
    text = oslo.path.read_text()
    turned = text.replace('["oslo", "bergen"], ["oslo", "trondheim"]', '["trondheim", "oslo"], ["bergen", "oslo"]')
    assert turned != text
    oslo.path.write_text(turned)
    assert Manifest.of(read_site(oslo.path), 3, NAMES).digest == Manifest.of(oslo, 3, NAMES).digest


CHANGES = [
    ({"n_components": 4}, ["n_components: 3 here, 4 there"]),
    (
        {"solver": FastPCA()},
        ['solver.name: "block-krylov" here, "fast-pca" there', "solver.oversample: 5 here, nothing there"],
    ),
    ({"solver": BlockKrylov(oversample=7)}, ["solver.oversample: 5 here, 7 there"]),
    ({"tol": 1e-5}, ["tol: 1e-07 here, 1e-05 there"]),
    ({"max_rounds": 9}, ["max_rounds: 5000 here, 9 there"]),
    ({"scale": True}, ["scale: false here, true there"]),
    ({"missing": "mean"}, ['missing: "error" here, "mean" there']),
    ({"seed": 1}, ["seed: none here, 1 there"]),
    ({"on_loss": "abort"}, ['on_loss: "wait" here, "abort" there']),
    ({"privacy": "open"}, ['privacy: "masked" here, "open" there', 'masks: "all pairs" here, none there']),
    ({"min_samples": 9}, ["min_samples: 0 here, 9 there"]),
    ({"min_samples_per_site": 9}, ["min_samples_per_site: 10 here, 9 there"]),
    ({"partition": "features"}, ['partition: "samples" here, "features" there']),
]
NAMED = {name for change, _ in CHANGES for name in change} | {"min_new_samples"}
CHANGES += [
    ({name: another(name)}, [f"{name}: {shown(row.default_at('site'))} here, {shown(another(name))} there"])
    for name, row in AT_SITES.items()
    if row.agree and name not in NAMED
]
# Each site waits as long as it likes, and reads new samples when it likes.
MAY_DIFFER = {"patience_s", "join_s", "round_s", "every_s", "batch_rows"}
# Only runs that are followed have it, and their tests look at it.
FOLLOWED = {"min_new_samples"}


def test_every_setting_of_a_site_is_compared_or_may_differ():
    compared = {name for change, _ in CHANGES for name in change}
    assert compared | FOLLOWED == {name for name, row in AT_SITES.items() if row.agree}
    assert {name for name, row in AT_SITES.items() if not row.agree} == MAY_DIFFER


def changed(settings, change):
    own = {name: value for name, value in change.items() if hasattr(settings, name) and name != "solver"}
    asked = {name: value for name, value in change.items() if name not in own}
    return replace(settings, **own, asked=replace(settings.asked, **asked))


@pytest.mark.parametrize(("change", "said"), CHANGES, ids=lambda value: str(value))
def test_a_setting_that_differs_is_named_with_both_values(sites, change, said):
    oslo = sites["oslo"]
    other = replace(oslo, settings=changed(oslo.settings, change))
    ours, theirs = Manifest.of(oslo, 3, NAMES), Manifest.parse(Manifest.of(other, 3, NAMES).text)
    assert ours.digest != theirs.digest
    assert ours.run_id != theirs.run_id
    assert set(said) <= set(differences(ours, theirs))


@pytest.mark.parametrize("name", sorted(MAY_DIFFER))
def test_what_is_a_sites_own_may_differ(sites, name):
    oslo = sites["oslo"]
    other = replace(oslo, settings=replace(oslo.settings, **{name: 7}))
    assert Manifest.of(oslo, 3, NAMES).digest == Manifest.of(other, 3, NAMES).digest


def test_runs_and_graphs_that_differ_are_named(sites):
    ours = Manifest.of(sites["oslo"], 3, NAMES)
    renamed = Manifest.of(replace(sites["oslo"], run="cohort-2"), 3, NAMES)
    assert differences(ours, renamed) == ['run: "cohort-1" here, "cohort-2" there']
    path = replace(sites["oslo"], edges=(("oslo", "bergen"), ("bergen", "trondheim")))
    found = differences(ours, Manifest.of(path, 3, NAMES))
    assert 'edges: entry 1 is "oslo - trondheim" here, "bergen - trondheim" there' in found


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("age", "dose", "bmi"), 'feature_names: column 1 is "bmi" here, "dose" there'),
        (("age", "bmi"), "feature_names: 3 of them here, 2 there"),
        (None, "feature_names: 3 values here, none there"),
    ],
)
def test_the_first_column_that_differs_is_named(sites, names, said):
    ours, theirs = Manifest.of(sites["oslo"], 3, NAMES), Manifest.of(sites["oslo"], 3, names)
    assert differences(ours, theirs) == [said]


def test_very_many_names_travel_as_digests_and_a_difference_is_still_placed(sites):
    names = [f"rs{number}" for number in range(100_000)]
    ours = Manifest.of(sites["oslo"], len(names), names)
    assert len(ours.text) < 100_000
    names[70_001], names[70_002] = names[70_002], names[70_001]
    (line,) = differences(ours, Manifest.of(sites["oslo"], len(names), names))
    first, last = line.removeprefix("feature_names.parts.").split(":")[0].split(" to ")
    assert int(first) <= 70_001 <= int(last)
    assert int(last) - int(first) < 200


def test_a_site_shows_neither_samples_nor_paths_nor_addresses(sites):
    text = Manifest.of(sites["bergen"], 3, NAMES).text
    for hidden in ('"n_samples"', "data.csv", "7400", "7401", "pem", str(sites["bergen"].path.parent)):
        assert hidden not in text


def test_values_that_python_takes_for_equal_are_still_told_apart():
    assert differences(Manifest({"tol": 1}), Manifest({"tol": 1.0})) == ["tol: 1 here, 1.0 there"]
    assert differences(Manifest({"tol": 1}), Manifest({"tol": True})) == ["tol: 1 here, true there"]


def test_what_comes_from_elsewhere_is_kept_short_and_on_one_line():
    ours, theirs = Manifest({"run": "a"}), Manifest.parse(json.dumps({"run": "x\n\x1b[31m" * 1000}))
    (line,) = differences(ours, theirs)
    assert len(line) < 200
    assert line.isprintable()


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"a": NaN}', "[" * 100_000, '{"a":' * 5000 + "1" + "}" * 5000, "{}" + " " * (1 << 20)]
)
def test_what_is_no_manifest_is_refused(text):
    with pytest.raises(InputError, match="manifest"):
        Manifest.parse(text)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@settings(max_examples=40)
@given(st.dictionaries(st.text(), PLAIN), st.dictionaries(st.text(), PLAIN))
def test_there_are_differences_exactly_where_digests_differ(first, second):
    ours, theirs = Manifest.parse(json.dumps(first)), Manifest.parse(json.dumps(second))
    assert bool(differences(ours, theirs)) == (ours.digest != theirs.digest)


def test_weights_are_told_apart_and_dense_or_sparse_is_the_same():
    cycle = graphs.metropolis(graphs.topologies.cycle(300))
    dense = graphs.Weights(np.asarray(cycle.matrix.toarray()), cycle.graph)
    assert cycle.digest == dense.digest
    assert cycle.digest != graphs.Weights(graphs.half_way(cycle.matrix), cycle.graph).digest


def test_patches_of_one_version_run_together_where_the_wire_is_the_same(mesh, monkeypatch):
    site = read_site(mesh / "oslo" / "site.toml")
    ours = Manifest.of(site, 3, None)
    assert ours.content["eigenmesh"] == ".".join(eigenmesh.__version__.split(".")[:2])
    assert ours.content["wire"] == wire.VERSION
    monkeypatch.setattr(wire, "VERSION", wire.VERSION + 1)
    assert differences(ours, Manifest.of(site, 3, None)) == [f"wire: {wire.VERSION - 1} here, {wire.VERSION} there"]
