"""What can be counted of the house, beside the figures of last time: ``make structure``.

Counts are symptoms, not aims: a house of few files whose lines are dense is no easier to read. So the share of comments
and the median length of a function stand beside the number of files and lines. ``--save`` keeps today's figures as
those of last time. A small fit is run to count the files and functions that it passes.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import statistics
import sys
import threading
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "eigenmesh"
LAST = ROOT / "tools" / "structure.json"
# Names of files that several rooms may have, because they mean the same thing in each.
COMMON_NAMES = {"__init__", "__main__", "base", "changing"}
NOT_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def sources() -> dict[Path, ast.Module]:
    """Every file of the package, parsed."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))}


def room_of(path: Path) -> str:
    """The package or top-level module in which a file lies."""
    parts = path.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else path.stem


def lines_of(path: Path, tree: ast.Module) -> tuple[int, int]:
    """How many lines of a file have code, and how many have a comment; docstrings and blank lines are neither."""
    documented: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
            ast.get_docstring(node, clean=False) is not None
        ):
            documented.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    code: set[int] = set()
    comments = 0
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        comments += token.type == tokenize.COMMENT
        if token.type not in NOT_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - documented), comments


def lone_bases(trees: dict[Path, ast.Module]) -> list[str]:
    """Classes of the package that exactly one class inherits from, those in ``errors.py`` aside."""
    defined, children = set(), defaultdict(set)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                if path != SOURCE / "errors.py":
                    defined.add(node.name)
                for base in node.bases:
                    name = base.value if isinstance(base, ast.Subscript) else base
                    children[getattr(name, "id", getattr(name, "attr", ""))].add(node.name)
    return sorted(name for name in defined if len(children[name]) == 1)


def private_imports(trees: dict[Path, ast.Module]) -> list[str]:
    """Imports of a private module of another room, as ``file:line module``."""
    found = []
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("eigenmesh."):
                names = [node.module.split(".")] + [[*node.module.split("."), alias.name] for alias in node.names]
                for words in names:
                    is_module = (SOURCE.joinpath(*words[1:]).with_suffix(".py")).exists()
                    if is_module and len(words) > 2 and words[-1].startswith("_") and words[1] != room_of(path):
                        found.append(f"{path.relative_to(ROOT)}:{node.lineno} {'.'.join(words)}")
    return found


def shared_names(trees: dict[Path, ast.Module]) -> list[str]:
    """Names of files that lie in several rooms."""
    rooms = defaultdict(set)
    for path in trees:
        rooms[path.stem.strip("_") if path.stem not in COMMON_NAMES else path.stem].add(room_of(path))
    return sorted(name for name, found in rooms.items() if len(found) > 1 and name not in COMMON_NAMES)


def exported(trees: dict[Path, ast.Module]) -> int:
    """How many names the packages list in their ``__all__``."""
    count = 0
    for path, tree in trees.items():
        for node in tree.body:
            if path.name == "__init__.py" and isinstance(node, ast.Assign) and isinstance(node.value, ast.List):
                names = [target.id for target in node.targets if isinstance(target, ast.Name)]
                count += len(node.value.elts) if names == ["__all__"] else 0
    return count


def functions(trees: dict[Path, ast.Module]) -> Iterator[int]:
    """Lengths of all functions, in lines."""
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield (node.end_lineno or node.lineno) - node.lineno + 1


def passed(work: Callable[[], object]) -> dict[str, int]:
    """How many files and functions of the package a piece of work passes, on this thread and those that it starts."""
    seen: set[tuple[str, str]] = set()

    def note(frame: Any, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(SOURCE)) and code.co_name != "<module>":
            seen.add((code.co_filename, code.co_qualname))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return {"files": len({file for file, _ in seen}), "functions": len(seen)}


def path_of_a_fit() -> dict[str, int]:
    """What ``DecentralizedPCA(3).fit(X, nodes=y)`` passes."""
    from sklearn.datasets import load_digits

    from eigenmesh import DecentralizedPCA

    samples, digit = load_digits(return_X_y=True)
    return passed(lambda: DecentralizedPCA(3).fit(samples, nodes=digit))


def measure() -> dict[str, Any]:
    """All figures."""
    trees = sources()
    code, comments, per_room, files = 0, 0, Counter[str](), Counter[str]()
    for path, tree in trees.items():
        lines, remarks = lines_of(path, tree)
        code, comments = code + lines, comments + remarks
        per_room[room_of(path)] += lines
        files[room_of(path)] += 1
    figures: dict[str, Any] = {
        "files": len(trees),
        "lines of code": code,
        "comments per 100 lines of code": round(100 * comments / code, 1),
        "median lines of a function": statistics.median(functions(trees)),
        "base classes with one subclass": len(lone_bases(trees)),
        "private modules imported across rooms": len(private_imports(trees)),
        "names of files in several rooms": len(shared_names(trees)),
        "names that packages export": exported(trees),
    }
    figures |= {f"{what} on the path of a fit": number for what, number in path_of_a_fit().items()}
    figures |= {f"room {room}": f"{files[room]} / {lines}" for room, lines in sorted(per_room.items())}
    return figures


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true", help=f"keep them in {LAST.relative_to(ROOT)}")
    parser.add_argument("--list", action="store_true", help="name the lone base classes, private imports, shared names")
    wanted = parser.parse_args()
    figures = measure()
    last = json.loads(LAST.read_text(encoding="utf-8")) if LAST.exists() else {}
    print(f"{'':40} {'now':>12} {'last time':>12}")
    for name in [*figures, *(name for name in last if name not in figures)]:
        print(f"{name:40} {figures.get(name, '-'):>12} {last.get(name, '-'):>12}")
    if wanted.list:
        trees = sources()
        for found in (lone_bases, private_imports, shared_names):
            print(f"\n{(found.__doc__ or '').splitlines()[0]}")
            print("\n".join(f"  {one}" for one in found(trees)))
    if wanted.save:
        LAST.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
