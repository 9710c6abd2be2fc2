"""PCA by files, as operators and a combiner do it: by the real commands, with everything that can go wrong."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import re
import shutil
import signal
from functools import reduce
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

pytest.importorskip("cryptography")

from eigenmesh.cli import app
from eigenmesh.errors import EigenmeshError
from eigenmesh.masking import sum_of_pairs
from eigenmesh.model import read_model
from eigenmesh.sites import read_network_file, read_site, sum_files
from eigenmesh.sites.sum_files import Study, SumFolder, added, read_sum
from eigenmesh.transports.tls import CertificateKeyring
from problems import angles, truth
from processes import Forked, command

SITES = ("oslo", "bergen", "trondheim", "tromso", "bodo")
NAMES = ("age", "bmi", "glucose", "insulin", "pressure", "income", "children")
SIZES = (120, 40, 300, 77, 15)


def samples(seed: int = 0, offset: float = 1.0) -> dict[str, np.ndarray]:
    """Unlike sites, whose means are far from 0 and from each other."""
    rng = np.random.default_rng(seed)
    spread = 2.0 ** -np.arange(len(NAMES))
    centre = offset * np.array([50.0, 27.0, 100.0, 80.0, 120.0, 5e3, 2.0])
    return {
        name: rng.normal(size=(size, len(NAMES))) * rng.permutation(spread) @ _turn(rng) + centre + rng.normal(size=7)
        for name, size in zip(SITES, SIZES, strict=True)
    }


def _turn(rng: np.random.Generator) -> np.ndarray:
    return np.linalg.qr(rng.normal(size=(7, 7)))[0]


class Files:
    """Folders of sites without an open port, and the commands of their operators."""

    def __init__(self, root: Path, parts: dict[str, np.ndarray], settings: str = "n_components = 3\n") -> None:
        self.root, self.keys, self.network, self.parts = root, root / "keys", root / "network.toml", parts
        sites = "".join(f'[[site]]\nname = "{name}"\n' for name in parts)
        self.network.write_text(f'run = "cohort-1"\n{sites}\n[settings]\n{settings}')
        self.done("init", self.network, "--out", root / "mesh")
        certificates = [self.folder(name) / "cert.pem" for name in parts]
        self.done("pin", self.network, *certificates)
        for name, part in parts.items():
            self.write(name, part)

    def folder(self, name: str) -> Path:
        return self.root / "mesh" / name

    def site(self, name: str) -> Path:
        return self.folder(name) / "site.toml"

    def sum(self, name: str) -> Path:
        return self.root / f"{name}.sum"

    def write(self, name: str, part: np.ndarray, names: tuple[str, ...] = NAMES) -> None:
        text = "\n".join([",".join(names), *(",".join(map(repr, row)) for row in part.tolist())])
        (self.folder(name) / "data.csv").write_text(text)

    def run(self, *words: object):
        return CliRunner().invoke(app, ["site", *map(str, words)])

    def done(self, *words: object) -> str:
        found = self.run(*words)
        assert found.exit_code == 0, found.output
        return found.output

    def refused(self, *words: object) -> str:
        found = self.run(*words)
        assert found.exit_code == 2, found.output
        assert isinstance(found.exception, SystemExit), found.exception
        return " ".join(found.output.split())

    def key(self, name: str) -> str:
        return self.done("key", self.site(name), "--keys", self.keys)

    def summarise(self, name: str) -> str:
        return self.done("summarise", *self.of(name))

    def of(self, name: str, keys: Path | None = None, out: Path | None = None) -> tuple[object, ...]:
        return self.site(name), "--keys", keys or self.keys, "--out", out or self.sum(name)

    def withdraw(self, name: str) -> str:
        return self.done("withdraw", self.site(name), "--keys", self.keys)

    def all_keys(self) -> None:
        for name in self.parts:
            self.key(name)

    def all_sums(self) -> list[Path]:
        for name in self.parts:
            self.summarise(name)
        return [self.sum(name) for name in self.parts]

    def own(self, name: str) -> Path:
        return SumFolder(read_site(self.site(name))).path

    def study(self) -> Study:
        return Study.of(read_network_file(self.network))


def difference(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Of integers modulo 2^128, as words."""
    low, high = np.split(second, 2)
    return sum_of_pairs(first, np.concatenate([~low + np.uint64(1), ~high + (low == 0)]))


def integers(words: np.ndarray) -> list[int]:
    low, high = np.split(words.astype(object), 2)
    return ((low + (high << 64) + 2**127) % 2**128 - 2**127).tolist()


@pytest.fixture
def files(tmp_path) -> Files:
    return Files(tmp_path, samples())


@pytest.fixture
def ready(files) -> Files:
    """All keys are there."""
    files.all_keys()
    return files


# As three people do it.


@pytest.mark.parametrize(
    ("settings", "offset"),
    [
        ("n_components = 3\n", 1.0),
        ("n_components = 3\nscale = true\n", 1.0),
        ("n_components = 0.9\ntol = 1e-9\n", 1.0),
        ("n_components = 2\n[settings.exponents]\nincome = 30\nage = 24\nbmi = 24\n", 1e4),
    ],
)
def test_five_sites_find_the_components_of_all_samples(tmp_path, settings, offset):
    parts = samples(offset=offset)
    if offset > 1:
        settings = settings.replace("income", "glucose = 24\ninsulin = 24\npressure = 24\nincome")
    files = Files(tmp_path, parts, settings)
    files.all_keys()
    sums = files.all_sums()
    model, numbers = tmp_path / "pca.npz", tmp_path / "pca.json"
    said = files.done("combine", files.network, *sums, "--out", model, "--json", numbers)
    pooled = np.vstack(list(parts.values()))
    deviation = pooled.std(axis=0) if "scale" in settings else np.ones(len(NAMES))
    values, vectors = truth((pooled - pooled.mean(axis=0)) / deviation)
    found = read_model(model)
    if "0.9" in settings:
        assert found.explained_variance_ratio.sum() >= 0.9 > found.explained_variance_ratio[:-1].sum()
    k = len(found.components)
    assert angles(found.components, vectors[:, :k]).max() < 1e-9
    assert found.explained_variance == pytest.approx(values[:k], rel=1e-9)
    assert found.mean == pytest.approx(pooled.mean(axis=0), rel=1e-14)
    assert (found.n_samples, found.node_names, found.feature_names) == (sum(SIZES), SITES, NAMES)
    assert found.converged
    assert "nobody has learned a number of any single node" in said
    written = json.loads(numbers.read_text())
    assert written["privacy"]["of_one_site"] == "nothing"
    scores = tmp_path / "scores.csv"
    transformed = CliRunner().invoke(
        app, ["transform", str(files.folder("oslo") / "data.csv"), "--model", str(model), "--out", str(scores)]
    )
    assert transformed.exit_code == 0, transformed.output
    expected = (parts["oslo"] - pooled.mean(axis=0)) / deviation @ found.components.T
    assert np.loadtxt(scores, delimiter=",", skiprows=1)[:, -k:] == pytest.approx(expected, abs=1e-6 * offset)


def test_a_certificate_is_never_below_the_true_angle(tmp_path):
    for seed in range(3):
        parts = samples(seed)
        root = tmp_path / str(seed)
        root.mkdir()
        files = Files(root, parts)
        files.all_keys()
        files.done("combine", files.network, *files.all_sums(), "--out", root / "pca.npz")
        found = read_model(root / "pca.npz")
        pooled = np.vstack(list(parts.values())).astype(np.longdouble)
        _, vectors = truth(np.asarray(pooled - pooled.mean(axis=0), dtype=float))
        assert found.error_bound >= angles(found.components, vectors[:, :3]).max() - 1e-15


def test_samples_have_weights_and_columns_no_names(tmp_path):
    rng = np.random.default_rng(5)
    parts = {name: rng.normal(size=(30, 4)) + 3 for name in SITES[:3]}
    files = Files(tmp_path, {name: np.zeros((2, 7)) for name in parts})
    for name, part in parts.items():
        np.savetxt(files.folder(name) / "data.csv", part, delimiter=",")
        site = files.site(name)
        site.write_text(site.read_text().replace('file = "data.csv"', 'file = "data.csv"\nweight_column = 3'))
        part[:, 3] = np.abs(part[:, 3])
        np.savetxt(files.folder(name) / "data.csv", part, delimiter=",", fmt="%.17g")
    files.all_keys()
    files.done("combine", files.network, *files.all_sums(), "--out", tmp_path / "pca.npz")
    pooled = np.vstack(list(parts.values()))
    found = read_model(tmp_path / "pca.npz")
    weights = pooled[:, 3]
    assert found.n_samples == pytest.approx(weights.sum())
    assert found.mean == pytest.approx(np.average(pooled[:, :3], axis=0, weights=weights))


def test_genotypes_have_a_constant_variant(tmp_path):
    rng = np.random.default_rng(1)
    parts = {name: rng.binomial(2, np.linspace(0.2, 0.8, 7), size=(50, 7)).astype(float) for name in SITES[:3]}
    for part in parts.values():
        part[:, 3] = 1.0
    files = Files(tmp_path, parts, 'n_components = 2\nscale = "binomial"\n')
    files.all_keys()
    files.done("combine", files.network, *files.all_sums(), "--out", tmp_path / "pca.npz")
    pooled = np.vstack(list(parts.values()))
    p = pooled.mean(axis=0) / 2
    _, vectors = truth((pooled - pooled.mean(axis=0)) / np.sqrt(2 * p * (1 - p)))
    assert angles(read_model(tmp_path / "pca.npz").components, vectors[:, :2]).max() < 1e-9


def test_nothing_but_three_commands_and_files_is_needed(ready, tmp_path):
    """Two operators and one combiner, each with their own copy of what they were handed."""
    sums = ready.all_sums()
    combiner = tmp_path / "combiner"
    combiner.mkdir()
    for path in (ready.network, *sums):
        shutil.copy(path, combiner)
    shutil.rmtree(ready.root / "mesh")
    handed = sorted(combiner.glob("*.sum"))
    said = ready.done("combine", combiner / "network.toml", *handed, "--report", combiner / "pca.html")
    page = (combiner / "pca.html").read_text()
    assert "552 samples of 7 columns" in said
    assert "552 samples of 7 columns" in page
    assert all(json.loads(path.read_bytes().split(b"\n", 1)[0])["sha256"] in page for path in sums)


def test_the_page_of_the_reviewer_shows_what_is_in_the_file(ready, tmp_path):
    report = tmp_path / "oslo.html"
    ready.done("summarise", *ready.of("oslo"), "--report", report)
    page = report.read_text()
    part = ready.parts["oslo"]
    run = json.loads(page.split('id="run">')[1].split("</script>")[0])
    learn, under, clear = run["sections"]
    assert [row[0] for row in under["rows"]] == list(NAMES)
    assert [float(row[1]) for row in under["rows"]] == pytest.approx(part.mean(axis=0), rel=1e-5)
    assert [float(row[2]) for row in under["rows"]] == pytest.approx(part.std(axis=0, ddof=1), rel=1e-5)
    assert "120" in under["words"][0]
    header = json.loads(ready.sum("oslo").read_bytes().split(b"\n", 1)[0])
    assert header["sha256"] in str(clear["rows"])
    assert all(key in str(clear["rows"]) for key in header["roster"].values())
    assert "all 4 other sites" in str(learn["rows"])
    assert run["says"] in page


def test_the_body_of_a_sum_is_random_to_everyone(tmp_path):
    """Bytes of many columns of zeros, by a chi-square test, and bits of one word with many keys."""
    names = tuple(f"c{number}" for number in range(90))
    files = Files(tmp_path, {name: np.zeros((2, 1)) for name in SITES[:3]}, "min_samples_per_site = 0\n")
    part = np.tile([[0.0], [1.0]], 90)
    for name in files.parts:
        files.write(name, part, names)
    files.all_keys()
    files.all_sums()
    bodies = [read_sum(files.sum(name), files.study()).words for name in files.parts]
    for body in bodies:
        counts = np.bincount(body.view(np.uint8), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-4
    plain = SumFolder(read_site(files.site("oslo"))).read_plain()[1]
    assert reduce(sum_of_pairs, bodies).tolist() == reduce(sum_of_pairs, [plain] * 3).tolist()


def test_the_total_does_not_depend_on_how_samples_are_spread_over_sites(tmp_path):
    """Otherwise a site could tell whether a guess of the samples of another one is right."""
    rows, totals = np.random.default_rng(0).integers(-99, 99, size=(240, 5)).astype(float), []
    for number, sizes in enumerate(([80, 160], [43, 150], [100, 103])):
        root = tmp_path / str(number)
        root.mkdir()
        files = Files(root, dict(zip(SITES, np.split(rows, sizes), strict=False)), "min_samples_per_site = 0\n")
        for name, part in files.parts.items():
            files.write(name, part, NAMES[:5])
        files.all_keys()
        totals.append(added(files.all_sums(), files.study())[1].tolist())
    assert totals[0] == totals[1] == totals[2]


# What is refused, by name.


def test_a_missing_sum_is_named(ready):
    sums = ready.all_sums()
    said = ready.refused("combine", ready.network, *sums[:3], sums[4])
    assert "the sum of tromso is missing" in said


def test_a_sum_that_is_there_twice_is_named(ready, tmp_path):
    sums = ready.all_sums()
    copy = shutil.copy(sums[0], tmp_path / "oslo (1).sum")
    said = ready.refused("combine", ready.network, *sums, copy)
    assert "both of oslo" in said
    assert "oslo (1).sum" in said


@pytest.mark.parametrize("at", [0.02, 0.5, 0.999])
def test_a_damaged_sum_is_named(ready, at):
    sums = ready.all_sums()
    content = bytearray(sums[1].read_bytes())
    content[int(at * len(content))] ^= 1
    sums[1].write_bytes(content)
    said = ready.refused("combine", ready.network, *sums)
    assert "bergen.sum" in said
    assert any(word in said for word in ("damaged", "not signed", "another study"))


@pytest.mark.parametrize("keep", [0, 100, -8])
def test_a_sum_that_was_cut_off_is_named(ready, keep):
    sums = ready.all_sums()
    sums[1].write_bytes(sums[1].read_bytes()[:keep])
    assert "bergen.sum" in ready.refused("combine", ready.network, *sums)


def test_a_sum_of_another_study_is_named(ready, tmp_path):
    sums = ready.all_sums()
    root = tmp_path / "other"
    root.mkdir()
    other = Files(root, samples())
    other.all_keys()
    other.summarise("bergen")
    said = ready.refused("combine", ready.network, sums[0], other.sum("bergen"), *sums[2:])
    assert "another study" in said
    ready.network.write_text(ready.network.read_text().replace("n_components = 3", "n_components = 2"))
    assert "another study" in ready.refused("combine", ready.network, *sums)


def test_sums_of_different_rosters_are_named(ready):
    """bodo has lost its folder and makes a new key, and the others have used the old one."""
    for name in SITES[:4]:
        ready.summarise(name)
    shutil.rmtree(ready.own("bodo"))
    ready.key("bodo")
    ready.summarise("bodo")
    said = ready.refused("combine", ready.network, *(ready.sum(name) for name in SITES))
    assert "different keys of bodo" in said


def test_sums_of_different_columns_are_named(files):
    files.write("tromso", files.parts["tromso"], (*NAMES[:5], "wealth", "children"))
    files.write("bodo", files.parts["bodo"][:, :6], NAMES[:6])
    files.all_keys()
    sums = files.all_sums()
    said = files.refused("combine", files.network, *sums)
    assert f'column 5 is "income" in {sums[0]}, "wealth" in {files.sum("tromso")}' in said
    said = files.refused("combine", files.network, *sums[:3], sums[4])
    assert f"7 of them in {sums[0]}, 6 in {files.sum('bodo')}" in said


def test_two_sites_are_refused(tmp_path):
    with pytest.raises(AssertionError, match="add a third site"):
        Files(tmp_path, dict(list(samples().items())[:2]))


def test_two_sites_that_are_left_are_refused(tmp_path):
    files = Files(tmp_path, dict(list(samples().items())[:3]))
    files.key("oslo")
    files.key("bergen")
    files.withdraw("trondheim")
    said = files.refused("summarise", *files.of("oslo"))
    assert "oslo and bergen only, but masks need 3 sites" in said
    assert not files.sum("oslo").exists()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("min_samples_per_site = 16\n", "bodo has 15 samples, fewer than min_samples_per_site = 16"),
        ("[settings.exponents]\nage = 3\n", "column 0 ('age'), so nothing is sent; agree on an exponent of at least 6"),
        ("[settings.exponents]\nheight = 3\n", "'height', which is not a column of the data"),
        ('privacy = "open"\n', "sums in files are always masked"),
        ('partition = "features"\n', "sums over samples of the same columns"),
        ('missing = "mean"\n', "fill in missing entries at each site"),
    ],
)
def test_a_site_writes_nothing_that_was_not_agreed_on(tmp_path, settings, said):
    files = Files(tmp_path, samples(), f"n_components = 3\n{settings}")
    for name in SITES:
        found = files.run("key", files.site(name), "--keys", files.keys)
        if found.exit_code:
            assert said in " ".join(found.output.split())
            return
    assert said in files.refused("summarise", *files.of("bodo"))
    assert not files.sum("bodo").exists()
    assert not list(files.own("bodo").glob("*.plain"))


def test_too_few_samples_of_all_sites_are_refused(tmp_path):
    files = Files(tmp_path, samples(), "n_components = 3\nmin_samples = 553\n")
    files.all_keys()
    said = files.refused("combine", files.network, *files.all_sums(), "--out", tmp_path / "pca.npz")
    assert "552 samples together, and min_samples = 553 asks for more" in said
    assert not (tmp_path / "pca.npz").exists()


def test_a_range_that_is_too_wide_is_refused(tmp_path):
    files = Files(tmp_path, samples(), "n_components = 3\n[settings.exponents]\nage = 70\n")
    files.all_keys()
    assert "age" in files.refused("combine", files.network, *files.all_sums())


def test_missing_entries_are_named(files):
    files.parts["bodo"][3, 2] = np.nan
    files.write("bodo", files.parts["bodo"])
    files.all_keys()
    said = files.refused("summarise", *files.of("bodo"))
    assert "'glucose'" in said
    assert not files.sum("bodo").exists()


def test_keys_that_are_missing_twice_or_swapped_are_named(ready):
    (ready.keys / "bodo.key").rename(ready.root / "bodo.key")
    assert "has no key of bodo" in ready.refused("summarise", *ready.of("oslo"))
    shutil.copy(ready.root / "bodo.key", ready.keys / "bodo.key")
    shutil.copy(ready.root / "bodo.key", ready.keys / "tromso.key")
    assert "two keys of bodo" in ready.refused("summarise", *ready.of("oslo"))
    content = json.loads((ready.root / "bodo.key").read_text())
    (ready.keys / "tromso.key").write_text(json.dumps({**content, "site": "tromso"}))
    assert "not signed by the pinned key of tromso" in ready.refused("summarise", *ready.of("oslo"))


def test_a_key_that_another_site_has_signed_is_named(ready):
    """Whoever carries the files cannot put a key of their own in the place of a site's."""
    study, bodo = ready.study(), SumFolder(read_site(ready.site("bodo")))
    forged = study.signed(sum_files.KEY, "oslo", bodo._keyring, key="ab" * 32)
    (ready.keys / "oslo.key").write_text(json.dumps(forged))
    assert "not signed by the pinned key of oslo" in ready.refused("summarise", *ready.of("bergen"))


@pytest.mark.parametrize(
    "facts",
    [
        {"words": "x"},
        {"roster": []},
        {"roster": {"oslo": 3}},
        {"n_features": -1},
        {"n_features": 10**15, "columns": None},
        {"n_features": 6},
        {},
    ],
)
def test_a_site_that_signs_nonsense_is_named(ready, facts):
    """Signed by the site itself, so only the fields can tell."""
    sums = ready.all_sums()
    made = read_sum(sums[0], ready.study())
    header = {name: value for name, value in made.header.items() if name not in ("signature", "public_key")}
    header = {**header, **facts} if facts else {name: header[name] for name in ("kind", "study", "run", "site")}
    own = SumFolder(read_site(ready.site("oslo")))
    keep = {name: value for name, value in header.items() if name not in ("kind", "study", "run", "site")}
    signed = own.study.signed(sum_files.SUM, "oslo", own._keyring, **keep)
    sums[0].write_bytes(json.dumps(signed).encode() + b"\n" + made.words.tobytes())
    assert "oslo.sum" in ready.refused("combine", ready.network, *sums)


@pytest.mark.parametrize("content", [b"", b"{", b"[]\n", b"[" * 100_000, b'{"site": []}\n', b"\xff\xfe\n"])
def test_files_that_are_no_sums_are_named(ready, tmp_path, content):
    path = tmp_path / "junk.sum"
    path.write_bytes(content)
    assert "junk.sum" in ready.refused("combine", ready.network, path)


def test_a_network_without_fingerprints_is_refused(files):
    text = files.network.read_text()
    files.network.write_text(text.split("[fingerprints]")[0])
    assert "eigenmesh site pin" in files.refused("combine", files.network, files.root / "oslo.sum")


# A site gives itself away only by two sums with the same masks: no command writes them.


def body(path: Path) -> bytes:
    return path.read_bytes().split(b"\n", 1)[1]


def test_two_sums_with_the_same_masks_would_give_the_difference_away(ready):
    """What the commands below prevent: here, by force, with a copy of the secret."""
    folder = ready.own("oslo")
    shutil.copytree(folder, ready.root / "copy")
    ready.summarise("oslo")
    first = read_sum(ready.sum("oslo"), ready.study()).words
    shutil.rmtree(folder)
    shutil.copytree(ready.root / "copy", folder)
    ready.write("oslo", ready.parts["oslo"][:-1])
    ready.summarise("oslo")
    second = read_sum(ready.sum("oslo"), ready.study()).words
    form = ready.study().form(7, NAMES)
    count, *sums = integers(difference(first, second))[:8]
    assert count / 2**60 == 1
    dropped = np.array(sums, dtype=float) * 2.0**20 / 2.0**form.fraction
    assert dropped == pytest.approx(ready.parts["oslo"][-1], rel=1e-12)


def test_a_site_whose_disk_is_full_is_not_told_to_forget_what_it_has_sent(ready, monkeypatch):
    ready.summarise("oslo")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        said = ready.refused("withdraw", ready.site("oslo"), "--keys", ready.keys)
    assert "No space left" in said
    assert "keep this folder" in said
    assert "another out.folder" not in said
    ready.withdraw("oslo")


@pytest.mark.parametrize("kind", ["plain", "key"])
def test_a_sum_overwrites_no_other_file(ready, kind):
    ready.summarise("oslo")
    path = {"plain": ready.own("oslo") / "oslo.plain", "key": ready.keys / "bergen.key"}[kind]
    before = path.read_bytes()
    assert f"must end with {sum_files.SUM_SUFFIX}" in ready.refused("summarise", *ready.of("oslo", out=path))
    assert path.read_bytes() == before


def test_a_site_writes_the_same_sum_again_and_no_other(ready, tmp_path):
    ready.summarise("oslo")
    first = ready.sum("oslo").read_bytes()
    again = tmp_path / "again.sum"
    ready.done("summarise", *ready.of("oslo", out=again))
    assert again.read_bytes() == first
    changed = tmp_path / "keys2"
    # Other data.
    ready.write("oslo", ready.parts["oslo"][:-1])
    other = tmp_path / "other.sum"
    assert "the data of oslo have changed" in ready.refused("summarise", *ready.of("oslo", out=other))
    ready.write("oslo", ready.parts["oslo"])
    # Other keys: bodo has lost its folder, and has a new one.
    shutil.copytree(ready.keys, changed)
    shutil.rmtree(ready.own("bodo"))
    ready.done("key", ready.site("bodo"), "--keys", changed)
    said = ready.refused("summarise", *ready.of("oslo", keys=changed, out=other))
    assert "oslo has written its sum" in said
    assert "(of bodo)" in said
    # A new key of its own, while all others can still send theirs.
    assert "gets no other" in ready.refused("key", ready.site("oslo"), "--keys", ready.keys)
    assert not other.exists()
    assert not list(ready.own("oslo").glob("secret"))


def test_changed_data_are_refused_also_before_the_first_sum_was_handed_out(ready):
    """The plain numbers of a study are written once: no later sum has others."""
    kill(ready, "oslo", "_mask")
    ready.write("oslo", ready.parts["oslo"][:-1])
    assert "the data of oslo have changed" in ready.refused("summarise", *ready.of("oslo"))
    ready.write("oslo", ready.parts["oslo"])
    ready.summarise("oslo")


def test_damaged_plain_numbers_are_named(ready):
    kill(ready, "oslo", "_mask")
    plain = ready.own("oslo") / "oslo.plain"
    content = bytearray(plain.read_bytes())
    content[-3] ^= 1
    plain.write_bytes(content)
    assert "oslo.plain is damaged" in ready.refused("summarise", *ready.of("oslo"))
    assert not ready.sum("oslo").exists()


# A site is killed, and started again.


def killed_at(step: str, *words: str) -> None:
    """A command in a process that is killed before a step."""
    where = SumFolder if hasattr(SumFolder, step) else sum_files

    def end(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(where, step, end)
    command(*words)


def kill(files: Files, name: str, step: str, verb: str = "summarise") -> None:
    words = files.of(name) if verb == "summarise" else (files.site(name), "--keys", files.keys)
    process = Forked(killed_at, step, "site", verb, *map(str, words), output=files.root / "killed.txt")
    assert process.wait(60) == -signal.SIGKILL, (files.root / "killed.txt").read_text()


@pytest.mark.parametrize("step", ["_plain", "_mask", "pairwise_masks", "_forget", "_hand_out"])
def test_a_killed_summarise_is_run_again(ready, step):
    """Wherever it was killed, there is one sum with each key, and it is the one that the others need."""
    kill(ready, "oslo", step)
    own = ready.own("oslo") / "oslo.sum"
    before = own.read_bytes() if own.exists() else None
    assert not ready.sum("oslo").exists()
    sums = ready.all_sums()
    assert before in (None, sums[0].read_bytes())
    assert not (ready.own("oslo") / "secret").exists()
    ready.done("combine", ready.network, *sums, "--out", ready.root / "pca.npz")
    pooled = np.vstack(list(ready.parts.values()))
    _, vectors = truth(pooled)
    assert angles(read_model(ready.root / "pca.npz").components, vectors[:, :3]).max() < 1e-9


@pytest.mark.parametrize("step", ["_line", "_forget", "_hand_out"])
def test_a_killed_withdrawal_is_run_again(ready, step):
    ready.summarise("oslo")
    kill(ready, "oslo", step, "withdraw")
    assert not (ready.keys / "oslo.withdrawn").exists()
    ready.withdraw("oslo")
    assert json.loads((ready.keys / "oslo.withdrawn").read_text())["site"] == "oslo"
    assert not ready.sum("oslo").exists()
    assert [path.name for path in ready.own("oslo").glob("*.sum")] == []


@pytest.mark.parametrize("step", ["_line", "_hand_out"])
def test_a_killed_key_is_made_again(files, step):
    kill(files, "oslo", step, "key")
    files.key("oslo")
    first = json.loads((files.keys / "oslo.key").read_text())["key"]
    files.key("oslo")
    assert json.loads((files.keys / "oslo.key").read_text())["key"] == first


# A site that does not send.


def test_the_others_start_again_without_a_site_that_withdraws(ready):
    for name in SITES[:3]:
        ready.summarise(name)
    late = [body(ready.sum(name)) for name in SITES[:3]]
    assert "gets no other" in ready.refused("key", ready.site("oslo"), "--keys", ready.keys)
    ready.withdraw("bodo")
    ready.key("oslo")
    # Those that have a key of the first round make another, or say that it was not used: first all keys, then all sums.
    assert "has keys of bergen, trondheim, tromso that were not made for oslo" in ready.refused(
        "summarise", *ready.of("oslo")
    )
    for name in SITES[1:4]:
        ready.key(name)
    for name in SITES[:4]:
        ready.summarise(name)
    sums = [ready.sum(name) for name in SITES[:4]]
    assert all(body(path) != old for path, old in zip(sums, late, strict=False))
    said = ready.done("combine", ready.network, *sums, "--out", ready.root / "pca.npz")
    assert "537 samples of 7 columns at 4 sites" in said
    pooled = np.vstack([ready.parts[name] for name in SITES[:4]])
    assert angles(read_model(ready.root / "pca.npz").components, truth(pooled)[1][:, :3]).max() < 1e-9
    # The secret is gone: no late file of bodo can complete the first sums.
    assert "has withdrawn" in ready.refused("summarise", *ready.of("bodo"))
    # Its withdrawal releases nobody from the new sums.
    assert "gets no other" in ready.refused("key", ready.site("oslo"), "--keys", ready.keys)


def test_who_has_withdrawn_stays_out_of_the_study(ready):
    """Otherwise it could be in the second total and not in the first, if another site has lied."""
    ready.withdraw("bodo")
    assert "has withdrawn from 'cohort-1', for good" in ready.refused("key", ready.site("bodo"), "--keys", ready.keys)
    assert "has withdrawn" in ready.refused("summarise", *ready.of("bodo"))
    # An old key that somebody puts back changes nothing.
    (ready.keys / "bodo.key").write_bytes(b"")
    assert "bodo.key" in ready.refused("summarise", *ready.of("oslo"))


def test_who_has_sent_a_sum_cannot_withdraw_later(ready):
    """Its first sum would be in a total if the site that has withdrawn had sent one all the same."""
    ready.summarise("oslo")
    ready.withdraw("bodo")
    for name in SITES[:4]:
        ready.key(name)
    assert "has handed out a sum before" in ready.refused("withdraw", ready.site("oslo"), "--keys", ready.keys)
    ready.summarise("oslo")
    assert "has handed out a sum before" in ready.refused("withdraw", ready.site("oslo"), "--keys", ready.keys)


def test_two_sums_of_a_site_are_of_the_same_numbers(ready):
    """If a site that has withdrawn lies, nothing but its own numbers follow from two totals."""
    ready.all_sums()
    plain = SumFolder(read_site(ready.site("oslo"))).plain.read_bytes()
    first = added([ready.sum(name) for name in SITES], ready.study())[1]
    # By force: bodo has sent its sum, and signs that it has not.
    shutil.rmtree(ready.own("bodo"))
    ready.withdraw("bodo")
    for name in SITES[:4]:
        ready.key(name)
    ready.write("oslo", ready.parts["oslo"][:-1])
    assert "the data of oslo have changed" in ready.refused("summarise", *ready.of("oslo"))
    ready.write("oslo", ready.parts["oslo"])
    for name in SITES[:4]:
        ready.summarise(name)
    second = added([ready.sum(name) for name in SITES[:4]], ready.study())[1]
    assert SumFolder(read_site(ready.site("oslo"))).plain.read_bytes() == plain
    form = ready.study().form(7, NAMES)
    assert form.decode(difference(first, second)).n_samples == 15


def test_a_sum_that_has_left_cannot_be_withdrawn(ready, tmp_path):
    ready.summarise("oslo")
    carried = tmp_path / "carried"
    ready.sum("oslo").rename(carried)
    said = ready.refused("withdraw", ready.site("oslo"), "--keys", ready.keys)
    assert "is not there any more" in said
    assert not (ready.keys / "oslo.withdrawn").exists()
    carried.rename(ready.sum("oslo"))
    ready.withdraw("oslo")
    assert not ready.sum("oslo").exists()
    assert not (ready.own("oslo") / "oslo.sum").exists()
    assert "has withdrawn" in ready.refused("summarise", *ready.of("oslo"))


def test_to_write_a_sum_again_does_not_bring_it_back(ready, tmp_path):
    ready.summarise("oslo")
    ready.sum("oslo").rename(tmp_path / "carried")
    ready.summarise("oslo")
    assert ready.sum("oslo").read_bytes() == (tmp_path / "carried").read_bytes()
    assert "cannot withdraw any more" in ready.refused("withdraw", ready.site("oslo"), "--keys", ready.keys)
    # Where it still is everywhere, it is deleted everywhere.
    ready.summarise("bergen")
    again = tmp_path / "again.sum"
    ready.done("summarise", *ready.of("bergen", out=again))
    ready.withdraw("bergen")
    assert not ready.sum("bergen").exists()
    assert not again.exists()


def test_a_site_that_never_made_a_key_can_be_left_out_by_its_own_word(files):
    for name in SITES[:4]:
        files.key(name)
    assert "has no key of bodo" in files.refused("summarise", *files.of("oslo"))
    files.withdraw("bodo")
    assert "were not made for oslo, bergen, trondheim, tromso" in files.refused("summarise", *files.of("oslo"))
    for name in SITES[:4]:
        files.key(name)
    for name in SITES[:4]:
        files.summarise(name)
    files.done("combine", files.network, *(files.sum(name) for name in SITES[:4]))
    # It was in no roster, so nobody is released by it.
    assert "gets no other" in files.refused("key", files.site("oslo"), "--keys", files.keys)


def test_a_withdrawal_of_another_site_is_no_excuse(ready):
    """Nobody but the site itself can say that it does not send."""
    ready.summarise("oslo")
    study, tromso = ready.study(), SumFolder(read_site(ready.site("tromso")))
    forged = study.signed(sum_files.WITHDRAWAL, "bodo", tromso._keyring)
    (ready.keys / "bodo.withdrawn").write_text(json.dumps(forged))
    assert "not signed by the pinned key of bodo" in ready.refused("key", ready.site("oslo"), "--keys", ready.keys)


# A network without links.


@pytest.mark.parametrize("verb", ["run", "rehearse"])
def test_sites_without_links_do_not_run(files, verb):
    words = (files.site("oslo"),) if verb == "run" else (files.network, "--features", 5, "--samples", 50)
    assert "exchange files: eigenmesh site key" in files.refused(verb, *words)


def test_a_check_of_a_site_without_links_says_what_it_hands_on(files):
    said = " ".join(files.done("check", files.site("oslo")).split())
    assert "one file of" in said
    assert "eigenmesh site key" in said


def test_an_address_without_links_is_named(files):
    files.network.write_text(files.network.read_text().replace('name = "oslo"', 'name = "oslo"\naddress = "a:1"'))
    assert "oslo has an address, but there are no links" in files.refused("combine", files.network, "oslo.sum")


def test_sums_of_rsa_keys_are_known_by_their_fingerprint(ready):
    """Any key that a certificate may have can sign: see the keyring."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    from eigenmesh.transports.tls import Credentials
    from eigenmesh.transports.tls.keyring import is_signed_by_pinned

    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    folder = ready.folder("oslo")
    keyring = CertificateKeyring(Credentials(pem, (folder / "cert.pem").read_bytes(), (folder / "ca.pem").read_bytes()))
    fingerprint = hashlib.sha256(base64.b64decode(keyring.public_key)).hexdigest()
    signature = keyring.sign(b"data")
    assert is_signed_by_pinned(fingerprint, keyring.public_key, b"data", signature)
    assert not is_signed_by_pinned(fingerprint, keyring.public_key, b"date", signature)
    assert not is_signed_by_pinned("0" * 64, keyring.public_key, b"data", signature)


def test_a_missing_entry_is_named_with_a_fix_that_works_for_files(files):
    part = files.parts["oslo"].copy()
    part[3, 1] = np.nan
    files.write("oslo", part)
    files.all_keys()
    said = files.refused("summarise", *files.of("oslo"))
    assert "row 3" in said or "line 5" in said
    assert "fill it in" in said
    assert "mean=" not in said.replace("missing=", "mean=")
    assert 'missing = "mean"' not in files.run("check", files.site("oslo")).output


def test_a_sum_is_written_only_once_a_person_has_approved_it(files, tmp_path):
    site = files.site("oslo")
    site.write_text(site.read_text().replace("# approve = true", "approve = true #"))
    files.all_keys()
    assert "nobody has approved" in files.refused("summarise", *files.of("oslo"))
    assert not files.sum("oslo").exists()
    files.done("check", site, "--statement", tmp_path / "statement.html")
    text = (tmp_path / "statement.txt").read_text()
    assert "cross products of all pairs of columns" in text
    digest = re.search(r"--digest (\w+)", text).group(1)
    files.done("approve", site, "--digest", digest, "--name", "Kari Nordmann")
    site.write_text(f"{site.read_text()}\n[settings.exponents]\nage = 9\n")
    assert "exponents" in files.done("check", site)
    site.write_text(site.read_text().replace("[settings.exponents]\nage = 9\n", ""))
    files.summarise("oslo")


def test_the_total_of_sums_is_that_of_the_plain_numbers(ready):
    sums = ready.all_sums()
    _, total = added(sums, ready.study())
    plain = [SumFolder(read_site(ready.site(name))).read_plain()[1] for name in SITES]
    assert total.tolist() == reduce(sum_of_pairs, plain).tolist()
    with pytest.raises(EigenmeshError, match="missing"):
        added(sums[1:], ready.study())


# Any order of commands, with files that are handed around in any way.


class Carrier:
    """Hands around keys and withdrawals of any age, and takes sums away; remembers all that ever left a site.

    Parameters
    ----------
    files : the sites, which follow the commands.
    liar : a site that starts from an empty folder whenever it likes, so that it signs what is not true.
    """

    def __init__(self, files: Files, liar: str, seed: int) -> None:
        self.files, self.liar, self.rng = files, liar, np.random.default_rng(seed)
        self.folders = {name: SumFolder(read_site(files.site(name))) for name in SITES}
        self.keys: dict[str, list[bytes]] = {name: [] for name in SITES}
        self.withdrawn: dict[str, bytes] = {}
        self.seen: dict[tuple[str, str], set[bytes]] = {}
        self.taken: set[tuple[str, tuple[tuple[str, str], ...]]] = set()

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def handed_around(self, mostly: float) -> Path:
        """A folder with a key of each site, mostly the newest, and mostly with all withdrawals."""
        folder = self.files.root / "carried"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, versions in self.keys.items():
            if versions and self.chance(mostly):
                chosen = versions[-1] if self.chance(mostly) else versions[int(self.rng.integers(len(versions)))]
                (folder / f"{name}.key").write_bytes(chosen)
        for name, statement in self.withdrawn.items():
            if self.chance(mostly):
                (folder / f"{name}.withdrawn").write_bytes(statement)
        return folder

    def step(self) -> None:
        """One command at one site; or a round of all, as it should be done."""
        if self.chance(0.15):
            for kind in ("key", "summarise", "take"):
                for name in self.rng.permutation(SITES):
                    self.do(str(name), kind, self.handed_around(1.0))
            return
        name = self.liar if self.chance(0.3) else str(self.rng.choice(SITES))
        kind = str(self.rng.choice(["key", "summarise", "take", "withdraw"], p=[0.3, 0.3, 0.3, 0.1]))
        if name == self.liar and self.chance(0.5):
            shutil.rmtree(self.folders[name].path, ignore_errors=True)
        self.do(name, kind, self.handed_around(0.9))

    def do(self, name: str, kind: str, keys: Path) -> None:
        folder, out = self.folders[name], self.files.sum(name)
        try:
            if kind == "key":
                self.keys[name].append(folder.key(keys).read_bytes())
            elif kind == "summarise":
                made = folder.summarise(keys, out)
                self.seen.setdefault((name, made.roster[name]), set()).add(made.words.tobytes())
            elif kind == "withdraw":
                self.withdrawn[name] = folder.withdraw(keys).read_bytes()
            elif out.exists():
                made = read_sum(out, folder.study)
                self.taken.add((name, tuple(sorted(made.roster.items()))))
                out.unlink()
        except EigenmeshError:
            pass

    @property
    def complete(self) -> list[set[str]]:
        """The sites of every roster of which all sums were taken away."""
        rosters = {roster for _, roster in self.taken}
        return [set(dict(one)) for one in rosters if all((name, one) in self.taken for name, _ in one)]


@pytest.mark.slow
def test_no_order_of_commands_gives_the_numbers_of_an_honest_site_away(files):
    """There is one body for every key, and two totals differ at most by the site that has lied."""
    totals, several = 0, 0
    for seed in range(20):
        carrier = Carrier(files, "bodo", seed)
        for name in SITES:
            shutil.rmtree(carrier.folders[name].path, ignore_errors=True)
            files.sum(name).unlink(missing_ok=True)
        for _ in range(25):
            carrier.step()
        assert all(len(bodies) == 1 for (name, _), bodies in carrier.seen.items() if name != "bodo")
        complete = carrier.complete
        assert all(one ^ other <= {"bodo"} for one in complete for other in complete)
        totals, several = totals + len(complete), several + (len(complete) > 1)
    # The walk gets as far as that.
    assert totals > several > 0
