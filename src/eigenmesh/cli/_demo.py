"""``eigenmesh demo``: the main job, from data to a picture, without any input."""

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
    out: Annotated[Path, option(None, "FILE", "The picture, .png, .svg or .pdf; its folder is made.")] = Path(
        "out/demo.png"
    ),
    report: Annotated[
        Path | None, option(None, "FILE.html", "The page of the run; by default beside the picture.", "--report")
    ] = None,
    live: Live = False,
    peers: Annotated[
        int | None, option(None, "M", "Instead: processes with certificates on this machine, one killed on the way.")
    ] = None,
) -> None:
    """Watch 20 nodes find the components of handwritten digits that none of them has all of.

    1,797 images are split over the nodes of a random network. The nodes talk to their neighbours alone and end with
    the components of the pooled images. The table sets the bound that they certify by themselves beside the true
    angle, which takes all images in one place to know.

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
        # Before a folder is made.
        require_report(report)
    picture = _picture_path(out)
    page_file = require_report(report or out.with_suffix(".html"))
    problem = read_problem(messages, [DATA_SET], request.layout_seed, split=split, nodes=nodes, topology=topology)
    prepared = prepare(request, problem.data)
    messages.tell(facts_table(problem.facts(prepared.moments.n_samples)))
    truth = _pooled_eigenvectors(problem, components)
    told: list[Entry] = []
    with messages.page(problem.title) as page:
        planned = problem.planned(request)
        with messages.log(None, page, told.append) as log:
            if planned is not None:
                log.emit(planned)
            fitted = fit(prepared, events=log, reference=truth)
            log.emit(fitted.result.ended)
        node_vectors = np.swapaxes(fitted.result.node_components, 1, 2)
        messages.tell_fit(fitted, np.sqrt(sin_squared(node_vectors, truth).max(axis=0)))
        _draw(messages, fitted, problem, picture)
        messages.tell(f"wrote {write_fit_report(page_file, told, fitted, problem)}")
    if not fitted.result.converged:
        raise typer.Exit(NOT_CONVERGED)


def _draw(messages: Messages, fitted: Fit, problem: Problem, picture: Path | MissingExtraError) -> None:
    if isinstance(picture, MissingExtraError):
        messages.alert(f"no picture: {picture}", style="yellow")
        return
    held = f"held by {fitted.result.n_nodes} nodes ({problem.split} split)"
    title = f"PCA of {fitted.moments.n_samples:,} handwritten digits {held}"
    messages.tell(f"wrote {save_picture(problem.picture(fitted, title), picture)}")


def _picture_path(path: Path) -> Path | MissingExtraError:
    """The path with its folder made; or what is missing to draw, which is no reason not to run."""
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
