"""What can be counted of the house, beside the figures of last time: ``make structure``.

Counts are symptoms, not aims: a house of few files whose lines are dense is no easier to read. So the share of comments
and the median length of a function stand beside the number of files and lines. ``--save`` keeps today's figures as
those of last time. A small fit and a masked sum of sites are run to count the files and functions that they pass.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import queue
import statistics
import sys
import tempfile
import threading
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "eigenmesh"
LAST = ROOT / "tools" / "structure.json"
# Sites of a masked sum, and how long one may take.
N_SITES, TIMEOUT_S = 3, 60.0
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


class Passed:
    """Which files and functions of the package are passed within the context, on this thread and those started in it.

    Attributes
    ----------
    counting : whether a call counts now.
    """

    def __init__(self) -> None:
        self.counting = False
        self._seen: set[tuple[str, str]] = set()
        # Calls by which one thread leaves something to another.
        self.handed_over = 0

    def __enter__(self) -> Passed:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *about: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: Any, event: str, called: Any) -> None:
        code = frame.f_code
        if not self.counting:
            return
        if event == "call" and code.co_filename.startswith(str(SOURCE)) and code.co_name != "<module>":
            self._seen.add((code.co_filename, code.co_qualname))
            self.handed_over += code.co_qualname == "ConnectionThread.call"
        elif event == "c_call" and getattr(called, "__name__", "") == "put":
            self.handed_over += isinstance(getattr(called, "__self__", None), queue.SimpleQueue)

    def counts(self) -> dict[str, int]:
        """How many files and functions were passed."""
        return {"files": len({file for file, _ in self._seen}), "functions": len(self._seen)}


def path_of_a_fit() -> dict[str, int]:
    """What ``DecentralizedPCA(3).fit(X, nodes=y)`` passes."""
    from sklearn.datasets import load_digits

    from eigenmesh import DecentralizedPCA

    samples, digit = load_digits(return_X_y=True)
    with Passed() as passed:
        passed.counting = True
        DecentralizedPCA(3).fit(samples, nodes=digit)
    return passed.counts()


def path_of_a_masked_sum() -> dict[str, float]:
    """What the average of one masked block passes between its call and its result at three sites, on all threads.

    The sites are linked in a path over real TLS connections on loopback, and have journals. The average before it has
    prepared the links. ``handovers`` is how often a thread of a site leaves something to another one, per site.

    On a busy machine the clock of a site may tick in the meantime, so this is the least of three averages.
    """
    return min((_path_of_a_masked_sum() for _ in range(3)), key=lambda passed: passed["files"])


def _path_of_a_masked_sum() -> dict[str, float]:
    """One of these averages."""
    sys.path.insert(0, str(ROOT / "tests"))
    import numpy as np

    from eigenmesh import graphs
    from eigenmesh.averaging import Integers
    from eigenmesh.fitting.networks import add_masks
    from eigenmesh.networks import Peers
    from transports.sites import Sites

    sites, passed = Sites(graphs.topologies.path(N_SITES), masked=True), Passed()
    begin, end = (threading.Barrier(N_SITES, lambda on=on: setattr(passed, "counting", on)) for on in (True, False))

    def average(rank: int) -> None:
        with sites.transport(rank, journal=Path(folder) / str(rank)) as transport:
            network = Peers(graphs.metropolis(sites.graph), transport, Integers())
            add_masks(network)
            network.learn_scales(np.ones(8))
            network.mean(np.ones((1, 8, 2)))
            begin.wait(TIMEOUT_S)
            network.mean(np.ones((1, 8, 2)))
            end.wait(TIMEOUT_S)

    with tempfile.TemporaryDirectory() as folder, passed, ThreadPoolExecutor(N_SITES) as pool:
        list(pool.map(average, range(N_SITES)))
    return {**passed.counts(), "handovers": round(passed.handed_over / N_SITES, 1)}


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
    for work, passed in (("a fit", path_of_a_fit()), ("a masked sum", path_of_a_masked_sum())):
        figures |= {f"{what} on the path of {work}": number for what, number in passed.items()}
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
