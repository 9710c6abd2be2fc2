"""Output files of commands: checked before the work, written after it."""

from __future__ import annotations

import json
import platform
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import scipy

from eigenmesh import __version__
from eigenmesh.atomic_write import require_writable, save_json, save_text
from eigenmesh.cli.messages import Messages
from eigenmesh.data import FeatureShards, Projector, TableOptions
from eigenmesh.errors import InputError, file_errors
from eigenmesh.events import Entry
from eigenmesh.fitting import Fit, NodeData, model_of
from eigenmesh.fitting.problem import RANK, has_rank, with_rank
from eigenmesh.graphs import Weights
from eigenmesh.model import Model, write_model
from eigenmesh.report.pictures import describe_network, require_picture, result_picture, run_picture, save_picture
from eigenmesh.transports import Transport

STANDARD_OUTPUT = "-"
# Data sets whose samples are images; their components are drawn as images.
IMAGE_SHAPES = {"digits": (8, 8), "mnist": (28, 28), "cifar10": (32, 32)}
# Limits that keep a report below a megabyte.
MOST_COMPONENTS, MOST_LOADINGS, MOST_POINTS = 12, 10, 1500
# Most samples of a picture, which is larger.
MOST_DRAWN = 6000


def make_folder(folder: Path) -> Path:
    """Create a folder for output and its parents; it may exist."""
    with file_errors(f"cannot create the folder {folder}", "choose another"):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def require_apart(paths: Iterable[Path], inputs: Iterable[str]) -> None:
    """Raise before any work if a file could not be written later, or would overwrite another output or an input."""
    taken = {str(Path(name).resolve()): "an input" for name in inputs}
    for path in paths:
        for other, what in taken.items():
            if _may_be_the_same(str(path.resolve()), other):
                raise InputError(f"{path} is {what} already; choose another name.")
        taken[str(path.resolve())] = "an output"
        require_writable(path)


def require_report(path: Path) -> Path:
    """Raise before any work if a report cannot be written there later."""
    if path.suffix.lower() != ".html":
        raise InputError(f"--report {path} must end in .html.")
    return require_writable(path)


class View(NamedTuple):
    """What a picture of scores shows: which two components, and whether groups have ellipses."""

    components: tuple[int, int] = (1, 2)
    ellipses: bool = False

    def among(self, n_components: int, messages: Messages) -> View:
        """The same if so many components were fitted; with a warning, the first two if not."""
        if n_components < 2 or max(self.components) <= n_components:
            return self
        few = f"--plot-components {','.join(map(str, self.components))}, but there are {n_components} components"
        messages.alert(f"note: {few}; the picture shows the first two.", style="yellow")
        return self._replace(components=(1, 2))


FIRST_TWO = View()


@dataclass(frozen=True)
class Outputs:
    """Where a fit writes the model, the numbers, the picture, the events, the report, and a picture of its network.

    None for no such file. ``view`` is what the picture shows, and ``table`` how the samples are read, which the model
    remembers.
    """

    model: Path | None
    numbers: str | None
    picture: Path | None
    events: Path | None
    report: Path | None = None
    network: Path | None = None
    view: View = FIRST_TWO
    table: TableOptions = field(default_factory=TableOptions)

    def check(self, inputs: Sequence[str]) -> None:
        """Raise now if any file could not be written later, or would overwrite another output or an input."""
        require_apart([Path(name) for name in self.files.values() if name not in (None, STANDARD_OUTPUT)], inputs)
        for picture in filter(None, (self.picture, self.network)):
            require_picture(picture)
        if self.report is not None:
            require_report(self.report)

    @property
    def files(self) -> dict[str, Any]:
        """The file of each field that has one, or None."""
        return {name: value for name, value in vars(self).items() if name not in ("view", "table")}

    @property
    def has_rank(self) -> bool:
        return any(has_rank(str(name)) for name in self.files.values())

    def of_rank(self, rank: int) -> Outputs:
        """The files that one node writes: files with {rank} in their name, and at node 0 all others too."""
        own = {name: file if has_rank(str(file)) or rank == 0 else None for name, file in self.files.items()}
        named: dict[str, Any] = {
            name: None if file is None else type(file)(with_rank(str(file), rank)) for name, file in own.items()
        }
        return replace(self, **named)

    def finish(
        self,
        messages: Messages,
        fitted: Fit,
        numbers: dict[str, Any],
        entries: Sequence[Entry],
        title: str,
        facts: dict[str, str],
        data: NodeData | None = None,
        true_sines: np.ndarray | None = None,
    ) -> None:
        """Write every file of a fit, print its result, and say what was written.

        ``data`` are the samples, if they are still here: their name says whether they are images, and some of their
        scores are shown.
        """
        result, written = fitted.result, []
        model = replace(model_of(fitted), read_with=self.table.remembered)
        shape = None if data is None else IMAGE_SHAPES.get(data.name)
        if self.model is not None:
            write_model(self.model, model)
            written.append(self.model)
        if self.numbers not in (None, STANDARD_OUTPUT):
            save_json(self.numbers, numbers)
            written.append(Path(self.numbers))
        heading = f"{title}: {fitted.moments.n_samples:,} samples at {result.n_nodes} nodes"
        if self.picture is not None:
            scores, labels = (None, None) if data is None else shown_scores(fitted, data, MOST_DRAWN)
            view = self.view.among(len(model.components), messages)
            figure = picture_of(model, view, scores, labels, shape, heading)
            written.append(save_picture(figure, self.picture))
        if self.network is not None:
            names, weights = fitted.facts.node_names, cast(Weights, fitted.weights)
            figure = run_picture(weights, result, fitted.request.tol, title=heading, names=names)
            written.append(save_picture(figure, self.network))
        if self.report is not None:
            found = components_of(model, result.certificate.error_bounds.tolist(), shape)
            if data is not None and data.transport is None and len(result.components) >= 2:
                found["scores"] = _points(fitted, data)
            # A seed that was drawn has to be given to repeat the fit.
            drawn = [] if fitted.request.seed is not None else ["--seed", str(result.seed)]
            written.append(save_page(self.report, title, entries, drawn, components=found, facts=facts))
        # Loadings of single pixels say little; components of images are shown in the picture.
        messages.print_fit(fitted, true_sines, loadings=shape is None)
        if self.numbers == STANDARD_OUTPUT:
            print(json.dumps(numbers, indent=2, allow_nan=False))
        for path in (*written, *([] if self.events is None else [self.events])):
            messages.print(f"wrote {path}")


def of_node(link: Transport, messages: Messages, outputs: Outputs) -> tuple[Messages, Outputs]:
    """Messages and outputs of one node: only node 0 prints, and only it writes files without {rank} in their name."""
    return (messages if link.rank == 0 else Messages.silent()), outputs.of_rank(link.rank)


def _may_be_the_same(one: str, other: str) -> bool:
    """Whether two names can mean the same file at some node."""
    patterns = [r"\d+".join(map(re.escape, RANK.sub("\0", name).split("\0"))) for name in (one, other)]
    plain = [RANK.sub("0", name) for name in (one, other)]
    return any(re.fullmatch(pattern, name) for pattern, name in zip(patterns, reversed(plain), strict=True))


def wait_until_all_have_written(transport: Transport | None) -> None:
    """Wait for all nodes: a launcher ends all of them when the first ends with a status that is not 0."""
    if transport is not None:
        transport.all_gather(np.zeros(1))


def title_of(data: NodeData) -> str:
    """Title of pages and pictures."""
    return f"PCA of {data.name}"


def facts_of(data: NodeData, n_samples: float) -> dict[str, str]:
    """The samples and their network in words; ``n_samples`` counts those of all nodes."""
    shards = data.shards
    by_columns = isinstance(shards, FeatureShards)
    what = "columns" if by_columns else "samples"
    sizes = [block.n_features if by_columns else block.n_rows for block in shards.blocks]
    each = f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}"
    where = "per node" if len(sizes) == shards.n_nodes else f"at node {shards.ids[0]}"
    return {
        "data": f"{data.name}: {n_samples:,} samples of {shards.n_features:,} features",
        "split": f"{data.split}: {each} {what} {where}",
        # No option names a network that changes.
        "network": f"{data.topology}: {describe_network(cast(Weights, data.weights))}",
    }


def save_page(path: Path, title: str, entries: Sequence[Entry], drawn: Sequence[str] = (), **about: Any) -> Path:
    """Write the page of these events; ``about`` is passed to ``report_page``.

    The page says how to repeat the run: the command with the ``drawn`` options, and the versions of what it uses.
    """
    from eigenmesh.report.page import report_page

    python = platform.python_version()
    versions = f"eigenmesh {__version__}, Python {python}, NumPy {np.__version__}, SciPy {scipy.__version__}."
    repeat = {"commands": [shlex.join(["eigenmesh", *sys.argv[1:], *drawn])], "versions": versions}
    return save_text(path, report_page(title, entries, repeat=repeat, **about))


def components_of(model: Model, bounds: Sequence[float], shape: tuple[int, int] | None = None) -> dict[str, Any]:
    """What a page shows of components: shares of the variance, bounds, and images or the largest loadings."""
    found: dict[str, Any] = {"shares": model.explained_variance_ratio.tolist(), "bounds": list(bounds)}
    first = model.components[:MOST_COMPONENTS]
    if shape is not None:
        return {**found, "shape": shape, "images": [[float(f"{value:.3g}") for value in one] for one in first]}
    names = model.feature_names or [f"feature {number}" for number in range(first.shape[1])]
    orders = np.argsort(-np.abs(first), axis=1, kind="stable")[:, :MOST_LOADINGS]
    pairs = zip(first, orders, strict=True)
    return {**found, "loadings": [[(names[at], float(one[at])) for at in order] for one, order in pairs]}


def picture_of(
    model: Model,
    view: View,
    scores: np.ndarray | None,
    labels: Any,
    shape: tuple[int, int] | None = None,
    title: str = "",
) -> Any:
    """The picture of a model and of some scores."""
    more: dict[str, Any] = {"components": view.components, "ellipses": view.ellipses, "image_shape": shape}
    shares, names = model.explained_variance_ratio, model.feature_names
    return result_picture(shares, model.components, names, scores=scores, labels=labels, title=title, **more)


def shown_scores(fitted: Fit, data: NodeData, most: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Scores (n, K) of about ``most`` samples of the nodes in this process, evenly spread, and the group of each.

    The groups are the labels of the samples, or else their nodes if these have names.
    """
    shards, moments = data.shards, fitted.moments
    if fitted.scores is not None:
        every = max(1, -(-len(fitted.scores) // most))
        return fitted.scores[::every], None if data.labels is None else data.labels[::every]
    onto = Projector(fitted.components, moments.mean, moments.scale, fills=True)
    each, scores, groups = max(1, most // len(shards.blocks)), [], []
    for node, block in zip(shards.ids, shards.blocks, strict=True):
        chosen = block.thinned(min(each, block.n_rows))
        scores.append(onto.scores_of(chosen, None, data.name))
        name = str(node) if shards.node_names is None else shards.node_names[node]
        groups.append(np.full(chosen.n_rows, name) if data.labels is None else data.labels[chosen.rows])
    named = data.labels is not None or shards.node_names is not None
    return np.concatenate(scores), np.concatenate(groups) if named else None


def _points(fitted: Fit, data: NodeData) -> dict[str, Any]:
    """Scores of some samples of every node on the first two components."""
    shards = data.shards
    names = list(shards.node_names or map(str, range(shards.n_nodes)))
    points = []
    for node in shards.ids if fitted.scores is None else shards.ids[:1]:
        own = replace(data, shards=shards.take([node])) if fitted.scores is None else data
        scores, _ = shown_scores(fitted, own, max(1, MOST_POINTS // shards.n_nodes))
        points += [[float(f"{x:.4g}"), float(f"{y:.4g}"), node] for x, y in scores[:, :2]]
    # Where columns are split, a sample is at all nodes.
    return {"nodes": names if fitted.scores is None else ["all nodes"], "points": points}
