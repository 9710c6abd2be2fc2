"""The code on the pages, and its output: ``python tools/pages.py`` runs it and updates the pages.

A page is README.md or a Markdown file in docs. On each page

- a ``python`` block runs, in the order of the page and with the variables of the blocks before it;
- a ``text`` block right below it shows what it prints;
- a ``text`` block below ``<!-- output of: eigenmesh graph cycle --nodes 20 -->`` shows what that command prints;
- a block below ``<!-- not run: needs a GPU -->`` is left as it is, with the reason.

Commands run in an empty folder. The tests run the same code, and compare what is shown with what is printed.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.relative_to(ROOT).parts),
]
BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>not run|output of): (?P<why>.+?) -->\n\n?)?"
    r"^```(?P<language>python|py|text)\n(?P<body>.*?)^```\n",
    re.MULTILINE | re.DOTALL,
)
CUT = "-----8<-----"
LIMIT_S = 300
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
SECONDS = re.compile(rf"{NUMBER.pattern}(?= m?s\b)")
# Rounds may differ a little between machines, and times a lot; below ROUNDING only the size of a number is compared.
CLOSE = 0.1
ROUNDING = 1e-3
ROUNDING_FACTOR = 100


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Attributes
    ----------
    language : str
        python or text.
    body : str
        What is between the fences.
    start, end : int
        Where the body lies in the text of the page.
    follows_code : bool
        Whether there is nothing between the block and the python block before it, which runs.
    not_run : str
        Why it is not run, or nothing.
    command : str
        The command whose output it shows, or nothing.
    """

    language: str
    body: str
    start: int
    end: int
    follows_code: bool
    not_run: str = ""
    command: str = ""


class PageError(Exception):
    """A page whose code fails, or that has a block of unknown origin."""


def blocks(text: str) -> list[Block]:
    """All python and text blocks of a page, in order; raises if the origin of a block is not given."""
    found: list[Block] = []
    end_of_code = -1
    for match in BLOCK.finditer(text):
        adjacent = end_of_code >= 0 and not text[end_of_code : match.start()].strip()
        block = Block(match["language"], match["body"], *match.span("body"), follows_code=adjacent)
        if match["mark"] == "not run":
            block = replace(block, not_run=match["why"])
        elif match["mark"] == "output of":
            block = replace(block, command=match["why"])
        if block.language == "py":
            raise PageError(f"mark code as python, not py, and say why it is not run:\n{block.body}")
        if block.language == "text" and not (block.command or block.not_run or block.follows_code):
            raise PageError(f"say which command prints this, or why it is not run:\n{block.body}")
        found.append(block)
        end_of_code = match.end() if block.language == "python" and not block.not_run else -1
    return found


def outputs(text: str) -> list[tuple[Block, str]]:
    """Run a page: the blocks that show an output, each with the current output."""
    found = blocks(text)
    code = [block for block in found if block.language == "python" and not block.not_run]
    printed = dict(zip(code, _printed([block.body for block in code]), strict=True))
    result: list[tuple[Block, str]] = []
    for before, block in pairwise([None, *found]):
        if block.command:
            result.append((block, _output(tuple(shlex.split(block.command)))))
        elif block.language == "text" and not block.not_run:
            result.append((block, printed[before]))
    return result


def program_of(text: str) -> str:
    """All code of a page that runs, as one program."""
    return "\n".join(block.body for block in blocks(text) if block.language == "python" and not block.not_run)


def refreshed(text: str) -> str:
    """The text of a page with current output."""
    for block, printed in reversed(outputs(text)):
        text = f"{text[: block.start]}{printed}\n{text[block.end :]}"
    return text


def difference(shown: str, printed: str) -> str:
    """The first words that differ between shown and printed output, or nothing; numbers need only be close, and times
    are not compared.
    """
    ours, theirs = (SECONDS.sub("#", text).split() for text in (shown, printed))
    for one, other in zip(ours, theirs, strict=False):
        numbers = [[float(number.replace(",", "")) for number in NUMBER.findall(word)] for word in (one, other)]
        alike = NUMBER.sub("#", one) == NUMBER.sub("#", other) and len(numbers[0]) == len(numbers[1])
        if not alike or not all(_close(a, b) for a, b in zip(*numbers, strict=True)):
            return f"shown {one!r}, printed {other!r}"
    return "" if len(ours) == len(theirs) else f"{len(ours)} words shown, {len(theirs)} printed"


def _close(a: float, b: float) -> bool:
    small, large = sorted((a, b))
    return large - small <= CLOSE * large or (large < ROUNDING and large <= ROUNDING_FACTOR * small)


def _printed(codes: list[str]) -> list[str]:
    """The output of each block; the blocks of a page share their variables."""
    if not codes:
        return []
    program = "\n".join(f"{code}\nprint({CUT!r})" for code in codes)
    return [_tidy(part) for part in _output((sys.executable, "-c", program)).split(CUT)[:-1]]


@cache
def _output(words: tuple[str, ...]) -> str:
    """Standard output of a command, or standard error if that is empty; run in an empty folder.

    Cached, because two pages may show the same command.
    """
    # The pages also show errors of commands.
    may_fail = words[0] == "eigenmesh"
    if words[0] == "python":
        words = (sys.executable, *(str(ROOT / word) for word in words[1:]))
    elif words[0] == "eigenmesh":
        words = (sys.executable, "-m", *words)
    environment = {**os.environ, "COLUMNS": "112", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            words, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    if (done.returncode and not may_fail) or "Traceback" in done.stderr:
        raise PageError(f"{shlex.join(words)}\n{done.stderr}")
    return _tidy(done.stdout or done.stderr)


def _tidy(text: str) -> str:
    lines = "\n".join(line.rstrip() for line in text.splitlines())
    return re.sub(r"\n{3,}", "\n\n", lines).strip("\n")


def main() -> None:
    """Update the named pages, or all."""
    for page in [Path(name).resolve() for name in sys.argv[1:]] or PAGES:
        before = page.read_text(encoding="utf-8")
        try:
            after = refreshed(before)
        except PageError as error:
            sys.exit(f"{page.relative_to(ROOT)}: {error}")
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(f"refreshed {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
