"""The statement for the person who decides, and approvals: by whom, of what, and when."""

import datetime as dt
import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("cryptography")

from eigenmesh.cli import app
from eigenmesh.errors import DisagreementError, InputError, MissingEntriesError, RangeError, UnreadableFileError
from eigenmesh.sites import approval, read_site
from eigenmesh.sites.addresses import Address, RelayedLinks
from eigenmesh.sites.approval import (
    Approval,
    RunStatement,
    approval_file,
    approve,
    changes_since_approval,
    require_approval,
)
from eigenmesh.sites.audit import summary
from eigenmesh.sites.check import check
from eigenmesh.sites.network_file import Manifest
from mesh import Mesh, ring

NAMES = ("oslo", "bergen", "voss")


@pytest.fixture
def three(tmp_path):
    rng = np.random.default_rng(0)
    parts = {name: rng.standard_normal((30, 6)) * np.arange(6, 0, -1) for name in NAMES}
    with Mesh(tmp_path, parts, ring(NAMES)) as mesh:
        for name in NAMES:
            mesh.edit(name, "# approve = true .*", "approve = true")
        yield mesh


def site_of(mesh, name="oslo"):
    return read_site(mesh.folder(name) / "site.toml")


def manifest_of(site):
    return Manifest.of(site, 6, None, 30)


def approved(mesh, name="oslo"):
    site = site_of(mesh, name)
    manifest = manifest_of(site)
    approve(site, manifest, "Kari Nordmann", manifest.digest[:16])
    return site, manifest


def test_a_run_starts_only_once_a_person_has_approved_it_at_every_site(three):
    three.start()
    assert set(three.wait().values()) == {2}
    assert "nobody has approved this run" in three.said("oslo")
    for name in NAMES:
        approved(three, name)
    three.start()
    assert set(three.wait().values()) == {0}
    three.assert_exact()
    for name in NAMES:
        chain = summary(three.out(name) / "audit.jsonl").chain
        assert chain.signed_by == site_of(three).fingerprints[name]
        assert not chain.broken


def test_an_approval_is_of_one_manifest_and_what_has_changed_is_shown(three):
    site, manifest = approved(three)
    require_approval(site, manifest)
    for pattern, text, shown in (
        ("n_components = 3", "n_components = 4", "n_components: 4 here, 3 there"),
        ("min_samples = 0", "min_samples = 50", "min_samples"),
    ):
        three.edit("oslo", pattern, text)
        other = site_of(three)
        with pytest.raises(InputError, match="Kari Nordmann, .* is for another run: .*" + shown.split(":")[0]):
            require_approval(other, manifest_of(other))
        assert any(shown.split(":")[0] in line for line in changes_since_approval(other, manifest_of(other)))
        three.edit("oslo", text, pattern)
    assert changes_since_approval(site, manifest) == []


def changed(path, **fields):
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_an_approval_by_another_key_is_refused(three):
    site, manifest = approved(three)
    approved(three, "bergen")
    text = approval_file(site_of(three, "bergen")).read_text()
    approval_file(site).write_text(text)
    with pytest.raises(InputError, match="not signed by the key of oslo"):
        require_approval(site, manifest)


@pytest.mark.parametrize("fields", [{"name": "Ola Nordmann"}, {"date": "2020-01-01T00:00:00+00:00"}, {"run": "other"}])
def test_a_changed_approval_is_refused(three, fields):
    site, manifest = approved(three)
    changed(approval_file(site), **fields)
    with pytest.raises(InputError, match="not signed by the key of oslo"):
        require_approval(site, manifest)


def test_an_approval_with_a_date_in_the_future_is_refused(three, monkeypatch):
    site, manifest = site_of(three), manifest_of(site_of(three))

    now = dt.datetime.now(dt.UTC)

    class Later(dt.datetime):
        @classmethod
        def now(cls, tz=None):
            return now + dt.timedelta(days=1)

    with monkeypatch.context() as patch:
        patch.setattr(approval, "dt", SimpleNamespace(datetime=Later, UTC=dt.UTC))
        approve(site, manifest, "Kari Nordmann", manifest.digest)
    with pytest.raises(InputError, match="date in the future"):
        require_approval(site, manifest)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"site": 3}'])
def test_a_file_that_is_no_approval_is_refused(three, text):
    site = site_of(three)
    approval_file(site).write_text(text)
    with pytest.raises(UnreadableFileError, match="is not an approval"):
        Approval.read(approval_file(site))


def test_who_has_not_read_the_statement_cannot_approve(three):
    site = site_of(three)
    manifest = manifest_of(site)
    for digest in ("", manifest.digest[:8], "0" * 16):
        with pytest.raises(InputError, match="is not that of this run"):
            approve(site, manifest, "Kari Nordmann", digest)
    with pytest.raises(InputError, match="name of a person"):
        approve(site, manifest, " ", manifest.digest)


def test_the_statement_says_what_leaves_and_what_others_learn(three, tmp_path):
    site = site_of(three)
    names = tuple(f"<column {number}>" for number in range(6))
    site = replace(site, data=replace(site.data, feature_names=names))
    page, text = RunStatement.of(site).write(tmp_path / "statement.html")
    digest, said = Manifest.of(site, 6, names, 30).digest, text.read_text()
    for words in ("oslo (this site), bergen, voss", "3 principal components", "at least 10", digest, "samples: 30"):
        assert words in said
    assert "all 2 other sites together: the sums of this site alone" in said
    assert "&lt;column 5&gt;" in page.read_text()
    assert "<script" not in page.read_text()
    relay = RelayedLinks("relay", Address("relay.example", 7443), (("oslo", "voss"),))
    met = replace(site, relays=(relay,), neighbours={"bergen": None})
    assert "linked to this site: bergen, voss (over relay)" in RunStatement.of(met).text
    assert "the relay relay: who is linked over it" in RunStatement.of(met).text
    opened = replace(site, settings=replace(site.settings, asked=replace(site.settings.asked, privacy="open")))
    assert "not masked: neighbours see" in RunStatement.of(opened).text


def test_a_check_says_whether_the_run_is_approved_and_by_whom(three):
    found = {finding.about: finding for finding in check(site_of(three))}
    assert (found["approval"].verdict, "nobody has approved" in found["approval"].text) == ("note", True)
    approved(three)
    found = {finding.about: finding for finding in check(site_of(three))}
    assert (found["approval"].verdict, "by Kari Nordmann on 20" in found["approval"].text) == ("ok", True)


def test_the_commands_write_the_statement_and_the_approval(three, tmp_path):
    site, page = str(three.folder("oslo") / "site.toml"), tmp_path / "statement.html"
    assert CliRunner().invoke(app, ["site", "check", site, "--statement", str(page)]).exit_code == 0
    digest = re.search("--digest ([0-9a-f]{16})", page.with_suffix(".txt").read_text()).group(1)
    words = ["site", "approve", site, "--digest", digest, "--name", "Kari Nordmann"]
    assert CliRunner().invoke(app, words).exit_code == 0
    require_approval(site_of(three), manifest_of(site_of(three)))
    three.edit("oslo", "n_components = 3", "n_components = 2")
    again = CliRunner().invoke(app, words)
    assert again.exit_code == 2
    assert "changed since the last approval: n_components: 3 here, 2 there" in again.stdout


def test_what_other_sites_are_told_of_an_error_names_no_data():
    for kind, told in (
        (MissingEntriesError, "its data have missing entries"),
        (RangeError, "its data are beyond the range that was agreed"),
        (InputError, "its settings do not fit"),
    ):
        assert kind("row 3 of patients.csv").told == told
    assert issubclass(DisagreementError, InputError)
