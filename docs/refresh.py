"""Run the code on the pages and put what it prints where they show it: ``python docs/refresh.py``.

A block marked ``text`` shows what the ``python`` block right above it prints, or the command in a comment above it:
``<!-- output of: eigenmesh graph cycle --nodes 20 -->``. Everything else on a page is left as it is.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "solvers").glob("*.md"))]
BLOCK = re.compile(
    r"(?P<head>^```python\n(?P<code>.*?)^```\n|^<!-- output of: (?P<command>.+?) -->\n)"
    r"(?P<shown>\n```text\n.*?^```\n)?",
    re.MULTILINE | re.DOTALL,
)
CUT = "-----8<-----"


def refreshed(page: str) -> str:
    """The text of a page with fresh output."""
    found = list(BLOCK.finditer(page))
    printed = iter(_printed([match["code"] for match in found if match["code"]]))

    def replace(match: re.Match[str]) -> str:
        output = next(printed) if match["code"] else _output(shlex.split(match["command"]))
        return f"{match['head']}\n```text\n{output}\n```\n" if match["shown"] else match[0]

    return BLOCK.sub(replace, page)


def _printed(codes: list[str]) -> list[str]:
    """What each block prints; the blocks of a page share their variables."""
    if not codes:
        return []
    program = "\n".join(f"{code}\nprint({CUT!r})" for code in codes)
    return [_tidy(part) for part in _output([sys.executable, "-c", program]).split(CUT)[:-1]]


def _output(words: list[str]) -> str:
    """Standard output of a command, or standard error where it prints nothing else; run in an empty folder."""
    if words[0] == "python":
        words = [sys.executable, *(str(ROOT / word) for word in words[1:])]
    elif words[0] == "eigenmesh":
        words = [sys.executable, "-m", *words]
    environment = {**os.environ, "COLUMNS": "112", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode and "-m" not in words:
        sys.exit(f"{shlex.join(words)}\n{done.stderr}")
    return _tidy(done.stdout or done.stderr)


def _tidy(text: str) -> str:
    lines = "\n".join(line.rstrip() for line in text.splitlines())
    return re.sub(r"\n{3,}", "\n\n", lines).strip("\n")


if __name__ == "__main__":
    for path in PAGES:
        before = path.read_text(encoding="utf-8")
        after = refreshed(before)
        if after != before:
            path.write_text(after, encoding="utf-8")
            print(f"refreshed {path.relative_to(ROOT)}")
