"""Make the picture of the README: ``eigenmesh demo``, then 32 shades of grey to keep it small.

Run it with ``python docs/images/make.py``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

PICTURE = Path(__file__).with_name("demo.png")

if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        pages = ["--report", str(Path(folder) / "demo.html")]
        subprocess.run([sys.executable, "-m", "eigenmesh", "demo", "--out", str(PICTURE), *pages], check=True)
    with Image.open(PICTURE) as picture:
        small = picture.convert("L").quantize(32)
    small.save(PICTURE, optimize=True)
