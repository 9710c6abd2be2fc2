"""``eigenmesh demo``: a complete fit, from data to picture and report, that needs no input."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from eigenmesh._lookup import canonical_name
from eigenmesh.cli._exit_codes import NOT_CONVERGED
from eigenmesh.cli._messages import Messages
from eigenmesh.cli._node_files import make_folder, require_report
from eigenmesh.cli._options import Live, option
from eigenmesh.cli._peers_demo import demo_with_peers
from eigenmesh.cli._problem import Problem, read_problem
from eigenmesh.cli._report_file import write_fit_report
from eigenmesh.errors import MissingExtraError
from eigenmesh.events import Entry
from eigenmesh.fitting import Fit, Request, fit, prepare
from eigenmesh.graphs import TOPOLOGIES
from eigenmesh.iteration import DEFAULT_MAX_ROUNDS
from eigenmesh.metrics import sin_squared
from eigenmesh.report import require_picture, save_picture
from eigenmesh.report._tables import facts_table
from eigenmesh.solvers import SOLVERS

DATA_SET = "digits"


def demo(
    components: Annotated[int, option(None, "K", "How many components.", "--components", "-k", min=1)] = 5,
    nodes: Annotated[int, option(None, "M", "How many nodes.", min=1)] = 20,
    topology: Annotated[str, option(None, "NAME", "Network: erdos_renyi, cycle, grid, star, ...")] = "erdos_renyi",
    split: Annotated[
        str, option(None, "NAME", "How digits are split over nodes: random, label, dirichlet:0.1, ...")
    ] = "random",
    solver: Annotated[str, option(None, "NAME", f"{', '.join(SOLVERS)}.")] = "block-krylov",
    max_rounds: Annotated[int, option(None, "N", "Budget of neighbour exchanges.", min=1)] = DEFAULT_MAX_ROUNDS,
    seed: Annotated[int, option(None, "N", "Seed of split, graph and start.", min=0)] = 0,
    out: Annotated[Path, option(None, "FILE", "The picture, .png, .svg or .pdf; its folder is created.")] = Path(
        "out/demo.png"
    ),
    report: Annotated[
        Path | None, option(None, "FILE.html", "The report; by default next to the picture.", "--report")
    ] = None,
    live: Live = False,
    peers: Annotated[
        int | None, option(None, "M", "Run M real processes with certificates instead, and kill one during the run.")
    ] = None,
) -> None:
    """Watch 20 nodes find the components of handwritten digits, each holding only some of the images.

    1,797 images are split over the nodes of a random network. The nodes talk only to their neighbours and end with
    the components of the pooled images. The table shows the bound that the nodes certify themselves, next to the true
    angle, which only this command can compute, because it has all images in one place.

    Examples:

    - `eigenmesh demo`

    - `eigenmesh demo --peers 5`

    - `eigenmesh demo --topology cycle -k 3 --out cycle.svg`

    - `eigenmesh demo --split label`

    - `eigenmesh demo --solver fast-pca`
    """
    messages = Messages.of(live=live)
    if peers is not None:
        page_file = require_report(report or make_folder(out.parent) / "peers-demo.html")
        if not demo_with_peers(messages, peers, out.parent / "peers-demo", page_file):
            raise typer.Exit(NOT_CONVERGED)
        return
    topology = canonical_name("topology", topology, TOPOLOGIES)
    request = Request.parse(n_components=components, solver=solver, max_rounds=max_rounds, random_state=seed)
    if report is not None:
        # Checked before any folder is created.
        require_report(report)
    picture = _picture_path(out)
    page_file = require_report(report or out.with_suffix(".html"))
    problem = read_problem(messages, [DATA_SET], request.layout_seed, split=split, nodes=nodes, topology=topology)
    prepared = prepare(request, problem.data)
    messages.print(facts_table(problem.facts(prepared.moments.n_samples)))
    truth = _pooled_eigenvectors(problem, components)
    entries: list[Entry] = []
    with messages.page(problem.title) as page:
        planned = problem.planned(request)
        with messages.log(None, page, entries.append) as log:
            if planned is not None:
                log.emit(planned)
            fitted = fit(prepared, events=log, reference=truth)
            log.emit(fitted.result.ended)
        written = [_draw(fitted, problem, picture), write_fit_report(page_file, entries, fitted, problem)]
        node_vectors = np.swapaxes(fitted.result.node_components, 1, 2)
        messages.print_fit(fitted, np.sqrt(sin_squared(node_vectors, truth).max(axis=0)))
        for path in written:
            if isinstance(path, MissingExtraError):
                messages.alert(f"no picture: {path}", style="yellow")
            else:
                messages.print(f"wrote {path}")
    if not fitted.result.converged:
        raise typer.Exit(NOT_CONVERGED)


def _draw(fitted: Fit, problem: Problem, picture: Path | MissingExtraError) -> Path | MissingExtraError:
    """Draw the picture and return its path; if matplotlib is missing, the error."""
    if isinstance(picture, MissingExtraError):
        return picture
    held = f"held by {fitted.result.n_nodes} nodes ({problem.split} split)"
    title = f"PCA of {fitted.moments.n_samples:,} handwritten digits {held}"
    return save_picture(problem.picture(fitted, title), picture)


def _picture_path(path: Path) -> Path | MissingExtraError:
    """Create the folder and return the path; if matplotlib is missing, the error: the demo runs without a picture."""
    make_folder(path.parent)
    try:
        return require_picture(path)
    except MissingExtraError as error:
        return error


def _pooled_eigenvectors(problem: Problem, n_components: int) -> np.ndarray:
    """The components of the pooled images, which no node can compute alone: (d, K)."""
    samples = np.concatenate([block.read(slice(None)) for block in problem.shards.blocks])
    vectors = np.linalg.eigh(np.cov(samples, rowvar=False))[1]
    return np.ascontiguousarray(vectors[:, ::-1][:, :n_components])
