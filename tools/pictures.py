"""Remake the pictures of the docs that take seconds: ``python tools/pictures.py``, which ``make docs`` runs.

Such a picture is drawn by a script in docs/images, or by the code on the page that shows it: the code writes a file of
the same name. A picture that no longer looks like the one in docs/images is replaced, named, and is an error, so that
the new one is looked at. One that looks the same keeps its bytes. Pictures of runs that take minutes are not remade;
their pages say by which command they were made.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

import pages

IMAGES = pages.ROOT / "docs" / "images"
# Scripts that write a picture into the folder that they are given.
SCRIPTS = (IMAGES / "make.py", IMAGES / "make_tree.py")
SHOWN = re.compile(r"images/([\w-]+\.(?:png|svg))")
# Two pictures look the same if few of their pixels differ by much, out of 255: edges may be smoothed in another way.
MUCH, FEW = 64, 2e-4


def looks_same(one: Path, other: Path) -> bool:
    """Whether two pictures look the same: SVGs by their text, others by their pixels."""
    if one.suffix == ".svg":
        return one.read_text(encoding="utf-8") == other.read_text(encoding="utf-8")
    with Image.open(one) as first, Image.open(other) as second:
        if first.size != second.size:
            return False
        pixels = [np.asarray(picture.convert("RGB"), dtype=float) for picture in (first, second)]
    return bool((np.abs(pixels[0] - pixels[1]).max(axis=-1) > MUCH).mean() <= FEW)


def drawn_by(program: list[str], folder: Path) -> None:
    """Run Python in a folder; raises if it fails."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    subprocess.run([sys.executable, *program], cwd=folder, env=environment, check=True, capture_output=True, text=True)


def pages_with_pictures() -> dict[Path, set[str]]:
    """The pages whose code writes pictures that they show, with the names of these."""
    found = {}
    for page in pages.PAGES:
        text = page.read_text(encoding="utf-8")
        code = pages.program_of(text)
        names = {name for name in SHOWN.findall(text) if f'"{name}"' in code}
        if names:
            found[page] = names
    return found


def remade(folder: Path) -> list[Path]:
    """Draw all pictures into a folder; raises if a page shows one that its code does not write."""
    for script in SCRIPTS:
        drawn_by([str(script), str(folder)], folder)
    due: set[str] = set()
    for page, names in pages_with_pictures().items():
        drawn_by(["-c", pages.program_of(page.read_text(encoding="utf-8"))], folder)
        due |= names
    missing = sorted(name for name in due if not (folder / name).exists())
    if missing:
        sys.exit(f"no code writes {', '.join(missing)}")
    return sorted(path for path in folder.iterdir() if path.suffix in (".png", ".svg"))


def main() -> None:
    """Remake all; exit with the names of those that had to be replaced."""
    stale = []
    with tempfile.TemporaryDirectory() as folder:
        for path in remade(Path(folder)):
            kept = IMAGES / path.name
            if not kept.exists() or not looks_same(path, kept):
                kept.write_bytes(path.read_bytes())
                stale.append(path.name)
    if stale:
        sys.exit(f"drawn again, because they looked otherwise: {', '.join(stale)}. Look at them, and commit them.")


if __name__ == "__main__":
    main()
