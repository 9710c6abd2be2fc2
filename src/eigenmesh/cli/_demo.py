"""``eigenmesh demo``: the main job, from data to a picture, without any input."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from eigenmesh.cli._exit_codes import NOT_CONVERGED
from eigenmesh.cli._inputs import require_topology
from eigenmesh.cli._messages import Voice
from eigenmesh.cli._peers_demo import demo_with_peers
from eigenmesh.cli._problem import Problem, state_problem
from eigenmesh.data import build_covariance, pooled_moments
from eigenmesh.errors import MissingExtraError, UnreadableFileError
from eigenmesh.fitting._planner import cheapest_averaging
from eigenmesh.iteration._result import Result, with_set_up
from eigenmesh.iteration._run import DEFAULT_MAX_ROUNDS, DEFAULT_TOL, require_components, run
from eigenmesh.metrics import sin_squared
from eigenmesh.networks import Stacked
from eigenmesh.report import require_picture, run_picture, save_picture
from eigenmesh.report._run_tables import components_table, facts_table, traffic_table
from eigenmesh.solvers import SOLVERS, Solver, solver_by_name

DATA_SET = "digits"


def demo(
    components: Annotated[int, typer.Option("--components", "-k", metavar="K", min=1, help="How many components.")] = 5,
    nodes: Annotated[int, typer.Option(metavar="M", min=1, help="How many nodes.")] = 20,
    topology: Annotated[
        str, typer.Option(metavar="NAME", help="Network: erdos_renyi, cycle, grid, star, ...")
    ] = "erdos_renyi",
    split: Annotated[
        str, typer.Option(metavar="NAME", help="How digits are dealt out: random, label, dirichlet:0.1, ...")
    ] = "random",
    solver: Annotated[str, typer.Option(metavar="NAME", help=f"{', '.join(SOLVERS)}.")] = "block-krylov",
    max_rounds: Annotated[
        int, typer.Option(min=1, metavar="N", help="Budget of neighbour exchanges.")
    ] = DEFAULT_MAX_ROUNDS,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Fixes split, graph and start.")] = 0,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="Where the picture goes, .png or .svg; its folder is made.")
    ] = Path("out/demo.png"),
    peers: Annotated[
        int | None,
        typer.Option(
            metavar="M", help="Instead: real processes with certificates on this machine, one killed on the way."
        ),
    ] = None,
) -> None:
    """Watch 20 nodes find the components of handwritten digits that none of them has all of.

    1,797 images are dealt out to the nodes of a random network. The nodes talk to their neighbours alone and end with
    the components of the pooled images. The table sets the bound that they certify by themselves beside the true
    angle, which takes all images in one place to know.

    Examples:

    - `eigenmesh demo`

    - `eigenmesh demo --peers 5`

    - `eigenmesh demo --topology cycle -k 3 --out cycle.svg`

    - `eigenmesh demo --split label`

    - `eigenmesh demo --solver fast-pca`
    """
    voice = Voice.of()
    if peers is not None:
        if not demo_with_peers(voice, peers, out.parent / "peers-demo"):
            raise typer.Exit(NOT_CONVERGED)
        return
    method = solver_by_name(solver, step_size="auto")
    require_topology(topology)
    problem = state_problem(
        voice,
        [DATA_SET],
        label_column=None,
        split=split,
        by_label=False,
        nodes=nodes,
        topology=topology,
        weights="metropolis",
        seed=seed,
    )
    require_components(components, problem.shards.n_features, problem.n_samples)
    picture = _picture_path(out)
    voice.tell(facts_table(problem.facts()))
    truth = _pooled_eigenvectors(problem, components)
    result, total = _run(voice, problem, method, truth, max_rounds, seed)
    sines = np.sqrt(sin_squared(np.swapaxes(result.node_components, 1, 2), truth).max(axis=0))
    voice.tell(components_table(result.certificate, total, sines))
    voice.tell(traffic_table(result.traffic, result.traffic_by_phase))
    voice.tell_end(result, DEFAULT_TOL)
    _draw(voice, picture, problem, result, total)
    if not result.converged:
        raise typer.Exit(NOT_CONVERGED)


def _picture_path(path: Path) -> Path | MissingExtraError:
    """The path with its folder made; or what is missing to draw, which is no reason not to run."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnreadableFileError(
            f"cannot make the folder {path.parent}: {error.strerror}; choose another --out."
        ) from error
    try:
        return require_picture(path)
    except MissingExtraError as error:
        return error


def _pooled_eigenvectors(problem: Problem, n_components: int) -> np.ndarray:
    """What the nodes are to find, by a means that none of them has: (d, K)."""
    samples = np.concatenate([block.read(0, block.n_rows) for block in problem.shards.blocks])
    vectors = np.linalg.eigh(np.cov(samples, rowvar=False))[1]
    return np.ascontiguousarray(vectors[:, ::-1][:, :n_components])


def _run(
    voice: Voice, problem: Problem, solver: Solver, truth: np.ndarray, max_rounds: int, seed: int
) -> tuple[Result, float]:
    """The run with the cost of its set-up, and the total variance."""
    network = Stacked(problem.weights, cheapest_averaging(problem.weights, truth.size))
    moments = pooled_moments(problem.shards, network)
    covariance = build_covariance(problem.shards, moments, n_components=truth.shape[1])
    with voice.progress(max_rounds) as show:
        result = run(
            solver,
            covariance,
            network,
            truth.shape[1],
            max_rounds=max_rounds,
            seed=seed,
            callback=show,
            reference=truth,
        )
    return with_set_up(result, network.traffic.copy()), moments.total_variance


def _draw(voice: Voice, path: Path | MissingExtraError, problem: Problem, result: Result, total: float) -> None:
    if isinstance(path, MissingExtraError):
        voice.alert(f"no picture: {path}", style="yellow")
        return
    figure = run_picture(
        problem.weights,
        result,
        DEFAULT_TOL,
        title=f"PCA of {problem.n_samples:,} handwritten digits held by {result.n_nodes} nodes ({problem.split} split)",
        image_shape=problem.source.image_shape,
        total_variance=total,
    )
    voice.tell(f"wrote {save_picture(figure, path)}")
