"""The description of a network: what it says is what is read, and every mistake is named with its place."""

import re
from pathlib import Path

import pytest

from eigenmesh.errors import EigenmeshError, UnreadableFileError
from eigenmesh.sites import Address, read_network_file
from eigenmesh.sites.network_file import EXAMPLE
from eigenmesh.solvers import BlockKrylov

SETTINGS = "[settings]\n"
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
    assert network.settings.solver == BlockKrylov()


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
    (text,) = re.findall(r"^```toml\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
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
        ('["oslo", "bergen"]', '["oslo"]', ("line 2", "not a pair")),
        ('["trondheim", "oslo"]', '["bergen", "oslo"]', ("line 2", "twice")),
        (', ["bergen", "trondheim"], ["trondheim", "oslo"]', "", ("line 2", "2 components", "trondheim", "add links")),
        ('run = "cohort-1"', 'run = "a b"', ("line 1", "'a b'")),
        ('run = "cohort-1"', 'topology = "cycle"', ("must have edges or topology",)),
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
        (SETTINGS, SETTINGS + "solver_parameters = {oversampel = 3}\n", ("'oversampel'", "Did you mean 'oversample'?")),
        (SETTINGS, SETTINGS + "solver_parameters = {oversample = -3}\n", ("do not fit block-krylov", "-3")),
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
