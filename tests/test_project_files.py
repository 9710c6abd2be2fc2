"""The files that GitHub, pre-commit and citation tools read are well formed and agree with the package."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest
import yaml

import eigenmesh

ROOT = Path(__file__).parents[1]
FORMS = [path for path in sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")) if path.stem != "config"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def parsed(path: Path) -> dict:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_the_citation_is_of_this_version():
    citation = parsed(ROOT / "CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["version"] == eigenmesh.__version__
    assert citation["license"] == PROJECT["license"]
    assert citation["repository-code"] == PROJECT["urls"]["Source"]
    assert citation["keywords"] == PROJECT["keywords"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_calls_targets_that_exist_and_asks_for_no_more_rights_than_it_needs(path):
    workflow = parsed(path)
    assert workflow["permissions"] == {"contents": "read"}
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] > 0
        called = [word for step in job["steps"] for word in re.findall(r"^make (\S+)", step.get("run", ""))]
        assert set(called) <= targets


def test_the_tests_run_on_every_python_that_the_package_promises():
    (check,) = (parsed(path) for path in WORKFLOWS if path.stem == "check")
    promised = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert check["jobs"]["test"]["strategy"]["matrix"]["python"] == promised


def test_only_the_publishing_job_gets_an_identity():
    (release,) = (parsed(path) for path in WORKFLOWS if path.stem == "release")
    rights = {name: job.get("permissions") for name, job in release["jobs"].items()}
    assert rights == {"build": None, "publish": {"id-token": "write"}}


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_has_what_github_asks_for(path):
    form = parsed(path)
    assert {"name", "description", "body"} <= set(form)
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields)
    assert all(field["attributes"]["label"] for field in fields)


def test_pre_commit_runs_the_three_checks_of_make_lint():
    (repository,) = parsed(ROOT / ".pre-commit-config.yaml")["repos"]
    assert [hook["id"] for hook in repository["hooks"]] == ["ruff", "ruff-format", "mypy"]


def test_the_changelog_keeps_the_usual_headings():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE)[0] == "[Unreleased]"
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.+)$", text, re.MULTILINE)) <= kinds


UNIT = ROOT / "deploy" / "eigenmesh-peer.service"


def test_the_unit_restarts_what_a_restart_helps():
    from eigenmesh.cli import process as codes

    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read(UNIT)
    service = unit["Service"]
    prevented = {codes.NOT_CONVERGED, codes.BAD_INPUT, codes.ENDED, codes.CANNOT_RESUME}
    assert set(map(int, service["RestartPreventExitStatus"].split())) == prevented
    assert int(service["RestartForceExitStatus"]) == codes.PARKED


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path):
    # Program and user exist only where a peer is installed.
    text = UNIT.read_text().replace("/opt/eigenmesh/bin/eigenmesh", sys.executable)
    (tmp_path / UNIT.name).write_text(text.replace("User=eigenmesh", "User=root"))
    done = subprocess.run(["systemd-analyze", "verify", tmp_path / UNIT.name], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_two_test_modules_share_a_name():
    """Those outside packages are imported by their bare names, so that the second would be taken for the first."""
    modules = (path for path in (ROOT / "tests").rglob("*.py") if not (path.parent / "__init__.py").exists())
    names = Counter(path.name for path in modules if path.name != "conftest.py")
    assert [name for name, times in names.items() if times > 1] == []


def test_no_two_classes_share_a_name():
    """A name that is searched for has one meaning, with an underscore before it or not."""
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    names = Counter(name for text in texts for name in re.findall(r"^class _?(\w+)", text, re.MULTILINE))
    assert [name for name, times in names.items() if times > 1] == []


def test_a_container_is_started_again_only_where_that_helps(tmp_path):
    """The statuses of a peer as those of its container, of which an engine knows only whether it failed."""
    peer = tmp_path / "eigenmesh"
    for status, seen in ((0, 0), (1, 0), (2, 0), (4, 0), (5, 0), (75, 75), (3, 3)):
        peer.write_text(f"#!/bin/sh\nexit {status}\n")
        peer.chmod(0o755)
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        done = subprocess.run(["sh", ROOT / "deploy" / "peer.sh", "site.toml"], env=environment, capture_output=True)
        assert done.returncode == seen
        assert (f"status {status}" in done.stderr.decode()) == (status in (1, 2, 4, 5))


def test_the_image_installs_nothing_without_a_hash_and_takes_no_data_in():
    lock = (ROOT / "deploy" / "requirements.lock").read_text().splitlines()[1:]
    assert len(lock) > 20
    assert all(re.fullmatch(r"[a-z0-9.-]+==\S+ --hash=sha256:[0-9a-f]{64}", line) for line in lock)
    names = {line.partition("==")[0] for line in lock}
    assert {"numpy", "scipy", "cryptography", "pyarrow", "h5py", "zarr", "pgenlib", "hatchling"} <= names
    image = (ROOT / "deploy" / "Dockerfile").read_text()
    assert "--require-hashes" in image
    assert "HEALTHCHECK" in image
    assert (ROOT / ".dockerignore").read_text().splitlines()[1] == "*"
