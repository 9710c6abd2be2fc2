"""``eigenmesh reproduce streaming``: one pass over a stream, compared with published methods."""

from pathlib import Path

from eigenmesh import __version__
from eigenmesh._atomic_write import save_text
from eigenmesh.cli._messages import Messages
from eigenmesh.cli._node_files import make_folder
from eigenmesh.experiments._streaming import STREAM_UNITS, streaming_csv, streaming_panels, streaming_rows
from eigenmesh.experiments._tables import line_of, lines_csv
from eigenmesh.report import save_picture
from eigenmesh.report._pictures import matplotlib
from eigenmesh.report._streaming import StreamResult, streaming_page, streaming_picture, streaming_table

STREAMING_TRIALS = 10
QUICK_SAMPLES = 10_000


def reproduce_streaming(messages: Messages, out: Path, trials: int, seed: int, quick: bool) -> None:
    """Run all methods over all streams; write page, pictures and CSV files, and print the tables."""
    matplotlib("figure")
    make_folder(out)
    panels = streaming_panels(QUICK_SAMPLES if quick else None)
    totals = {panel.title: len(panel.methods) for panel in panels}
    with messages.counted_progress(totals, dict.fromkeys(totals, 0)) as finish:
        results = [StreamResult(panel, streaming_rows(panel, trials, seed, finish)) for panel in panels]
    about = {
        "command": f"eigenmesh reproduce streaming{' --quick' if quick else ''} --trials {trials} --seed {seed}",
        "trials": f"{trials}, each with new samples, graph and start; medians",
        "made by": f"eigenmesh {__version__}",
    }
    figure = streaming_picture(results)
    written = [save_picture(figure, out / f"streaming{suffix}") for suffix in (".png", ".svg")]
    parts = [(result.panel.title, result.rows) for result in results]
    texts = {"streaming.csv": streaming_csv(parts), "streaming.html": streaming_page(results, about)}
    for unit in STREAM_UNITS:
        lines = [(title, [line_of(row.method, row.curves, unit) for row in rows]) for title, rows in parts]
        texts[f"streaming-{unit}.csv"] = lines_csv(lines, unit)
    for name, text in texts.items():
        save_text(out / name, text)
        written.append(out / name)
    for result in results:
        messages.print(streaming_table(result))
    for path in written:
        messages.print(f"wrote {path}")
