"""Make the pictures of the page on experiments from a run of ``eigenmesh reproduce``, small enough for the repository.

Run it with ``python docs/images/make_experiments.py FOLDER`` on the folder that the commands on that page wrote to.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image

NAMES = ("fig1", "fig2", "fig3", "unlike-digits")
WIDTH, COLOURS = 1200, 96


def shrink(source: Path, target: Path) -> None:
    """Copy a picture with fewer pixels and colours."""
    with Image.open(source) as picture:
        height = round(picture.height * WIDTH / picture.width)
        small = picture.convert("RGB").resize((WIDTH, height), Image.Resampling.LANCZOS)
    small.quantize(COLOURS, dither=Image.Dither.NONE).save(target, optimize=True)


if __name__ == "__main__":
    for name in NAMES:
        path = Path(sys.argv[1]) / f"{name}.png"
        if path.exists():
            shrink(path, Path(__file__).with_name(f"{name}.png"))
