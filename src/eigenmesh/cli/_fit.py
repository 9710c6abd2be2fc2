"""``eigenmesh fit``: the principal components of data in files."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import typer
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from eigenmesh.averaging import name_of
from eigenmesh.cli import _options as options
from eigenmesh.cli._exit_codes import NOT_CONVERGED
from eigenmesh.cli._inputs import parse_components, parse_step_size
from eigenmesh.cli._messages import Voice
from eigenmesh.cli._outputs import STANDARD_OUTPUT, Outputs
from eigenmesh.cli._problem import Problem, state_own_problem, state_problem
from eigenmesh.cli._processes import note_node
from eigenmesh.cli._rank_files import has_rank, is_one_table
from eigenmesh.data import Choice, CovarianceKind, choose, memory_needed
from eigenmesh.errors import InputError, UnknownNameError
from eigenmesh.estimator._fitted_model import model_of
from eigenmesh.estimator._pca import DecentralizedPCA
from eigenmesh.fitting._numbers import fitted_numbers
from eigenmesh.fitting._resolve import averaging_or_auto, solver_or_auto
from eigenmesh.iteration._result import Result, with_set_up
from eigenmesh.iteration._run import DEFAULT_MAX_ROUNDS, DEFAULT_TOL, require_components, require_settings
from eigenmesh.report import run_picture, save_picture
from eigenmesh.report._network_picture import counted
from eigenmesh.report._progress import readable_bytes
from eigenmesh.report._run_tables import components_table, facts_table, traffic_table
from eigenmesh.solvers import Solver
from eigenmesh.transports import Transport, transport_by_name, transport_kind

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEFAULT_COMPONENTS = 5
MISSING: dict[str, Literal["error", "mean"]] = {"error": "error", "mean": "mean"}
COVARIANCES = {"auto": "auto", **{kind.value: kind.value for kind in CovarianceKind}}

T = TypeVar("T")


def fit(
    data: options.Sources,
    label_column: options.LabelColumn = None,
    split: options.SplitName = None,
    by_label: options.ByLabel = False,
    missing: options.Missing = "error",
    scale: options.Scale = False,
    nodes: options.Nodes = None,
    topology: options.Topology = "erdos_renyi",
    weights: options.WeightsName = "metropolis",
    averaging: options.AveragingName = "auto",
    transport: options.TransportName = None,
    components: options.Components = None,
    solver: options.SolverName = "auto",
    step_size: options.StepSize = "auto",
    tol: options.Tol = DEFAULT_TOL,
    max_rounds: options.MaxRounds = DEFAULT_MAX_ROUNDS,
    covariance: options.CovarianceName = "auto",
    device: options.Device = None,
    seed: options.Seed = 0,
    out: options.ArraysFile = None,
    json_file: options.NumbersFile = None,
    plot: options.PictureFile = None,
    quiet: options.Quiet = False,
) -> None:
    """Find the principal components of data that are spread over nodes.

    The answer is that of PCA on the pooled samples, within **--tol**, and comes with a certificate for which no node
    needed the truth. The nodes are simulated in this process, and what they would send is counted; with **--transport**
    they are threads or processes that exchange real messages.

    Exit status: 0 if the certificate reached the tolerance; 1 if not, and the files are written all the same;
    2 for input that cannot be worked with, and nothing is written.

    Examples:

    - `eigenmesh fit digits -k 3 --plot digits.png`

    - `eigenmesh fit patients.csv --label-column site --by-label --scale --out pca.npz`

    - `eigenmesh fit a.csv b.csv c.csv --topology links.txt --json -`

    - `eigenmesh fit samples.npy -k 0.9 --nodes 50 --topology grid`

    - `mpiexec -n 20 eigenmesh fit site-{rank}.npy --transport mpi --out pca.npz`
    """
    voice = Voice.of(quiet, machine_output=json_file == STANDARD_OUTPUT)
    outputs = Outputs.checked(out, json_file, plot, data)
    if transport is None and any(has_rank(str(name)) for name in (out, json_file, plot)):
        raise InputError("{rank} in the name of an output is for nodes that are processes or threads: --transport.")
    require_settings(tol, max_rounds)
    solver_or_auto(solver, parse_step_size(step_size))
    averaging_or_auto(averaging)
    engine = None if transport is None else transport_kind(transport, device)
    pca = DecentralizedPCA(
        parse_components(components),
        solver=solver,
        averaging=averaging,
        step_size=parse_step_size(step_size),
        tol=tol,
        max_rounds=max_rounds,
        scale=scale,
        missing=_known("policy for missing entries", missing, MISSING),
        covariance=_known("covariance", covariance, COVARIANCES),
        device=device,
        random_state=seed,
    )
    if transport is not None and split is None and not by_label and is_one_table(data):
        # Nodes that read their own part read a run of rows.
        split = "contiguous"
    asked: dict[str, Any] = {
        "label_column": label_column,
        "split": split,
        "by_label": by_label,
        "nodes": nodes,
        "topology": topology,
        "weights": weights,
        "seed": seed,
    }
    about = {"weights": weights, "averaging": averaging, "step_size": step_size, "transport": transport}
    with warnings.catch_warnings():
        # A run that did not converge is reported in words.
        warnings.simplefilter("ignore", ConvergenceWarning)
        if engine is None:
            result = _carry_out(voice, outputs, pca, state_problem(voice, data, **asked), about)
        elif engine.run_nodes is not None:
            problem = state_problem(voice, data, **asked)
            result = _at_every_node(engine.run_nodes, voice, outputs, pca, problem, about)
        else:
            with transport_by_name(engine.name, device=device) as link:
                note_node(link.rank)
                voice, outputs = _of_node(link, voice, outputs)
                problem = state_own_problem(voice, data, link, **asked)
                result = _carry_out(voice, outputs, pca.set_params(transport=link), problem, about)
    if not result.converged:
        raise typer.Exit(NOT_CONVERGED)


def _of_node(link: Transport, voice: Voice, outputs: Outputs) -> tuple[Voice, Outputs]:
    """Node 0 does the talking, and the writing where nodes have no files of their own."""
    return (voice if link.rank == 0 else Voice.silent()), outputs.of_rank(link.rank)


def _at_every_node(
    run_nodes: Callable[..., list[Result]],
    voice: Voice,
    outputs: Outputs,
    pca: DecentralizedPCA,
    problem: Problem,
    about: dict[str, Any],
) -> Result:
    """All nodes in this process, each with its own part of the data; what node 0 found."""

    def node(link: Transport) -> Result:
        own = replace(problem, shards=problem.shards.take([link.rank]))
        estimator = clone(pca).set_params(transport=link)
        return _carry_out(*_of_node(link, voice, outputs), estimator, own, about)

    return run_nodes(problem.shards.n_nodes, node)[0]


def _carry_out(
    voice: Voice, outputs: Outputs, pca: DecentralizedPCA, problem: Problem, about: dict[str, Any]
) -> Result:
    """Say what will be done, do it, say what came out and write it."""
    settle_components(pca, problem)
    link = pca.transport if isinstance(pca.transport, Transport) else None
    method, kernel = pca.choose_method(problem.shards, problem.weights, _expected(pca, problem), link)
    pca.set_params(solver=method, averaging=kernel)
    named = about["averaging"] if about["averaging"] != "auto" else name_of(kernel)
    about = {**about, "solver": method.name, "averaging": named}
    choice = _covariance_choice(pca, problem, method)
    voice.tell(facts_table(_plan(pca, problem, choice, about)))
    with voice.progress(pca.max_rounds) as show:
        pca.set_params(topology=problem.weights, callback=show).fit(problem.shards)
    result = with_set_up(pca.result_, pca.traffic_)
    total = float(pca.explained_variance_[0] / pca.explained_variance_ratio_[0])
    voice.tell(components_table(result.certificate, total))
    voice.tell(traffic_table(result.traffic, result.traffic_by_phase))
    voice.tell_end(result, pca.tol)
    about = {**_asked(pca, problem), **about, "covariance": str(choice.kind)}
    written = outputs.write(model_of(pca, problem.shards.node_names), fitted_numbers(result, total, about))
    if outputs.picture is not None:
        written.append(save_picture(_picture(pca, problem, result, total), outputs.picture))
    for path in written:
        voice.tell(f"wrote {path}")
    return result


def _known(kind: str, name: str, known: Mapping[str, T]) -> T:
    if name not in known:
        raise UnknownNameError(kind, name, known)
    return known[name]


def settle_components(pca: DecentralizedPCA, problem: Problem) -> None:
    """Put the default in the place of a K that was not given, and refuse one that is too large."""
    n_samples, n_features = problem.n_samples, problem.shards.n_features
    if pca.n_components is None:
        pca.n_components = max(1, min(DEFAULT_COMPONENTS, n_features, n_samples - 1))
    if isinstance(pca.n_components, int):
        require_components(pca.n_components, n_features, n_samples)


def _covariance_choice(pca: DecentralizedPCA, problem: Problem, solver: Solver) -> Choice:
    """How the estimator will hold the covariances."""
    if pca.covariance != "auto":
        kind = CovarianceKind(pca.covariance)
        return Choice(kind, memory_needed(problem.shards, kind), "as asked for")
    columns = solver.columns(_expected(pca, problem), problem.shards.n_features)
    return choose(problem.shards, columns, solver.traits.expected_products)


def _expected(pca: DecentralizedPCA, problem: Problem) -> int:
    """K, or a guess where a share of the variance is asked for."""
    return pca.n_components if isinstance(pca.n_components, int) else min(10, problem.shards.n_features)


def _plan(pca: DecentralizedPCA, problem: Problem, choice: Choice, about: dict[str, Any]) -> dict[str, str]:
    wanted = pca.n_components
    many = counted(wanted, "component") if isinstance(wanted, int) else f"components for {wanted:.4g} of the variance"
    return {
        **problem.facts(),
        "method": f"{about['solver']} with {about['averaging']} averaging: {many}, tol {pca.tol:g}, "
        f"at most {pca.max_rounds:,} rounds",
        "covariance": f"{choice.kind}, {readable_bytes(choice.bytes)} beyond the data ({choice.reason})",
    }


def _asked(pca: DecentralizedPCA, problem: Problem) -> dict[str, Any]:
    return {
        "data": problem.source.name,
        "n_samples": problem.n_samples,
        "n_features": problem.shards.n_features,
        "topology": problem.topology,
        "split": problem.split,
        "seed": pca.random_state,
        "tol": pca.tol,
        "max_rounds": pca.max_rounds,
        "scale": pca.scale,
        "missing": pca.missing,
    }


def _picture(pca: DecentralizedPCA, problem: Problem, result: Result, total: float) -> Figure:
    return run_picture(
        problem.weights,
        result,
        pca.tol,
        title=f"PCA of {problem.source.name}: {problem.n_samples:,} samples at {result.n_nodes} nodes",
        names=problem.shards.node_names,
        image_shape=problem.source.image_shape,
        total_variance=total,
    )
