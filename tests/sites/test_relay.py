"""Sites without a port: real peers, a real relay in a process of its own, real HTTP proxies."""

import json
import signal
from functools import partial

import numpy as np
import pytest
from sklearn.datasets import load_digits

pytest.importorskip("cryptography")

from eigenmesh.errors import InputError
from eigenmesh.sites import read_network_file, read_site
from eigenmesh.sites.check import check
from eigenmesh.sites.network_file import relay_toml
from eigenmesh.sites.relay import read_relay
from http_proxies import TINYPROXY, Tinyproxy
from mesh import RELAY, Mesh, ring
from waiting import until
from watched import noting_site, recording_relay, telling, words_at_all_places

NAMES = ("oslo", "bergen", "tromso", "bodo", "voss")
CLOSED = NAMES[1:4]
BAD_INPUT = 2
needs_tinyproxy = pytest.mark.skipif(TINYPROXY is None, reason="tinyproxy is not installed (apt install tinyproxy)")


@pytest.fixture(scope="module")
def parts():
    X, y = load_digits(return_X_y=True)
    return {name: X[(y == 2 * site) | (y == 2 * site + 1)][: 355 - 40 * site] for site, name in enumerate(NAMES)}


def relay_lines(mesh):
    said = (mesh.folder(RELAY) / "said.txt").read_text().splitlines()
    return [json.loads(line)["message"] for line in said if line.startswith("{")]


@pytest.mark.slow
def test_five_sites_of_which_three_have_no_port_survive_kills_of_the_relay(tmp_path, parts):
    """It dies twice in the middle of the run; nobody loses a round, and nothing that it saw is a number of a site."""
    seen, sent = tmp_path / "seen", tmp_path / "sent"
    seen.mkdir()
    sent.mkdir()
    with Mesh(tmp_path, parts, ring(NAMES), without_port=CLOSED) as mesh:
        for name in CLOSED:
            assert "listen =" not in (mesh.folder(name) / "site.toml").read_text()
        mesh.start(work=partial(noting_site, sent))
        for _ in range(2):
            mesh.start_relay(recording_relay, seen, 40_000)
            assert mesh.relay.wait(300) == -signal.SIGKILL
            assert all(process.poll() is None for process in mesh.running.values()), "a site has ended too early"
        mesh.start_relay(recording_relay, seen, 0)
        assert set(mesh.wait().values()) == {0}
        mesh.assert_exact()
        for name in NAMES:
            assert mesh.numbers(name)["whole"] is True
        assert any("bergen - tromso, run test: joined" in line for line in relay_lines(mesh))
        mesh.relay.send_signal(signal.SIGINT)
        assert mesh.relay.wait(60) == 0
    recorded = [path.read_bytes() for path in seen.iterdir()]
    assert sum(map(len, recorded)) > 100_000
    plain = [path.read_bytes() for path in sent.iterdir()]
    assert len(plain) == len(NAMES)
    numbers = [words_at_all_places(data) for data in plain]
    samples = np.concatenate([part.astype("<f8").view("<u8").ravel() for part in parts.values()])
    means = np.concatenate([part.mean(axis=0).astype("<f8").view("<u8") for part in parts.values()])
    secret = telling(np.unique(np.concatenate([*numbers, samples, means])))
    assert len(secret) > 50_000
    for data in recorded:
        assert not np.isin(words_at_all_places(data), secret).any()
    # The same search finds what is sent if it is not encrypted.
    for data in plain:
        assert np.isin(telling(words_at_all_places(b"..." + data)), secret).mean() > 0.99


@pytest.mark.slow
def test_sites_that_name_different_relays_are_refused_by_name(tmp_path, parts):
    three = {name: parts[name] for name in NAMES[:3]}
    with Mesh(tmp_path, three, ring(NAMES[:3]), without_port=NAMES[1:3]) as mesh:
        mesh.edit("tromso", r'(\[\[relay\]\].*?\nname = )"relay"', r'\1"other"')
        mesh.start_relay()
        mesh.start()
        codes = mesh.wait()
        assert 0 not in codes.values()
        assert BAD_INPUT in codes.values()
        said = " ".join(mesh.said(name) for name in three).replace("\n", " ")
        assert "relays" in said
        assert '"other"' in said


def findings(mesh, name):
    return {found.about: found for found in check(read_site(mesh.folder(name) / "site.toml"))}


@pytest.mark.slow
def test_a_check_says_whether_the_relay_accepts_the_site_and_carries_the_link(tmp_path, parts):
    three = {name: parts[name] for name in NAMES[:3]}
    with Mesh(tmp_path, three, ring(NAMES[:3]), without_port=NAMES[1:3]) as mesh:
        found = findings(mesh, "bergen")["neighbour tromso"]
        assert (found.verdict, "cannot be reached" in found.text) == ("problem", True)
        assert "the relay relay at 127.0.0.1" in found.text
        mesh.start_relay()
        # bergen calls, tromso waits.
        until(lambda: findings(mesh, "bergen")["neighbour tromso"].verdict == "note", "the relay does not start")
        found = findings(mesh, "bergen")["neighbour tromso"]
        assert "is up and accepts this site's certificate; tromso is not there yet" in found.text
        found = findings(mesh, "tromso")["neighbour bergen"]
        assert found.verdict == "note"
        assert "accepts this site's certificate; not tested: bergen calls this site there" in found.text
        mesh.start("tromso")
        until(lambda: findings(mesh, "bergen")["neighbour tromso"].verdict == "ok", "tromso is not found")
        found = findings(mesh, "bergen")
        assert "tromso, over the relay relay" in found["neighbour tromso"].text
        assert found["manifest of tromso"].verdict == "ok"
        relay = mesh.folder(RELAY) / "relay.toml"
        relay.write_text(relay.read_text().replace('links = [["bergen", "tromso"]]', 'links = [["oslo", "bergen"]]'))
        mesh.kill_relay()
        mesh.start_relay()

        def refused():
            found = findings(mesh, "bergen")["neighbour tromso"]
            return found.verdict == "problem" and "does not carry the link bergen - tromso" in found.text

        until(refused, "the relay does not refuse")


@pytest.mark.slow
@needs_tinyproxy
def test_sites_that_call_through_a_proxy_that_wants_a_password(tmp_path, parts):
    """To a relay and to a neighbour with a port; every call goes through the proxy."""
    three = {name: parts[name] for name in NAMES[:3]}
    with (
        Tinyproxy(tmp_path, "oslo", "password") as proxy,
        Mesh(tmp_path, three, ring(NAMES[:3]), without_port=NAMES[1:3]) as mesh,
    ):
        mesh.call_through(f"http://oslo:pass%77ord@{proxy.address}")
        mesh.start_relay()
        mesh.start()
        assert set(mesh.wait().values()) == {0}
        mesh.assert_exact()
        assert set(proxy.requests) == {f"127.0.0.1:{mesh.ports[name]}" for name in ("oslo", RELAY)}
        assert not any("pass" in mesh.log(name) for name in three)
        mesh.edit("bergen", "pass%77ord", "wrong")
        found = findings(mesh, "bergen")["neighbour tromso"]
        assert found.verdict == "problem"
        assert "refuses a connection to 127.0.0.1" in found.text
        assert "wrong" not in found.text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('name = "relay"', 'name = "oslo"'), "is the name of a site or of another relay"),
        (('name = "relay"', 'name = "Relay"'), "not a valid site name"),
        (('["bergen", "tromso"]]\n', '["oslo", "bodo"]]\n'), "oslo - bodo, which is not a link"),
        (('address = "relay.example:7443"', 'address = "relay.example"'), "is not an address"),
        (("links = ", "link = "), "link"),
    ],
)
def test_a_relay_that_is_described_wrong(tmp_path, change, said):
    path = network(tmp_path, change)
    with pytest.raises(InputError, match=said):
        read_network_file(path)


def network(tmp_path, *changes):
    text = """\
edges = [["oslo", "bergen"], ["bergen", "tromso"], ["tromso", "oslo"]]
[[site]]
name = "oslo"
address = "oslo.example:7400"
[[site]]
name = "bergen"
[[site]]
name = "tromso"
[[relay]]
name = "relay"
address = "relay.example:7443"
links = [["bergen", "tromso"]]
[settings]
n_components = 2
"""
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "network.toml"
    path.write_text(text)
    return path


def test_the_numbers_of_a_relay_are_served_to_those_who_show_its_token(tmp_path):
    path = tmp_path / "relay.toml"
    path.write_text(relay_toml(read_network_file(network(tmp_path)), RELAY).replace("# metrics", "metrics"))
    assert read_relay(path).metrics.address.port == 9400
    path.write_text(path.read_text().replace("127.0.0.1:9400", "0.0.0.0:9400"))
    with pytest.raises(InputError, match="needs a token"):
        read_relay(path)
    path.write_text('metrics_token = "metrics.token"\n' + path.read_text())
    assert read_relay(path).metrics.token == tmp_path / "metrics.token"


def test_a_link_has_one_relay_and_a_relay_takes_links_without_an_address(tmp_path):
    default = read_network_file(network(tmp_path, ('links = [["bergen", "tromso"]]\n', "")))
    assert default.relays[0].links == (("bergen", "tromso"),)
    second = '[[relay]]\nname = "second"\naddress = "b.example:1"\nlinks = [["tromso", "bergen"]]\n[settings]'
    with pytest.raises(InputError, match="bergen - tromso, which is carried by relay, too"):
        read_network_file(network(tmp_path, ("[settings]", second)))
    everything = network(
        tmp_path, ('links = [["bergen", "tromso"]]\n', ""), ('name = "bergen"', 'name = "bergen"\naddress = "b:1"')
    )
    with pytest.raises(InputError, match="no link needs a relay"):
        read_network_file(everything)


def test_a_site_names_no_address_for_a_neighbour_that_it_meets_at_a_relay(tmp_path, parts):
    three = {name: parts[name] for name in NAMES[:3]}
    with Mesh(tmp_path, three, ring(NAMES[:3]), without_port=NAMES[1:3]) as mesh:
        site = read_site(mesh.folder("bergen") / "site.toml")
        assert site.called == ("oslo", "tromso")
        assert site.listen is None
        mesh.edit("bergen", r"\[neighbours\][^\n]*", '[neighbours]\ntromso = "incoming"')
        with pytest.raises(InputError, match="tromso is a neighbour that bergen meets at the relay relay; remove it"):
            read_site(mesh.folder("bergen") / "site.toml")
        relay = read_relay(mesh.folder(RELAY) / "relay.toml")
        assert relay.links == frozenset({frozenset({"bergen", "tromso"})})
        assert relay.fingerprints == site.fingerprints
        assert (relay.most_of("oslo"), relay.most_of("bergen")) == (0, 8)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("proxy.example:3128", "is written"),
        ("https://proxy.example:3128", "only HTTP proxies"),
        ("http://secret:word@proxy.example", "is not an address"),
    ],
)
def test_a_proxy_that_is_written_wrong_is_named_without_its_password(tmp_path, parts, text, said):
    three = {name: parts[name] for name in NAMES[:3]}
    with Mesh(tmp_path, three, ring(NAMES[:3])) as mesh:
        mesh.call_through(text, "oslo")
        with pytest.raises(InputError, match=said) as raised:
            read_site(mesh.folder("oslo") / "site.toml")
        assert "secret" not in str(raised.value)
