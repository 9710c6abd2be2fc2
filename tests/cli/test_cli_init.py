"""init and sign: what is made, for whom, with which rights; and that nothing is ever overwritten."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from cryptography import x509

from eigenmesh.errors import InputError
from eigenmesh.sites import read_site
from eigenmesh.sites.authority import load_credentials
from eigenmesh.sites.network_file import EXAMPLE

NAMES = ("oslo", "bergen", "trondheim")


@pytest.fixture(autouse=True)
def network_file(call):
    """The folder in which commands run has a network.toml."""
    Path("network.toml").write_text(EXAMPLE)


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_every_site_gets_its_own_folder_and_the_authority_another(call):
    done = call("site", "init", "network.toml", "--out", "mesh")
    assert done.exit_code == 0, done.output
    expected = {"ca/ca.key", "ca/ca.pem", "ca/issued.jsonl"}
    expected |= {f"{name}/{file}" for name in NAMES for file in ("site.toml", "cert.pem", "key.pem", "ca.pem")}
    assert set(_files(Path("mesh"))) == expected
    for name in NAMES:
        site = read_site(f"mesh/{name}/site.toml")
        load_credentials(site.tls, name)
    keys = {content for name, content in _files(Path("mesh")).items() if "key" in name}
    assert len(keys) == 4
    for words in ("calls bergen at pca.bergen", "Secret: key.pem", "ca.key. Whoever has it", "then run: eigenmesh"):
        assert words in done.output


@pytest.mark.skipif(os.name != "posix", reason="needs permission bits")
@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_keys_can_be_read_by_their_owner_alone_from_the_first_byte(call, mask, monkeypatch):
    opened = {}
    real = os.open

    def spy(path, flags, mode=0o777, **more):
        handle = real(path, flags, mode, **more)
        if flags & os.O_CREAT:
            opened[Path(path).name] = (stat.S_IMODE(os.fstat(handle).st_mode), bool(flags & os.O_EXCL))
        return handle

    monkeypatch.setattr(os, "open", spy)
    before = os.umask(mask)
    try:
        assert call("site", "init", "network.toml", "--out", "mesh").exit_code == 0
    finally:
        os.umask(before)
    assert opened["key.pem"] == opened["ca.key"] == (0o600, True)
    for key in (*Path("mesh").rglob("key.pem"), Path("mesh/ca/ca.key")):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


@pytest.mark.parametrize("there", ["mesh/trondheim/site.toml", "mesh/ca/ca.key", "mesh/oslo/key.pem"])
def test_nothing_is_overwritten_and_nothing_else_written(call, there):
    Path(there).parent.mkdir(parents=True)
    Path(there).write_text("mine")
    done = call("site", "init", "network.toml", "--out", "mesh")
    assert done.exit_code == 2
    assert f"{there} exists already" in done.stderr
    assert _files(Path("mesh")) == {there.removeprefix("mesh/"): b"mine"}


def test_a_second_init_changes_nothing(call):
    call("site", "init", "network.toml", "--out", "mesh")
    before = _files(Path("mesh"))
    done = call("site", "init", "network.toml", "--out", "mesh")
    assert done.exit_code == 2
    assert "14 more exist already" in done.stderr
    assert _files(Path("mesh")) == before


def test_a_link_that_leads_nowhere_counts_as_there(call):
    Path("mesh/oslo").mkdir(parents=True)
    Path("mesh/oslo/key.pem").symlink_to("elsewhere")
    assert call("site", "init", "network.toml", "--out", "mesh").exit_code == 2
    assert not Path("mesh/oslo/elsewhere").exists()


def test_what_was_written_is_taken_back_when_the_disk_fails(call, monkeypatch):
    real, count = os.open, 0

    def fails_late(path, flags, mode=0o777, **more):
        nonlocal count
        count += bool(flags & os.O_CREAT)
        if count == 9:
            raise OSError(28, "No space left on device", str(path))
        return real(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", fails_late)
    done = call("site", "init", "network.toml", "--out", "mesh")
    assert done.exit_code == 2
    assert "No space left on device" in done.stderr
    assert not Path("mesh").exists()


def test_requests_are_made_without_an_authority_and_signed_elsewhere(call):
    assert call("site", "init", "network.toml", "--out", "mesh", "--only", "ca").exit_code == 0
    assert set(_files(Path("mesh"))) == {"ca/ca.key", "ca/ca.pem", "ca/issued.jsonl"}
    done = call("site", "init", "network.toml", "--out", "site", "--only", "oslo")
    assert done.exit_code == 0, done.output
    assert set(_files(Path("site"))) == {"oslo/key.pem", "oslo/request.pem", "oslo/site.toml"}
    words = (
        "site/oslo/request.pem",
        "--name",
        "oslo",
        "--ca",
        "mesh/ca",
        "--out",
        "site/oslo/cert.pem",
        "--days",
        "30",
    )
    assert call("site", "sign", *words).exit_code == 0
    Path("site/oslo/ca.pem").write_bytes(Path("mesh/ca/ca.pem").read_bytes())
    site = read_site("site/oslo/site.toml")
    load_credentials(site.tls, "oslo")
    made = x509.load_pem_x509_certificate(Path("site/oslo/cert.pem").read_bytes())
    assert (made.not_valid_after_utc - made.not_valid_before_utc).days == 30
    assert "cert.pem exists already" in call("site", "sign", *words).stderr


def test_days_are_as_asked(call):
    call("site", "init", "network.toml", "--out", "mesh", "--days", "7")
    made = x509.load_pem_x509_certificate(Path("mesh/oslo/cert.pem").read_bytes())
    assert (made.not_valid_after_utc - made.not_valid_before_utc).days == 7


def test_the_example_is_printed(call):
    assert call("site", "init", "--example").output == EXAMPLE


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), ("--out DIR", "--example")),
        (("network.toml",), ("--out DIR",)),
        (("none.toml", "--out", "mesh"), ("none.toml does not exist",)),
        (("network.toml", "--out", "mesh", "--only", "osl"), ("'osl'", "Did you mean 'oslo'?")),
        (("network.toml", "--out", "mesh", "--only", "oslo", "--days", "3"), ("whoever signs",)),
        (("network.toml", "--out", "mesh", "--days", "5000"), ("5000 days",)),
        (("wrong.toml", "--out", "mesh"), ("line 27", "'n_component'", "Did you mean 'n_components'?")),
    ],
)
def test_bad_input_is_refused_in_one_line_and_nothing_is_written(call, words, said):
    Path("wrong.toml").write_text(EXAMPLE.replace("n_components", "n_component"))
    done = call("site", "init", *words)
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    for fragment in said:
        assert fragment in done.stderr
    assert not Path("mesh").exists()


def _issued(folder="mesh/ca"):
    lines = [json.loads(line) for line in Path(folder, "issued.jsonl").read_text().splitlines()]
    return [(line["why"], line["name"], int(line["serial"], 16)) for line in lines]


def _certificate(path):
    return x509.load_pem_x509_certificate(Path(path).read_bytes())


def test_everything_that_is_issued_is_on_record(call):
    call("site", "init", "network.toml", "--out", "mesh")
    call("site", "init", "network.toml", "--out", "here", "--only", "oslo")
    assert (
        call("site", "sign", "here/oslo/request.pem", "--name", "oslo", "--ca", "mesh/ca", "--out", "new.pem").exit_code
        == 0
    )
    assert (
        call("site", "renew", "mesh/bergen/cert.pem", "--ca", "mesh/ca", "--out", "bergen.pem", "--days", 900).exit_code
        == 0
    )
    paths = [*(f"mesh/{name}/cert.pem" for name in NAMES), "new.pem", "bergen.pem"]
    serials = [_certificate(path).serial_number for path in paths]
    assert _issued() == list(zip(["init"] * 3 + ["sign", "renew"], [*NAMES, "oslo", "bergen"], serials, strict=True))


def test_a_renewed_certificate_is_for_the_same_key_and_longer(call):
    call("site", "init", "network.toml", "--out", "mesh", "--days", 10)
    assert call("site", "renew", "mesh/oslo/cert.pem", "--ca", "mesh/ca", "--out", "oslo.pem").exit_code == 0
    old, new = _certificate("mesh/oslo/cert.pem"), _certificate("oslo.pem")
    assert old.public_key() == new.public_key()
    assert (new.not_valid_after_utc - old.not_valid_after_utc).days == 815
    Path("oslo.pem").replace("mesh/oslo/cert.pem")
    load_credentials(read_site("mesh/oslo/site.toml").tls, "oslo")
    call("site", "init", "network.toml", "--out", "other")
    done = call("site", "renew", "other/oslo/cert.pem", "--ca", "mesh/ca", "--out", "x.pem")
    assert (done.exit_code, "not issued by this authority" in " ".join(done.stderr.split())) == (2, True)


def test_a_revoked_site_cannot_start_or_be_renewed_until_it_has_a_new_key(call):
    call("site", "init", "network.toml", "--out", "mesh")
    done = call("site", "revoke", "oslo", "--ca", "mesh/ca")
    assert "revoked 1 certificates of oslo" in done.output
    assert "no certificate was issued to 'bodo'" in call("site", "revoke", "bodo", "--ca", "mesh/ca").stderr
    for name in NAMES:
        Path(f"mesh/{name}/revoked.pem").write_bytes(Path("mesh/ca/revoked.pem").read_bytes())
    with pytest.raises(InputError, match=r"revoked\.pem; make a new key"):
        load_credentials(read_site("mesh/oslo/site.toml").tls, "oslo")
    load_credentials(read_site("mesh/bergen/site.toml").tls, "bergen")
    assert "is revoked" in call("site", "renew", "mesh/oslo/cert.pem", "--ca", "mesh/ca", "--out", "x.pem").stderr
    call("site", "init", "network.toml", "--out", "here", "--only", "oslo")
    call("site", "sign", "here/oslo/request.pem", "--name", "oslo", "--ca", "mesh/ca", "--out", "here/oslo/cert.pem")
    for file in ("ca.pem", "revoked.pem"):
        Path("here/oslo", file).write_bytes(Path("mesh/ca", file).read_bytes())
    load_credentials(read_site("here/oslo/site.toml").tls, "oslo")


def test_the_authority_of_a_network_certifies_its_sites_alone(call):
    call("site", "init", "network.toml", "--out", "mesh")
    Path("network.toml").write_text(EXAMPLE.replace("oslo", "bodo"))
    call("site", "init", "network.toml", "--out", "here", "--only", "bodo")
    done = call("site", "sign", "here/bodo/request.pem", "--name", "bodo", "--ca", "mesh/ca", "--out", "x.pem")
    assert (done.exit_code, "only for oslo, bergen, trondheim" in " ".join(done.stderr.split())) == (2, True)
