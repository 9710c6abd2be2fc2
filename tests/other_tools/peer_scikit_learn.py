"""scikit-learn's own tests of PCA, of the version that is installed, run on DecentralizedPCA by ``make peer-tests``.

Those that cannot pass are in a table of docs/scikit-learn.md, each with its reason. Nothing else may fail, and nothing
that is in the table may pass.
"""

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "scikit-learn.md"
NAME = re.compile(r"`(test_\w+)`")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """For every test of the file how many of its cases passed and failed."""
    report = tmp_path_factory.mktemp("peer") / "report.xml"
    tests = ["--pyargs", "sklearn.decomposition.tests.test_pca", "-c", os.devnull, "-p", "no:cacheprovider"]
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "pca_of_scikit_learn", *tests, f"--junitxml={report}"],
        env={**os.environ, "PYTHONPATH": str(HERE)},
        check=False,
        stdout=subprocess.DEVNULL,
    )
    found: dict[str, dict[str, int]] = {}
    for case in ET.parse(report).iter("testcase"):
        kinds = {part.tag for part in case}
        kind = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        counts = found.setdefault(
            case.get("name", "").partition("[")[0], dict.fromkeys(("passed", "failed", "skipped"), 0)
        )
        counts[kind] += 1
    print(f"\n{sum(one['passed'] for one in found.values())} cases pass")
    return found


def test_all_its_tests_are_run(outcomes):
    assert len(outcomes) > 30
    assert sum(one["passed"] for one in outcomes.values()) > 300


def test_what_fails_is_what_the_page_says(outcomes):
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    said = [name for line in lines if line.startswith("| `test_") for name in NAME.findall(line)]
    assert {name: counts for name, counts in outcomes.items() if counts["failed"] and name not in said} == {}
    assert [name for name in said if not outcomes.get(name, {"failed": 0})["failed"]] == []
