"""The check of built pages finds what it is for, and nothing else."""

from __future__ import annotations

import importlib.util
import shutil

import pytest

import check_docs

GOOD = '<h1 id="top">Words</h1><a href="other.html#there">link</a> <a href="https://example.org/x">out</a><pre>\\frac</pre>'


@pytest.mark.parametrize(
    ("html", "problem"),
    [
        (GOOD, None),
        ('<a href="gone.html">link</a>', "a link to gone.html, which is not there"),
        ('<a href="other.html#nowhere">link</a>', "that page has no such place"),
        ('<a href="#nowhere">link</a>', "that page has no such place"),
        ('<script src="https://example.org/a.js"></script>', "loads https://example.org/a.js from elsewhere"),
        (r"<p>the share \frac{1}{2}</p>", "an equation was not drawn"),
    ],
    ids=["good", "file", "place", "own place", "elsewhere", "equation"],
)
def test_links_equations_and_what_is_loaded(tmp_path, html, problem):
    (tmp_path / "page.html").write_text(html, encoding="utf-8")
    (tmp_path / "other.html").write_text('<h1 id="there">Other</h1>', encoding="utf-8")
    found = check_docs.problems(tmp_path)
    assert len(found) == (problem is not None)
    assert problem is None or problem in found[0]


@pytest.mark.skipif(
    shutil.which("chromium") is None or importlib.util.find_spec("playwright") is None,
    reason="there is no Chromium here",
)
def test_code_and_pages_that_are_too_wide(tmp_path):
    wide = "x" * 400
    (tmp_path / "code.html").write_text(
        f"<article><pre style='overflow: auto'>{wide}</pre></article>", encoding="utf-8"
    )
    (tmp_path / "page.html").write_text("<div style='width: 500px'>words</div>", encoding="utf-8")
    assert check_docs.too_wide(tmp_path, shutil.which("chromium")) == [
        f"code.html: too wide at 1400 px: {'code, ' + wide[:60]!r}",
        "page.html: too wide at 390 px: 'the page'",
    ]
