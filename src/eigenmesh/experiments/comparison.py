"""Solvers on the same data, network and start: what each costs to reach an error, as data frames and as a picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from eigenmesh.data import make_frame
from eigenmesh.errors import InputError
from eigenmesh.estimator import DecentralizedPCA
from eigenmesh.estimator.pca import data_for, event_log
from eigenmesh.events import EventLog
from eigenmesh.experiments.claims import CostRow, cost_columns, error_columns, line_of
from eigenmesh.experiments.experiment import Method
from eigenmesh.experiments.figures import Axis, draw_errors, errors_picture
from eigenmesh.experiments.problems import ROUNDS_ALONE, Comparison
from eigenmesh.experiments.runs import UNITS, Curve, follow
from eigenmesh.fitting import ColumnData, NodeData, Request
from eigenmesh.iteration import DEFAULT_MAX_ROUNDS
from eigenmesh.report.pictures import root_figure
from eigenmesh.solvers import SOLVERS, Solver
from eigenmesh.words import canonical_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DEFAULT_SOLVERS = ("fast-pca", "deepca", "block-krylov")
DEFAULT_COMPONENTS = 5


@dataclass(frozen=True, eq=False, repr=False)
class Compared:
    """What solvers cost on the same data, network and start.

    The error is the mean over nodes and components of the squared sine of the angle to the true component. A solver
    that runs in one place on the pooled data counts one round and one matrix per iteration, and no bytes.

    Parameters
    ----------
    name, about : str
        The data, and how they are split over which network.
    methods : tuple of Method
        The solvers, under their labels.
    curves : tuple of Curve
        Cost and error of each of them after its recorded iterations.
    """

    name: str
    about: str
    methods: tuple[Method, ...]
    curves: tuple[Curve, ...]

    @property
    def runs(self) -> list[tuple[Method, list[Curve]]]:
        """The solvers, each with its curve, as the only one of several trials."""
        return [(method, [curve]) for method, curve in zip(self.methods, self.curves, strict=True)]

    @property
    def cost_rows(self) -> list[CostRow]:
        """Cost of each solver to reach each error, for tables."""
        return [CostRow.of(method, curves) for method, curves in self.runs]

    @property
    def costs(self) -> Any:
        """A row per solver and error: what it cost to reach that error in each unit, NaN for never.

        The frame is of pandas, polars or pyarrow, the first of them that is installed.
        """
        columns = cost_columns([(self.name, self.cost_rows)])
        # There is one part, and one trial.
        return make_frame({name: cells for name, cells in columns.items() if name not in ("part", "reached", "trials")})

    @property
    def errors(self) -> Any:
        """A row per solver and recorded iteration: the cost so far in each unit, and the error."""
        columns = error_columns([(self.name, self.runs)])
        return make_frame({name: cells for name, cells in columns.items() if name not in ("part", "trial")})

    def plot(self, cost: str = "rounds", *, ax: Axes | None = None) -> Figure:
        """Figure of the error of all solvers against their cost.

        Parameters
        ----------
        cost : "rounds", "matrices", "bytes" or "iterations"
            What is counted. Solvers that run in one place send nothing, and are left out against bytes.
        ax : matplotlib.axes.Axes, optional
            Where to draw, if not in a new figure.
        """
        unit = canonical_name("unit of cost", cost, UNITS)
        shown = [(method, curves) for method, curves in self.runs if not (unit == "bytes" and method.centralised)]
        if not shown:
            raise InputError("no solver of this comparison sends anything; choose another cost than bytes.")
        axis = Axis(self.name, self.about, [line_of(method, curves, unit) for method, curves in shown], unit)
        if ax is None:
            return errors_picture([axis])
        draw_errors(ax, axis)
        ax.legend(frameon=False)
        return root_figure(ax)

    def __repr__(self) -> str:
        return f"{self.name}, {self.about}\n{self.costs}"

    def _repr_html_(self) -> str:
        """The costs, as the data frame shows itself in a notebook."""
        shown: Any = getattr(self.costs, "_repr_html_", lambda: f"<pre>{self.costs}</pre>")
        return str(shown())


def compare(
    X: Any,
    solvers: Sequence[Solver | str] | Mapping[str, Solver | str] = DEFAULT_SOLVERS,
    n_components: int | None = None,
    *,
    y: Any = None,
    nodes: Any = None,
    max_rounds: int = DEFAULT_MAX_ROUNDS,
    name: str = "",
    **settings: Any,
) -> Compared:
    """Run solvers on the same data, network and start, and record their errors against their costs.

    The true components are computed from the pooled samples, so this is for research, in one process. The averaging
    is the exact one with the fewest rounds, unless ``averaging`` says otherwise.

    Parameters
    ----------
    X, y, nodes : arrays
        As for ``DecentralizedPCA.fit``.
    solvers : sequence or mapping
        Solvers, with their settings, or their names; or labels and solvers.
    n_components : int or None
        Number of components; None for five, or fewer if the data have fewer.
    max_rounds : int
        Budget of each solver.
    name : str
        What the picture calls the data.
    **settings : object
        Other parameters of ``DecentralizedPCA``, such as ``topology``, ``n_nodes``, ``split``, ``averaging`` and
        ``random_state``.

    Returns
    -------
    Compared
        ``costs`` and ``errors`` are data frames, and ``plot()`` draws error against cost.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> import eigenmesh
    >>> X, _ = load_digits(return_X_y=True)
    >>> found = eigenmesh.compare(X, ["block-krylov", "tracked-subspace"], 3, n_nodes=6, random_state=0)
    >>> [method.label for method in found.methods]
    ['block-krylov', 'tracked-subspace']
    >>> min(found.errors["error"]) < 1e-10
    True
    """
    methods = methods_of(solvers)
    for known in {"solver", "transport", "tol", "partition", "n_components"} & settings.keys():
        raise InputError(f"compare has no parameter {known} for all solvers; leave it out.")
    pca = DecentralizedPCA(n_components or DEFAULT_COMPONENTS, max_rounds=max_rounds, **settings)
    request = replace(pca._request(), at_most=n_components is None)
    with ExitStack() as stack:
        events = event_log(pca, stack, keep=False)
        data = data_for(pca, X, y, nodes, request.layout_seed, None)
        if not isinstance(data, NodeData) or isinstance(data, ColumnData):
            raise InputError("compare works on samples that are split over nodes, in one process; give such data.")
        name = name or data.name or f"{data.shards.n_features} features"
        # Nodes that are given are no split.
        data = replace(data, name=name, split=data.split if nodes is None else None)
        return compared(request, data, methods, lambda method: events)[1]


def compared(
    request: Request, data: NodeData, methods: Sequence[Method], log_of: Callable[[Method], EventLog]
) -> tuple[Comparison, Compared]:
    """The problem of a request, and what each method costs on it; ``log_of`` gives the log of events of a method."""
    # The covariance is stored in the form that suits the solver that multiplies with it most often.
    most = max((method.solver for method in methods), key=lambda solver: solver.traits.expected_products)
    comparison = Comparison.of(replace(request, solver=most, costs=ROUNDS_ALONE), data)
    curves = tuple(follow(method, comparison, request.max_rounds, log_of(method)) for method in methods)
    return comparison, Compared(data.name, about_of(data), tuple(methods), curves)


def about_of(data: NodeData) -> str:
    """The network and the split of the samples in a few words."""
    words = [data.topology, f"{data.shards.n_nodes} nodes", f"{data.split} split" if data.split else ""]
    return ", ".join(filter(None, words))


def methods_of(solvers: Sequence[Solver | str] | Mapping[str, Solver | str]) -> list[Method]:
    """Solvers under their labels; those of the same name are told apart by their settings."""
    if isinstance(solvers, str | Solver):
        raise InputError(f"solvers = {solvers!r} must be a list of solvers or names; write [{solvers!r}].")
    labelled = isinstance(solvers, Mapping)
    pairs = solvers.items() if isinstance(solvers, Mapping) else [("", one) for one in solvers]
    methods = []
    for label, given in pairs:
        solver = SOLVERS[canonical_name("solver", given, SOLVERS)]() if isinstance(given, str) else given
        methods.append(Method(label or solver.name, solver))
    if not methods:
        raise InputError("solvers is empty; give at least one.")
    if not labelled and len({method.solver for method in methods}) < len(methods):
        raise InputError("solvers has one twice with the same settings; leave one out.")
    names = Counter(method.label for method in methods)
    return [
        replace(method, label=f"{method.label} ({method.words})") if names[method.label] > 1 else method
        for method in methods
    ]
