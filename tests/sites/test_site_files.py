"""network.toml and site.toml: what they say is what is read, and every mistake is named with its line."""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eigenmesh.averaging import Tree
from eigenmesh.data import TableOptions
from eigenmesh.errors import DataError, EigenmeshError, UnreadableFileError
from eigenmesh.sites import read_network_file, read_site
from eigenmesh.sites.network_file import EXAMPLE, site_toml
from eigenmesh.sites.site import Address, DataFile, fingerprint, read_samples
from eigenmesh.solvers import BlockKrylov, OneSum

# The description of a network: what it says is what is read, and every mistake is named with its place.


SETTINGS = "[settings]\n"
NAMED = SETTINGS + 'solver = "block-krylov"\n'
GUIDE = Path(__file__).parents[2] / "docs" / "sites" / "deploy.md"


def test_sites_links_and_settings_are_read(write_network):
    network = read_network_file(write_network())
    assert network.run == "cohort-1"
    assert network.names == ("oslo", "bergen", "trondheim")
    assert network.edges == (("oslo", "bergen"), ("oslo", "trondheim"), ("bergen", "trondheim"))
    assert network.site("oslo").address == Address("pca.oslo.example", 7400)
    # On all interfaces, but for the loopback address, which nobody else could reach anyway.
    assert network.site("oslo").listen == Address("0.0.0.0", 7400)
    assert network.site("bergen").listen == Address("127.0.0.1", 7401)
    assert (network.settings.asked.n_components, network.settings.asked.tol) == (3, 1e-7)
    # Three sites are masked. Block Krylov would reveal all of a covariance of 32 columns in three products, not of 33.
    assert network.settings.solver is None
    assert [network.settings.method(d) for d in (32, 33)] == [OneSum(), BlockKrylov()]


def test_the_first_calls_unless_the_other_cannot_be_called(write_network):
    network = read_network_file(write_network())
    oslo, bergen = network.site("oslo").address, network.site("bergen").address
    assert network.neighbours("oslo") == {"bergen": bergen, "trondheim": None}
    assert network.neighbours("bergen") == {"oslo": None, "trondheim": None}
    assert network.neighbours("trondheim") == {"oslo": oslo, "bergen": bergen}


def test_a_topology_links_the_sites_in_order(write_network):
    edges = 'edges = [["oslo", "bergen"], ["bergen", "trondheim"], ["trondheim", "oslo"]]'
    network = read_network_file(write_network((edges, 'topology = "path"')))
    assert network.edges == (("oslo", "bergen"), ("bergen", "trondheim"))


def test_the_printed_example_can_be_read(tmp_path):
    path = tmp_path / "network.toml"
    path.write_text(EXAMPLE)
    network = read_network_file(path)
    assert network.names == ("oslo", "bergen", "trondheim")
    assert network.settings.on_loss == "wait"


def test_the_network_of_the_guide_can_be_read(tmp_path):
    text, *_ = re.findall(r"^```toml\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    path = tmp_path / "network.toml"
    path.write_text(text)
    assert read_network_file(path).neighbours("trondheim").keys() == {"oslo", "bergen"}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "oslo"', 'name = "Oslo"', ("line 5", "'Oslo'", "lower-case letters")),
        ('name = "oslo"', 'name = "ca"', ("line 5", "certificate authority", "another name")),
        ('name = "oslo"', 'name = "1"', ("line 5", "starting with a letter")),
        ('name = "oslo"', 'name = "bergen"', ("line 9", "used by another site")),
        ('name = "oslo"\n', "", ("line 4", "site.name is missing", "[site]")),
        ("example:7400", "example", ("line 6", "host:port")),
        ("example:7400", "example:74000", ("line 6", "65535")),
        (
            'name = "trondheim"',
            'name = "trondheim"\nadress = "a:1"',
            ("line 14", "'adress'", "Did you mean 'address'?"),
        ),
        ('["oslo", "bergen"]', '["oslo", "bergem"]', ("line 2", "'bergem'", "not a site")),
        ('["oslo", "bergen"]', '["oslo", "oslo"]', ("line 2", "to itself")),
        ('["oslo", "bergen"]', '["oslo"]', ("line 2", "must be a list of pairs")),
        ('["trondheim", "oslo"]', '["bergen", "oslo"]', ("line 2", "twice")),
        (
            ', ["bergen", "trondheim"], ["trondheim", "oslo"]',
            "",
            ("line 2", "no links lead from oslo to trondheim", "add links"),
        ),
        ('run = "cohort-1"', 'run = "a b"', ("line 1", "'a b'")),
        ('run = "cohort-1"', 'topology = "cycle"', ("has edges and topology", "give one of them")),
        ('address = "127.0.0.1:7401"\n', "", ("bergen and trondheim", "neither has an address")),
        ('address = "127.0.0.1:7401"', 'listen = "127.0.0.1:7401"', ("line 10", "without address; add the address")),
        ("[settings]", "[setings]", ("'setings'", "Did you mean 'settings'?")),
        (SETTINGS, SETTINGS + "n_component = 3\n", ("line 16", "'n_component'", "Did you mean 'n_components'?")),
        ("n_components = 3", "n_components = 0", ("line 16", "settings.n_components = 0", "of at least 1")),
        ("n_components = 3", "n_components = 1.5", ("line 16", "between 0 and 1")),
        ("n_components = 3", "n_components = true", ("line 16", "whole number")),
        ("tol = 1e-7", "tol = 2", ("line 17", "settings.tol = 2", "between 0 and 1")),
        ("tol = 1e-7", "tol = nan", ("line 17", "between 0 and 1")),
        (SETTINGS, SETTINGS + 'solver = "block-krilov"\n', ("line 16", "Did you mean 'block-krylov'?")),
        (SETTINGS, SETTINGS + 'averaging = "gossip"\n', ("line 16", "'averaging'")),
        (SETTINGS, SETTINGS + 'on_loss = "carry on"\n', ("line 16", "abort, continue, wait")),
        (SETTINGS, SETTINGS + "patience_s = 0\n", ("line 16", "between 0 and")),
        (SETTINGS, SETTINGS + "join_s = -1\n", ("line 16", "settings.join_s = -1", "between 0 and")),
        (SETTINGS, SETTINGS + 'scale = "yes"\n', ("line 16", "true or false")),
        (SETTINGS, NAMED + "solver_parameters = {oversampel = 3}\n", ("'oversampel'", "Did you mean 'oversample'?")),
        (SETTINGS, NAMED + "solver_parameters = {oversample = -3}\n", ("do not fit block-krylov", "-3")),
        (SETTINGS, SETTINGS + "solver_parameters = {oversample = 3}\n", ("are those of a solver: name it",)),
        ("n_components = 3", "n_components = ", ("is not TOML", "line 16")),
    ],
)
def test_a_mistake_is_named_with_its_place_and_the_fix(write_network, old, new, said):
    with pytest.raises(EigenmeshError) as raised:
        read_network_file(write_network((old, new)))
    assert "network.toml" in str(raised.value)
    for words in said:
        assert words in str(raised.value)


def test_a_file_that_is_no_description(tmp_path):
    with pytest.raises(UnreadableFileError, match="does not exist"):
        read_network_file(tmp_path / "none.toml")
    (tmp_path / "data.npy").write_bytes(b"\x93NUMPY\xff")
    with pytest.raises(UnreadableFileError, match="not TOML: 'utf-8' codec"):
        read_network_file(tmp_path / "data.npy")
    with pytest.raises(UnreadableFileError, match="cannot be read"):
        read_network_file(tmp_path)


# site.toml: what init writes is what is read, and a site that does not fit its network is refused.


@pytest.fixture
def write_site(write_network, tmp_path):
    """Write bergen's site.toml with some of its text replaced."""

    def write(*changes, name="bergen"):
        text = site_toml(read_network_file(write_network()), name)
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "site.toml"
        path.write_text(text)
        return path

    return write


def test_what_init_writes_is_what_is_read(write_network, write_site, tmp_path):
    network = read_network_file(write_network())
    for name in network.names:
        site = read_site(write_site(name=name))
        assert (site.name, site.run) == (name, "cohort-1")
        assert site.sites == network.names
        assert site.edges == network.edges
        assert site.settings == network.settings
        assert dict(site.neighbours) == network.neighbours(name)
        assert (site.tls.key, site.data.file) == (tmp_path / "key.pem", tmp_path / "data.csv")
        assert site.out.audit == tmp_path / "out" / "audit.jsonl"


def test_each_link_is_called_from_one_end_and_heard_at_the_other(write_site):
    sites = {name: read_site(write_site(name=name)) for name in ("oslo", "bergen", "trondheim")}
    for name, site in sites.items():
        assert set(site.neighbours) == set(sites) - {name}
        for other, address in site.neighbours.items():
            assert (address is None) != (sites[other].neighbours[name] is None)
    assert sites["trondheim"].listen is None
    assert sites["oslo"].listen == Address("0.0.0.0", 7400)


def test_a_site_knows_no_address_that_it_does_not_call(write_network):
    text = site_toml(read_network_file(write_network()), "bergen")
    assert "pca.oslo.example" not in text


def test_the_weights_are_those_of_the_graph(write_site):
    weights = read_site(write_site()).weights
    assert np.allclose(weights.matrix, np.full((3, 3), 1 / 3))


def test_settings_make_a_request(write_site):
    more = "[settings.solver_parameters]\noversample = 7"
    changes = ('"masked"', '"open"'), ('"auto"', '"block-krylov"'), ("min_new_samples = 10", more)
    request = read_site(write_site(*changes)).settings.request()
    assert request.solver == BlockKrylov(oversample=7)
    assert request.averaging == Tree()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "bergen"', 'name = "bodo"', ("line 2", "not in sites")),
        ('name = "bergen"', 'nam = "bergen"', ("'nam'", "Did you mean 'name'?")),
        ('sites = ["oslo", ', 'sites = ["oslo", "oslo", ', ("'oslo' twice",)),
        ('oslo = "incoming"', "", ("oslo is linked to bergen", "[neighbours]", '"incoming"')),
        ('oslo = "incoming"', 'oslo = "incoming"\nbodo = "incoming"', ("bodo is not linked", "add the link")),
        ('oslo = "incoming"', 'oslo = "somewhere"', ("neighbours.oslo", "host:port")),
        ('listen = "127.0.0.1:7401"', "", ("oslo, trondheim will call this site", "listen is missing")),
        ("[tls]", "[other]", ("'other'",)),
        ('key = "key.pem"', "", ("tls.key is missing",)),
        ('file = "data.csv"', 'file = "data.csv"\ncovariance = "large"', ("data.covariance", "matrix-free")),
        ('file = "data.csv"', 'file = "data.csv"\nlabel_column = -1', ("data.label_column = -1", "of at least 0")),
        (
            'file = "data.csv"',
            'file = "data.csv"\nfeature_names = ["a", "b", "a"]',
            ("data.feature_names", "column 'a' more than once"),
        ),
        ('file = "data.csv"', 'file = "data.csv"\nheader = "maybe"', ("header = 'maybe'", "'yes'")),
        ('file = "data.csv"', 'file = "data.csv"\namong = ["a"]', ("'among'", "[data]")),
        ('folder = "out"', 'folder = ""', ("out.folder", "not empty")),
        ('# metrics = "127.0.0.1:9400"', 'metrics = "127.0.0.1:94000"', ("metrics", "65535")),
        ('on_loss = "wait"', 'on_loss = "wait"\ncheck_evry = 1', ("'check_evry'", "[settings]")),
    ],
)
def test_a_mistake_of_a_site_is_named_with_its_place_and_the_fix(write_site, old, new, said):
    with pytest.raises(EigenmeshError) as raised:
        read_site(write_site((old, new)))
    for words in ("site.toml", *said):
        assert words in str(raised.value)


VALUES = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.sampled_from(["", "oslo", "bergen", "127.0.0.1:1", "a:b", "x" * 300, "å"]),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


@given(data=st.data(), value=VALUES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
def test_any_value_in_any_field_is_read_or_refused_in_words(write_site, data, value):
    path = write_site()
    lines = path.read_text().splitlines()
    fields = [number for number, line in enumerate(lines) if re.match(r"\w+ = ", line)]
    number = data.draw(st.sampled_from(fields))
    written = json.dumps(value).replace("Infinity", "inf").replace("NaN", "nan")
    lines[number] = f"{lines[number].split(' = ')[0]} = {written}"
    path.write_text("\n".join(lines), encoding="utf-8")
    said = ""
    try:
        assert read_site(path).weights.n_nodes == 3
    except EigenmeshError as error:
        said = str(error)
    assert not said or "site.toml" in said


@pytest.mark.slow
def test_commands_for_sites_load_no_engine():
    """Those who never run peers need no cryptography."""
    commands = "from eigenmesh.cli import site_keys, site_state, transform"
    engines = ["cryptography", "http.client"]
    code = f"import sys; {commands}; print([name for name in {engines} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.strip() == "[]"


GROUP = TableOptions(label_column="group")


def test_samples_are_read_and_their_columns_checked(tmp_path):
    file = tmp_path / "data.csv"
    file.write_text("age,bmi,group\n1,2,a\n3,4,b\n")
    table = read_samples(DataFile(file, GROUP, ("age", "bmi")))
    assert (table.X == [[1, 2], [3, 4]]).all()
    assert table.feature_names == ("age", "bmi")
    turned = read_samples(DataFile(file, GROUP, ("bmi", "age")))
    assert (turned.X == [[2, 1], [4, 3]]).all()
    assert turned.feature_names == ("bmi", "age")
    with pytest.raises(DataError, match=r"data\.csv lacks column 'sex', which data\.feature_names has"):
        read_samples(DataFile(file, GROUP, ("age", "bmi", "sex")))
    np.save(tmp_path / "data.npy", np.eye(2))
    assert read_samples(DataFile(tmp_path / "data.npy", feature_names=("a", "b"))).feature_names == ("a", "b")


def test_a_header_of_numbers_can_be_named_as_one(write_site, tmp_path):
    site = read_site(write_site(('file = "data.csv"', 'file = "data.csv"\nheader = "yes"')))
    site.data.file.write_text("2001,2002\n1,2\n3,4\n")
    table = read_samples(site.data)
    assert table.feature_names == ("2001", "2002")
    assert table.n_samples == 2
    assert json.loads(fingerprint(site.data))["read_with"] == {"header": "yes"}


def test_a_fingerprint_is_data_that_a_program_can_read(tmp_path):
    file = tmp_path / "data.csv"
    file.write_text("a;b\n1;2\n")
    options = TableOptions(drop=("a",), delimiter=";", categories={"b": ("1", "2")})
    assert json.loads(fingerprint(DataFile(file, options))) == {
        "sha256": [hashlib.sha256(file.read_bytes()).hexdigest()],
        "read_with": {"drop": ["a"], "delimiter": ";", "categories": {"b": ["1", "2"]}},
    }


def test_what_is_beside_a_file_and_in_a_folder_is_part_of_its_fingerprint(tmp_path):
    folder = tmp_path / "cohort.parquet"
    folder.mkdir()
    for name in ("a.bed", "a.bim", "a.fam", "cohort.parquet/one.parquet", "cohort.parquet/two.parquet"):
        (tmp_path / name).write_text(name)
    for data, change in ((tmp_path / "a.bed", "a.bim"), (folder, "cohort.parquet/two.parquet")):
        before = fingerprint(DataFile(data))
        assert fingerprint(DataFile(data)) == before
        (tmp_path / change).write_text("changed")
        assert fingerprint(DataFile(data)) != before
