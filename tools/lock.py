"""Write ``deploy/requirements.lock``: what a peer's image installs, with versions and hashes, as pip finds it now.

Run it with the Python of the image, on its architecture: CPython 3.12 on x86-64 Linux.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "deploy" / "requirements.lock"
# All that a peer may need: links, and every kind of file that samples may be in. hatchling builds the package itself.
WANTED = (".[peers,parquet,excel,hdf5,zarr,pgen]", "hatchling")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        words = ["install", "--quiet", "--dry-run", "--ignore-installed", "--report", str(report), *WANTED]
        subprocess.run([sys.executable, "-m", "pip", *words], cwd=ROOT, check=True)
        found = json.loads(report.read_text())["install"]
    lines = []
    for one in found:
        name, version = one["metadata"]["name"].lower().replace("_", "-"), one["metadata"]["version"]
        if name != "eigenmesh":
            sha256 = one["download_info"]["archive_info"]["hashes"]["sha256"]
            lines.append(f"{name}=={version} --hash=sha256:{sha256}")
    about = (
        f"# Made by tools/lock.py with CPython {platform.python_version()} on {platform.machine()} {sys.platform}.\n"
    )
    LOCK.write_text(about + "\n".join(sorted(lines)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
