"""Find unknown words in README and docs, in docstrings, and in messages to people.

``python tools/spelling.py`` prints them with the file and the line, and ends with status 1 if there are any. A word is
known if it is in the English list of pyspellchecker or in ``docs/words.txt``. Code, names of files and of things in
code, equations and words in capitals are not checked.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from spellchecker import SpellChecker

ROOT = Path(__file__).parents[1]
WORDS = ROOT / "docs" / "words.txt"
# Placeholder for a value in a message, and for anything that is not prose.
GAP = "\0"
WORD = re.compile(rf"(?<![\w{GAP}./\\@#<&-])[A-Za-z]?[a-z]+(?:-[a-z]+)*(?:'[a-z]+)?(?![\w{GAP}/(\[=@]|\.\w)")
NOT_PROSE_IN_PAGES = re.compile(
    r"^(?P<fence>`{3,}).*?^(?P=fence)$|<!--.*?-->|\$\$.*?\$\$|\$[^$]+\$|`[^`]+`|\]\([^)]*\)|https?://\S+|\{\w+\}",
    re.MULTILINE | re.DOTALL,
)
# Code, roles, names of parameters, examples, and blocks of equations after two colons.
NOT_PROSE_IN_DOCSTRINGS = re.compile(
    r"``[^`]+``|:\w+:`[^`]*`|`[^`]+`|^ *[\w, *]+ : .*$|^ *>>> .*$|::\n\n(?:(?: {4,}.*)?\n)+", re.MULTILINE
)
NOT_PROSE_IN_MESSAGES = re.compile(r"https?://\S+|--[\w-]+|'[^']*'|\"[^\"]*\"|`[^`]*`|<[^>]*>|\[/?\w+\]")


class Unknown(NamedTuple):
    """An unknown word, and where it is."""

    path: Path
    line: int
    word: str


@cache
def english() -> frozenset[str]:
    return frozenset(SpellChecker().word_frequency.words())


@cache
def of_the_project() -> frozenset[str]:
    return frozenset(WORDS.read_text(encoding="utf-8").split())


def words(text: str, not_prose: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Words of prose with the line that each is in, from 0."""
    prose = not_prose.sub(lambda found: GAP + "\n" * found[0].count("\n"), text)
    for match in WORD.finditer(prose):
        line = prose.count("\n", 0, match.start())
        for word in match[0].split("-"):
            yield line, word.removesuffix("'s").lower()


def texts(path: Path) -> Iterator[tuple[int, str, re.Pattern[str]]]:
    """Prose of a file: its first line, the text, and a pattern for the parts that are not prose."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield 1, text, NOT_PROSE_IN_PAGES
        return
    tree = ast.parse(text)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if ast.get_docstring(node) is not None
    }
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in docstrings:
            yield node.lineno, node.value, NOT_PROSE_IN_DOCSTRINGS
        elif isinstance(node, ast.JoinedStr):
            pieces = (part.value if isinstance(part, ast.Constant) else GAP for part in node.values)
            yield node.lineno, "".join(pieces), NOT_PROSE_IN_MESSAGES
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.lineno, node.value, NOT_PROSE_IN_MESSAGES


def is_message(text: str) -> bool:
    """Whether a string of a program is a sentence, rather than a name, a format or a style."""
    return len(re.findall(r"(?<!\S)[A-Za-z]?[a-z]+[,.:;]?(?!\S)", text)) >= 3 and not re.search(
        r"[{};]\s*\S+:|</", text
    )


def unknown(path: Path) -> list[Unknown]:
    """Unknown words of a file, each once."""
    found: dict[str, int] = {}
    for start, text, not_prose in texts(path):
        if not_prose is NOT_PROSE_IN_MESSAGES and not is_message(text):
            continue
        for line, word in words(text, not_prose):
            if word not in english() and word not in of_the_project():
                found.setdefault(word, start + line)
    return [Unknown(path, line, word) for word, line in found.items()]


def files() -> list[Path]:
    pages = [path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts]
    return sorted([*ROOT.glob("*.md"), *pages, *(ROOT / "src").rglob("*.py"), *(ROOT / "examples").rglob("*.py")])


def main() -> None:
    found = [one for path in files() for one in unknown(path)]
    for path, line, word in found:
        print(f"{path.relative_to(ROOT)}:{line}: {word}")
    sys.exit(f"{len(found)} unknown words; correct them, or add them to {WORDS.relative_to(ROOT)}" if found else 0)


if __name__ == "__main__":
    main()
