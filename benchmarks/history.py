"""Write the results of asv as one small file and a picture for the docs: the last step of ``make bench-history``.

The file has commits, dates, medians and the kind of machine, but no names of hosts or people.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from matplotlib.figure import Figure

from eigenmesh.report import save_picture
from eigenmesh.report.pictures import draw_frame, new_figure, set_heading

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / ".asv" / "results"
KEPT = ROOT / "benchmarks" / "history.json"
PICTURE = ROOT / "docs" / "images" / "history.svg"
PANELS = {
    "core.Digits.time_fit": ("Fit of the digits", "ms", 1e3),
    "core.Tall.time_fit": ("Fit of 60,000 x 200", "ms", 1e3),
    "core.Import.track_import": ("Import", "ms", 1e3),
    "core.Digits.track_rounds": ("Rounds, digits", "rounds", 1.0),
    "core.Digits.track_kilobytes": ("Payload, digits", "kB", 1.0),
}


def measured() -> dict[str, object]:
    """What asv has measured, commits in the order of the history."""
    listed = subprocess.run(["git", "rev-list", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    place = {commit: -at for at, commit in enumerate(listed.stdout.split())}
    files = [json.loads(path.read_text(encoding="utf-8")) for path in RESULTS.glob("*/*-*.json")]
    files = sorted((one for one in files if one["commit_hash"] in place), key=lambda one: place[one["commit_hash"]])
    return {"machine": machine(), "commits": [of_commit(one) for one in files]}


def of_commit(found: dict) -> dict[str, object]:
    """Commit, date and medians; a benchmark that failed there is left out."""
    first = {name: (found["results"].get(name) or [None])[0] for name in PANELS}
    date = datetime.fromtimestamp(found["date"] / 1000, UTC).strftime("%Y-%m-%d %H:%M")
    return {
        "commit": found["commit_hash"][:10],
        "date": date,
        "medians": {name: float(f"{values[0]:.4g}") for name, values in first.items() if values and values[0]},
    }


def machine() -> str:
    memory_gb = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    return f"{platform.machine()}, {os.cpu_count()} cores, {memory_gb} GB, Python {platform.python_version()}"


def picture(history: dict) -> Figure:
    """A panel for each benchmark, commits from left to right."""
    commits = history["commits"]
    figure = new_figure(9.0, 5.2)
    panels = figure.subplots(2, 3).ravel()
    for axes, (name, (title, unit, factor)) in zip(panels, PANELS.items(), strict=False):
        points = [(at, one["medians"][name] * factor) for at, one in enumerate(commits) if name in one["medians"]]
        axes.plot(*zip(*points, strict=True), "o-", color="#0072B2", markersize=4)
        axes.set_xticks(range(len(commits)), [one["commit"][:7] for one in commits], rotation=90)
        axes.set_ylim(0, 1.15 * max(value for _, value in points))
        axes.set_xlim(-0.5, len(commits) - 0.5)
        draw_frame(axes, "", "")
        set_heading(axes, title, f"{unit}; now {points[-1][1]:,.4g}")
    panels[-1].set_visible(False)
    return figure


def main() -> None:
    history = measured()
    KEPT.write_text(json.dumps(history, indent=1) + "\n", encoding="utf-8")
    print(
        f"{len(history['commits'])} commits; wrote {KEPT.relative_to(ROOT)}, {save_picture(picture(history), PICTURE)}"
    )


if __name__ == "__main__":
    main()
