"""Fingerprints of keys: written by init and pin, kept over a renewal, and the only keys that are taken."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from eigenmesh.cli import app
from eigenmesh.cli.site_keys import make_network
from eigenmesh.errors import InputError
from eigenmesh.sites import read_network_file, read_site
from eigenmesh.sites.authority import fingerprint_of, load_certificate_authority, load_credentials, pinned
from eigenmesh.sites.network_file import Manifest, differences, site_toml

NAMES = ("oslo", "bergen", "trondheim")


def certificates(mesh):
    return [mesh / name / "cert.pem" for name in NAMES]


def authority_of(mesh):
    return load_certificate_authority((mesh / "ca" / "ca.pem").read_bytes(), (mesh / "ca" / "ca.key").read_bytes())


def test_init_pins_the_keys_of_all_sites_at_each(mesh):
    pins = dict(map(fingerprint_of, certificates(mesh)))
    assert [dict(read_site(mesh / name / "site.toml").fingerprints) for name in NAMES] == [pins] * 3


def test_pin_writes_what_is_missing_and_leaves_the_rest_of_the_file(mesh):
    path = mesh / "oslo" / "site.toml"
    text = path.read_text()
    path.write_text(text[: text.index("[fingerprints]")] + "# the end\n")
    done = CliRunner().invoke(app, ["site", "pin", str(path), *map(str, certificates(mesh))])
    assert done.exit_code == 0, done.output
    assert dict(read_site(path).fingerprints) == dict(map(fingerprint_of, certificates(mesh)))
    assert "# the end\n" in path.read_text()
    again, _ = pinned(path, certificates(mesh)[:1])
    assert again == path.read_text()


def test_a_new_key_is_pinned_in_the_place_of_the_old_one_and_a_renewed_certificate_changes_nothing(mesh, tmp_path):
    path, authority = mesh / "oslo" / "site.toml", authority_of(mesh)
    before = path.read_text()
    other, renewed = tmp_path / "other.pem", tmp_path / "renewed.pem"
    renewed.write_bytes(authority.renew((mesh / "bergen" / "cert.pem").read_bytes(), 100)[1])
    assert pinned(path, [renewed])[0] == before
    other.write_bytes(authority.issue("bergen").certificate)
    text, pins = pinned(path, [other])
    assert text != before
    assert (pins["bergen"], pins["oslo"]) == (fingerprint_of(other)[1], fingerprint_of(mesh / "oslo" / "cert.pem")[1])
    assert text.count("bergen = ") == before.count("bergen = ")


def test_a_network_file_takes_the_fingerprints_and_each_site_takes_them_from_there(mesh, tmp_path):
    network, path = tmp_path / "network.toml", mesh / "oslo" / "site.toml"
    whole = path.read_text()
    path.write_text(whole[: whole.index("[fingerprints]")])
    with pytest.raises(InputError, match=r"network\.toml has no table \[fingerprints\]; the coordinator adds it"):
        pinned(path, [network])
    network.write_text(pinned(network, certificates(mesh))[0])
    pins = dict(map(fingerprint_of, certificates(mesh)))
    assert read_network_file(network).fingerprints == pins
    path.write_text(pinned(path, [network])[0])
    assert dict(read_site(path).fingerprints) == pins
    # A site.toml that is made from it later has them too.
    assert site_toml(read_network_file(network), "oslo") == site_toml(read_network_file(network), "oslo", pins)
    with pytest.raises(InputError, match="of existing keys, and init would create new keys"):
        make_network(network, tmp_path / "again")
    network.write_text(network.read_text().replace('trondheim = "', '# "'))
    with pytest.raises(InputError, match="has fingerprints, but not of trondheim"):
        read_network_file(network)


def test_what_cannot_be_pinned_is_refused_by_name(mesh, tmp_path):
    path, stranger = mesh / "oslo" / "site.toml", tmp_path / "cert.pem"
    from eigenmesh.sites.authority import make_certificate_authority

    stranger.write_bytes(make_certificate_authority().issue("rome").certificate)
    with pytest.raises(InputError, match="is for rome, which is not a site of"):
        pinned(path, [stranger])
    text = path.read_text()
    for old, new, what in (
        ("[fingerprints]", "[fingerprints]\nrome = 'x'", "is not a site of this network"),
        ('trondheim = "', 'trondheim = "x', r"is not a fingerprint \(64 characters"),
        ('trondheim = "', '# "', "has fingerprints, but not of trondheim"),
    ):
        head, table = text.split("[fingerprints]")
        path.write_text(head + ("[fingerprints]" + table).replace(old, new))
        with pytest.raises(InputError, match=what):
            read_site(path)


def test_a_site_with_another_key_than_the_pinned_one_does_not_start(mesh):
    site = read_site(mesh / "oslo" / "site.toml")
    made = authority_of(mesh).issue("oslo")
    site.tls.certificate.write_bytes(made.certificate)
    site.tls.key.write_bytes(made.key)
    load_credentials(site.tls, "oslo")
    with pytest.raises(InputError, match=r"does not match the fingerprint of oslo in site\.toml"):
        load_credentials(site.tls, "oslo", site.fingerprints)


def test_sites_that_have_pinned_other_keys_do_not_agree(mesh, tmp_path):
    path, other = mesh / "oslo" / "site.toml", tmp_path / "other.pem"
    manifest = Manifest.of(read_site(path), 4, None)
    assert sorted(manifest.content["fingerprints"]) == sorted(NAMES)
    other.write_bytes(authority_of(mesh).issue("bergen").certificate)
    path.write_text(pinned(path, [other])[0])
    (field,) = differences(manifest, Manifest.of(read_site(path), 4, None))
    assert field.startswith("fingerprints.bergen: ")
