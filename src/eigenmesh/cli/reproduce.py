"""``eigenmesh reproduce``: the experiments of the paper, and one on nodes whose data differ."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer
from joblib import cpu_count

from eigenmesh import __version__
from eigenmesh.atomic_write import save_text
from eigenmesh.cli.messages import Messages
from eigenmesh.cli.options import Quiet, argument, option
from eigenmesh.cli.output import make_folder
from eigenmesh.errors import InputError
from eigenmesh.experiments import catalogue, claims, figures, pages
from eigenmesh.experiments.experiment import Experiment, Panel, TrialRun
from eigenmesh.experiments.pages import Chapter, PanelResult
from eigenmesh.experiments.runs import Results, Store, kept_runs, make_runs, missing_data, runs_of
from eigenmesh.report import save_picture
from eigenmesh.report.pictures import matplotlib
from eigenmesh.words import canonical_name

ALL, UNLIKE = "all", "unlike"
CHOICES = (*catalogue.FIGURES, ALL, UNLIKE)
# Trials of the figures of the paper; the experiment on unlike nodes tries whole grids.
TRIALS, UNLIKE_TRIALS = 10, 1
# Exit status if part of the experiments could not be run.
INCOMPLETE = 1

WHAT_HELP = (
    "fig1: distinct eigenvalues; fig2: nearly equal ones; fig3: MNIST and CIFAR-10; all: these three; unlike: "
    "nodes whose data differ."
)
TRIALS_HELP = f"Monte-Carlo trials; {TRIALS} by default, {UNLIKE_TRIALS} for unlike."
ROUNDS_HELP = "Budget of rounds per run; by default 15,000 for fig1 and fig2, 1,000 for fig3, 600 for unlike."
QUICK_HELP = "For unlike: small data, without MNIST."


def reproduce(
    what: Annotated[str, argument("WHAT", WHAT_HELP)],
    trials: Annotated[int | None, option(None, "N", TRIALS_HELP, min=1)] = None,
    rounds: Annotated[int | None, option(None, "N", ROUNDS_HELP, min=1)] = None,
    seed: Annotated[int, option(None, "N", "Fixes data, graphs and starts of all trials.", min=0)] = 0,
    jobs: Annotated[int | None, option(None, "N", "Processes; by default one per core.", min=1)] = None,
    out: Annotated[Path, option(None, "FOLDER", "Folder for page, pictures and tables; it is created.")] = Path(
        "out/experiments"
    ),
    quick: Annotated[bool, option(None, None, QUICK_HELP, "--quick")] = False,
    quiet: Quiet = False,
) -> None:
    """Repeat the experiments of the FAST-PCA paper, and check its claims against the numbers.

    Writes one page, **WHAT.html**, that can be read offline, with pictures, tables of the cost of each method to reach
    an error, and a verdict on each claim; and the same as .png, .svg and .csv. Finished runs are stored in its
    folder **cache**, so that an interrupted experiment can continue.

    MNIST and CIFAR-10 are searched in the folder that **EIGENMESH_DATA** names.

    Exit status: 0 if everything was run; 1 if data were missing, but the rest was run; 2 for invalid input.

    Examples:

    - `eigenmesh reproduce fig1 --trials 2`

    - `eigenmesh reproduce all --out results --jobs 4`

    - `eigenmesh reproduce unlike --quick`
    """
    messages = Messages.of(quiet)
    what = canonical_name("experiment", what, CHOICES)
    experiments = _experiments(what, rounds, quick)
    trials = trials or (UNLIKE_TRIALS if what == UNLIKE else TRIALS)
    # matplotlib is needed only at the end; if it is missing, fail now.
    matplotlib("figure")
    make_folder(out)
    store = Store(make_folder(out / "cache"))
    runs = [run for experiment in experiments for run in runs_of(experiment, trials, seed)]
    results, missing = _carry_out(messages, runs, store, jobs or cpu_count())
    chapters = [_chapter(experiment, results, missing) for experiment in experiments]
    command = f"eigenmesh reproduce {what}{' --quick' if quick else ''} --trials {trials} --seed {seed}"
    about = {
        "command": command + (f" --rounds {rounds}" if rounds else ""),
        "trials": f"{trials}, each with new data (or split), graph and start",
        "made by": f"eigenmesh {__version__}",
    }
    written = _write(out, what, chapters, about)
    _print_tables(messages, chapters)
    for path in written:
        messages.print(f"wrote {path}")
    if missing:
        raise typer.Exit(INCOMPLETE)


def _experiments(what: str, rounds: int | None, quick: bool) -> list[Experiment]:
    if what == UNLIKE:
        return [catalogue.unlike_experiment(rounds, quick)]
    if quick:
        small = f"make {what} small with --trials 1 --rounds 500"
        raise InputError(f"--quick can only be used with unlike; {small}.")
    return [make(rounds) for name, make in catalogue.FIGURES.items() if what in (name, ALL)]


def _carry_out(
    messages: Messages, everything: list[TrialRun], store: Store, jobs: int
) -> tuple[Results, dict[str, str]]:
    """Curves of all runs, stored and new; and by name of each missing data set, a message that says how to get it."""
    results = kept_runs(everything, store)
    wanted = [run for run in everything if run not in results]
    missing = missing_data({run.panel for run in wanted})
    for words in missing.values():
        messages.alert(f"left out: {words}", style="yellow")
    due = [run for run in wanted if run.panel.data.name not in missing]
    done = len(results)
    with messages.waiting("running") as tell:

        def finish(run: TrialRun) -> None:
            nonlocal done
            done += 1
            total = len(results) + len(due)
            tell(f"{done:,} of {total:,} runs are done", at_once=done == total)

        make_runs(due, store, jobs, finish)
    return results | kept_runs(due, store), missing


def _chapter(experiment: Experiment, results: Results, missing: dict[str, str]) -> Chapter:
    panels = [_panel(panel, results, missing, best=experiment.name == UNLIKE) for panel in experiment.panels]
    if experiment.name == UNLIKE:
        return Chapter(experiment, panels)
    tables = [(result.panel.title, result.rows) for result in panels if result.rows]
    return Chapter(experiment, panels, claims.check_claims(tables, nearly_equal=experiment.name == "fig2"))


def _panel(panel: Panel, results: Results, missing: dict[str, str], best: bool) -> PanelResult:
    here = {run: curve for run, curve in results.items() if run.panel == panel}
    if not here or panel.data.name in missing:
        return PanelResult(panel, missing=missing.get(panel.data.name, "It was not run."))
    rows = claims.cost_rows(panel, here)
    rows = claims.best_rows(rows) if best else rows
    in_order = sorted(here, key=lambda run: run.trial)
    return PanelResult(panel, rows, [[here[run] for run in in_order if run.method == row.method] for row in rows])


def _print_tables(messages: Messages, chapters: Sequence[Chapter]) -> None:
    for chapter in chapters:
        experiment = chapter.experiment
        for result in chapter.panels:
            if result.rows:
                title = f"{experiment.name}, {result.panel.title}"
                messages.print(figures.cost_table(result.rows, "rounds", title))
        if chapter.findings:
            messages.print(experiment.title)
            messages.print(figures.claims_table(chapter.findings))


def _write(out: Path, what: str, chapters: Sequence[Chapter], about: dict[str, str]) -> list[Path]:
    """Write the pictures and tables of each experiment, and one page for all."""
    written = []
    for chapter in chapters:
        name, made = chapter.experiment.name, [result for result in chapter.panels if result.rows]
        if not made:
            continue
        written += _draw(out, chapter, made)
        tables = {
            "costs": claims.cost_columns((result.panel.title, result.rows) for result in made),
            "errors": claims.error_columns((result.panel.title, result.runs) for result in made),
        }
        written += [save_text(out / f"{name}-{kind}.csv", claims.as_csv(table)) for kind, table in tables.items()]
    title = "The experiments of the FAST-PCA paper, run again"
    if what == UNLIKE:
        title = "Decentralised PCA when the data of the nodes differ"
    return [*written, save_text(out / f"{what}.html", pages.experiments_page(title, chapters, about))]


def _draw(out: Path, chapter: Chapter, made: Sequence[PanelResult]) -> list[Path]:
    """Draw one picture per figure of the paper; of unlike nodes, one per data set."""
    experiment, written = chapter.experiment, []
    own = experiment.name == UNLIKE
    for data, group in groupby(made, key=lambda result: result.panel.data.name if own else ""):
        panels = [result.axis for result in group]
        title = f"{experiment.title}: {data}" if own else experiment.title
        figure = figures.errors_picture(panels, title, columns=3 if own else 2)
        name = f"{experiment.name}-{data}" if own else experiment.name
        written += [save_picture(figure, out / f"{name}{suffix}") for suffix in (".png", ".svg")]
    return written
