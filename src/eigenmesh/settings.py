"""The one table of settings, and the request for a fit that is made from them.

Every setting of an estimator, of ``eigenmesh fit`` and of the table ``[settings]`` of sites has a row here: its name,
type, default, allowed values, one sentence, where it may be given, and whether all nodes must have the same value. The
constructors of estimators with their checks and documentation, options of the command line, the files of sites, what
nodes compare before a fit, and the tables of the documentation are derived from the rows.
"""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypeVar, dataclass_transform, get_args

import numpy as np

from eigenmesh.arrays import is_sparse
from eigenmesh.averaging import AVERAGINGS, Averaging
from eigenmesh.data import SPLITS, CovarianceKind, Missing, Scaling, Split, missing_policy
from eigenmesh.errors import AtFirstUse, InputError, UnknownNameError
from eigenmesh.events import BatchChecked, Listener
from eigenmesh.graphs import TOPOLOGIES, WEIGHTS, NetworkSequence, Weights
from eigenmesh.graphs.topologies import is_edge_list
from eigenmesh.iteration import DEFAULT_MAX_ROUNDS, DEFAULT_TOL, require_components, require_settings
from eigenmesh.solvers import SOLVERS, Solver
from eigenmesh.transports import TRANSPORTS, Transport
from eigenmesh.words import canonical_name, find_name, lookup

if TYPE_CHECKING:
    import networkx as nx
else:
    nx = AtFirstUse("networkx")


Privacy: TypeAlias = Literal["open", "masked"]
Partition: TypeAlias = Literal["samples", "features"]
OnLoss: TypeAlias = Literal["wait", "abort", "continue"]
# Drawn seeds start here, so that a drawn seed that is passed in again is recognised.
DRAWN_FROM = 1 << 62
# Longest value in a message, so that no large array is printed.
SHOWN_CHARACTERS = 60
# Up to so many names are written out as the type of a setting.
FEW_NAMES = 5
# In a row: at this place the setting is called as in Python; an option has hyphens.
SAME = "="

T = TypeVar("T")


@dataclass(frozen=True)
class Costs:
    """Speed and size of nodes and links, for the planner; set what you know about your own network.

    Attributes
    ----------
    latency_s : float
        Seconds per round between neighbours, however small the message.
    bandwidth_bytes_s : float
        Bytes that a node can send per second.
    flops_s : float
        Floating-point operations per second of a node.
    memory_bytes : float
        Bytes that a node may use in addition to its data.
    """

    latency_s: float = 0.02
    bandwidth_bytes_s: float = 12.5e6
    flops_s: float = 2e10
    memory_bytes: float = 8e9

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name == "latency_s" and value == 0:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not value > 0:
                raise InputError(f"{name} = {value!r} must be a number above 0.")


@dataclass(frozen=True)
class Allowed:
    """Values that a setting may have.

    Attributes
    ----------
    words : str
        What they are, for messages and tables.
    accepts : callable
        Whether a value is one of them.
    written : bool
        Whether they can be written in a file; objects of Python cannot.
    python : type
        The type of the values that can.
    kind, known : str, tuple of str
        For names: what they are names of, and all of them. The error for an unknown name suggests the nearest.
    type_words : str
        Their type, for the documentation; by default the name of ``python``, or the words for objects.
    """

    words: str
    accepts: Callable[[Any], bool]
    written: bool = True
    python: type = str
    kind: str = ""
    known: tuple[str, ...] = ()
    type_words: str = ""

    def __post_init__(self) -> None:
        default = self.python.__name__.lower() if self.written else self.words.removeprefix("a ").removeprefix("an ")
        object.__setattr__(self, "type_words", self.type_words or default)


def whole(least: int, most: int | None = None) -> Allowed:
    """Whole numbers from ``least``. True, which to Python is 1, is none: no user means that."""
    bounds = f"of at least {least}" if most is None else f"from {least} to {most}"

    def accepts(value: Any) -> bool:
        if not isinstance(value, int | np.integer) or isinstance(value, bool):
            return False
        return least <= int(value) and (most is None or int(value) <= most)

    return Allowed(f"a whole number {bounds}", accepts, python=int)


def between(above: float, below: float) -> Allowed:
    """Numbers strictly between two bounds."""
    return Allowed(
        f"a number strictly between {above:g} and {below:g}",
        lambda value: _is_number(value) and above < value < below,
        python=float,
    )


def named(kind: str, known: Iterable[str], takes_argument: bool = False) -> Allowed:
    """One of some names, in any spelling; with ``takes_argument`` a colon and more may follow."""
    known = tuple(known)

    def accepts(value: Any) -> bool:
        if not isinstance(value, str):
            return False
        return find_name(value.partition(":")[0] if takes_argument else value, known) is not None

    written_out = [] if takes_argument or len(known) > FEW_NAMES else [f'"{name}"' for name in known]
    words = f"a name: {', '.join(sorted(known))}"
    return Allowed(words, accepts, kind=kind, known=known, type_words=_alternatives(written_out))


def instances(words: str, *kinds: type) -> Allowed:
    """Objects of these classes, but not the classes themselves."""
    return Allowed(words, lambda value: isinstance(value, kinds) and not isinstance(value, type), written=False)


def _alternatives(words: Sequence[str]) -> str:
    """Words with commas and, before the last one, "or"."""
    return " or ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_)


def _is_matrix(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    if is_sparse(value):
        return True
    try:
        return np.asarray(value, dtype=float).ndim == 2
    except (TypeError, ValueError):
        return False


FLAG = Allowed("True or False", lambda value: isinstance(value, bool | np.bool_), python=bool)
NOTHING = Allowed("None", lambda value: value is None, written=False)
CALLABLE = Allowed("a callable", lambda value: callable(value), written=False)
A_NETWORK = Allowed(
    "a networkx graph, Weights, a NetworkSequence",
    lambda value: isinstance(value, (Weights, NetworkSequence, nx.Graph)),
    written=False,
)
LINKS = Allowed("a list of pairs of nodes", is_edge_list, written=False)
MATRIX = Allowed("an (M, M) matrix", _is_matrix, written=False)
RANDOM = instances("a NumPy random generator", np.random.RandomState, np.random.Generator)
PATH = Allowed("the path of a folder", lambda value: isinstance(value, str | os.PathLike), python=Path)
STARTED = [name for name, kind in TRANSPORTS.items() if kind.starts_by_name]
SECONDS = between(0, 1e9)


@dataclass(frozen=True)
class Setting:
    """A row of the table.

    Attributes
    ----------
    default : object
        The value if none is given.
    allowed : sequence of Allowed
        It has one of these kinds of values.
    text : str
        What it is, in one sentence.
    more : str
        Further sentences, for the documentation of estimators.
    command : str
        Its option of ``eigenmesh fit``, which is called like it if the row does not say otherwise; "" if there is none.
    brief : str
        The same in fewer words, for the help of the command; by default the list of names, or the sentence.
    site : str
        Its field in the table ``[settings]`` of sites, ``SAME`` if it is called like it; "" if there is none.
    agree : bool
        Whether all nodes must have the same value. Otherwise each node chooses for itself.
    elsewhere : mapping
        Defaults that are not ``default``, by where it is given: "command" or "site".
    because : str
        Why they are not.
    """

    default: Any
    allowed: Sequence[Allowed]
    text: str
    more: str = ""
    command: str = SAME
    brief: str = ""
    site: str = ""
    agree: bool = True
    elsewhere: Mapping[str, Any] = field(default_factory=dict)
    because: str = ""

    def __set_name__(self, table: type, name: str) -> None:
        for place, same in (("command", f"--{name.replace('_', '-')}"), ("site", name)):
            if getattr(self, place) == SAME:
                object.__setattr__(self, place, same)

    def default_at(self, front: str) -> Any:
        """The default for the "estimator", the "command" or the "site"."""
        return self.elsewhere.get(front, self.default)

    def require(self, name: str, value: Any) -> None:
        """Raise InputError unless the value is allowed."""
        if not any(one.accepts(value) for one in self.allowed):
            raise self.refusal(name, value)

    def refusal(self, name: str, value: Any) -> InputError:
        """The error for a value that is not allowed: with the value, what is allowed, and the nearest name."""
        names = next((one for one in self.allowed if one.known), None)
        if isinstance(value, str) and names is not None:
            return UnknownNameError(names.kind, value, names.known)
        if isinstance(value, type) and any(not one.written and one is not NOTHING for one in self.allowed):
            return InputError(
                f"{name} = {value.__name__} is a class; give an object of it, such as {value.__name__}()."
            )
        shown = " ".join(repr(value).split())
        shown = shown if len(shown) <= SHOWN_CHARACTERS else f"{shown[:SHOWN_CHARACTERS]}..."
        return InputError(f"{name} = {shown} must be {self.allowed_words()}.")

    def allowed_words(self, written: bool = False) -> str:
        """What is allowed, in words; with ``written`` only what can be written in a file."""
        # The list of names is the longest, so it comes last.
        chosen = [one for one in self.allowed if one.written or not written]
        return _alternatives([one.words for one in sorted(chosen, key=lambda one: bool(one.known))])

    @property
    def type_words(self) -> str:
        """Its type, for the documentation of estimators."""
        return _alternatives([one.type_words for one in self.allowed])


def setting(
    allowed: Sequence[Allowed], text: str, more: str = "", *, default: Any, kw_only: bool = True, **about: Any
) -> Any:
    """A row of a table below. To type checkers it is the default of a parameter, given by name if ``kw_only``."""
    return Setting(default, allowed, text, more, **about)


def of_sites(allowed: Sequence[Allowed], text: str, *, default: Any, agree: bool = True) -> Any:
    """A row of the table that only the files of sites have."""
    return Setting(default, allowed, text, command="", site=SAME, agree=agree)


@dataclass_transform(kw_only_default=True, field_specifiers=(setting,))
def takes_rows(kind: type[T]) -> type[T]:
    """Mark a class whose rows, its own and inherited ones, are the parameters of its constructor."""
    return kind


@takes_rows
class OfEveryFit:
    """Parameters of both estimators, in their order."""

    n_components: int | float | None = setting(
        [whole(1), between(0, 1), NOTHING],
        "Number of components K or, between 0 and 1, the share of the variance to explain.",
        "None for min(N - 1, d).",
        default=None,
        kw_only=False,
        command="--components",
        site=SAME,
        elsewhere={"command": 5, "site": 5},
        because="The command prints the components, and peers need a bound on their messages: a few, not all.",
    )
    solver: str | Solver = setting(
        [named("solver", ["auto", *SOLVERS]), instances("a Solver object", Solver)],
        'Name of a solver; "auto" is the fastest one for data and network by the planner.',
        'A solver object such as ``FastPCA(step_size=0.7)`` has settings of its own. "auto" takes one that '
        "sums up covariances only where that reveals no more, or on one cluster.",
        default="auto",
        site=SAME,
    )
    topology: Any = setting(
        [named("topology", TOPOLOGIES), A_NETWORK, LINKS, MATRIX],
        "The network: a name, its links, a graph, or a matrix.",
        'A name is one for ``eigenmesh.graphs.topology``; links are such as [("oslo", "bergen"), ..] or [(0, 1), '
        "..]; a matrix is one of 0 and 1, or of weights. Nodes with the names of the parts are matched to them.",
        default="erdos_renyi",
    )
    n_nodes: int | None = setting(
        [whole(1), NOTHING],
        "Number of nodes M, if the topology is a name.",
        "None: as many as the data have parts; for one array 10, or fewer so that each node has at least two samples.",
        default=None,
        command="--nodes",
        agree=False,
    )
    weights: str = setting(
        [named("weights", ["auto", *WEIGHTS])],
        'Rule for the weights of a graph; "auto" is metropolis or, for one-way links, balanced.',
        'Rules are "metropolis", "max_degree", "best_constant"; for one-way links "balanced", "push", "pull".',
        default="auto",
    )
    averaging: str | Averaging = setting(
        [named("averaging", ["auto", *AVERAGINGS]), instances("an Averaging object", Averaging)],
        'How exact averages are computed; "auto" is the fastest.',
        'Names are "tree", "factored", "polynomial", "chebyshev", "gossip"; "integers" for the same bits on any '
        'network and engine. "auto" never takes "factored", whose search may take a minute.',
        default="auto",
    )
    privacy: Privacy = setting(
        [named("privacy", get_args(Privacy))],
        '"masked": only sums over all nodes are revealed; "open": neighbours see the numbers that they sum.',
        "Masks need at least three nodes, and a solver that only averages; they take the rounds and bytes of "
        "integer averages.",
        default="open",
        brief="open (default), or masked: only sums over all nodes are revealed.",
        site=SAME,
        elsewhere={"site": "masked"},
        because="Sites belong to different owners. Two sites must write what they want, as masks hide nothing there.",
    )
    split: str | Split = setting(
        [named("split", SPLITS, takes_argument=True), instances("a Split object", Split)],
        'How one array is split over the nodes: "random", "contiguous", "label", "dirichlet:0.1" or "sizes:10,20".',
        '"label" and "dirichlet" split by y, or by the column of labels.',
        default="random",
        agree=False,
    )
    tol: float = setting(
        [between(0, 1)],
        "Bound on sin(angle) between every component at every node and the true one.",
        default=DEFAULT_TOL,
        brief="Bound on the sine of angles to the truth.",
        site=SAME,
    )
    max_rounds: int = setting([whole(1)], "Budget of neighbour exchanges.", default=DEFAULT_MAX_ROUNDS, site=SAME)
    scale: Scaling = setting(
        [FLAG, named("scale", ["binomial"])],
        "Divide each feature by its pooled standard deviation: correlation PCA.",
        '"binomial" is for genotypes, 0, 1 or 2 copies of an allele: divide by sqrt(2 p (1 - p)) with the pooled '
        "frequency p; missing entries count as 2 p, and variants that are constant over all samples are left out.",
        default=False,
        command="--scale, --binomial",
        site=SAME,
    )
    whiten: bool = setting([FLAG], "Give ``transform`` outputs unit variance.", command="", default=False, agree=False)
    missing: Missing = setting(
        [named("policy for missing entries", get_args(Missing))],
        "NaN and infinite entries: an error that names the first, or the pooled mean instead.",
        default="error",
        brief="Empty and infinite entries: an error (default), or set to the pooled mean.",
        site=SAME,
    )
    device: str | None = setting(
        [Allowed("the name of a device", lambda value: isinstance(value, str)), NOTHING],
        'Device of the arrays: "cpu", "cuda", "cuda:1" for PyTorch.',
        "None for that of the samples, which is NumPy unless they are on a GPU.",
        default=None,
        brief="cpu, cuda, cuda:1 for PyTorch; NumPy if left out.",
        agree=False,
    )
    transport: Transport | str | None = setting(
        [named("transport", STARTED), instances("a Transport object", Transport), NOTHING],
        "Real messages instead of a simulation in this process.",
        'None simulates all nodes in this process; "threads" runs each of them in a thread. Otherwise this '
        "process is one node: it gets only the samples of this node, and all processes must call the estimator in "
        "the same way. A "
        "name joins the processes that the engine has started.",
        default=None,
        agree=False,
    )
    random_state: Any = setting(
        [whole(0, 2**63 - 1), RANDOM, NOTHING],
        "Seed of the split, the graph and the start; by default the nodes draw that of the start together.",
        "They draw it at run time, so that the data cannot depend on it; split and graph are then always the same. "
        "``result_.seed`` repeats the fit.",
        default=None,
        command="--seed",
        site="seed",
    )
    costs: Costs | None = setting(
        [instances("a Costs object", Costs), NOTHING],
        'Latency, bandwidth, speed and memory of the nodes, for the choices of "auto".',
        default=None,
    )
    on_event: Listener | None = setting(
        [CALLABLE, NOTHING],
        "Called with every ``Entry`` of the event log.",
        '``eigenmesh.events`` has some: ``JsonlWriter("run.jsonl")`` writes them to a file, and '
        "``on_record(function)`` calls a function with every ``Record`` of the history.",
        default=None,
        command="",
        agree=False,
    )
    verbose: bool = setting(
        [FLAG],
        "Show live progress: on standard error, or in Jupyter and marimo as the page of the run.",
        default=False,
        command="",
        agree=False,
    )


@takes_rows
class OfOneFit(OfEveryFit):
    """Parameters of DecentralizedPCA."""

    partition: Partition = setting(
        [named("partition", get_args(Partition))],
        "What is split over the nodes: samples of the same features, or features of the same samples in the same "
        "order.",
        'With "features", parts and ``split`` are of columns, and all nodes learn the scores of all samples; a '
        "process that is one node has only the loadings of its own columns.",
        default="samples",
        brief="What the nodes split: samples (default), or features (columns of the same samples).",
        site=SAME,
    )
    covariance: str = setting(
        [named("covariance", ["auto", *(kind.value for kind in CovarianceKind)])],
        "How products with a node's covariance are computed.",
        default="auto",
        agree=False,
    )


@takes_rows
class OfAStream(OfEveryFit):
    """Parameters of StreamingPCA."""

    forgetting: float = setting(
        [Allowed("a number above 0, at most 1", lambda value: _is_number(value) and 0 < value <= 1, python=float)],
        "Factor by which the weight of a sample shrinks with each later batch; 1 for none.",
        default=1.0,
        brief="Factor on the weight of a sample per later batch.",
    )
    window: int | None = setting(
        [whole(1), NOTHING],
        "Number of batches whose samples count; all by default.",
        "The nodes store their rows.",
        default=None,
        brief="Only the last N batches count.",
    )
    store: str | os.PathLike[str] | None = setting(
        [PATH, NOTHING],
        "Folder where rows are stored in files instead of d x d moments in memory; the result is the same.",
        "None: moments if those of the nodes in this process fit into 2 GiB, else the folder for temporary files. "
        "The files are as large as the rows that count, and are deleted with the estimator.",
        default=None,
        brief="Keep rows in files there instead of moments in memory.",
        agree=False,
    )
    averages_per_batch: int | None = setting(
        [whole(2), NOTHING],
        "Budget of averages per batch; by default as many as ``tol`` needs.",
        "The certificate states the accuracy that was reached.",
        default=None,
        brief="Budget; by default as many as --tol needs.",
    )
    on_alarm: Callable[[BatchChecked], Any] | None = setting(
        [CALLABLE, NOTHING],
        "Called with ``batch_`` if a batch differs from those before it.",
        default=None,
        command="",
        agree=False,
    )


class OfSites:
    """Settings that only the files of sites have."""

    min_samples: int = of_sites(
        [whole(0)],
        "With fewer samples at all sites together, the run ends after counting them, before anything else is sent.",
        default=0,
    )
    min_samples_per_site: int = of_sites(
        [whole(0)], "A site with fewer samples does not take part; lower it only on purpose.", default=10
    )
    on_loss: OnLoss = of_sites(
        [named("on_loss", get_args(OnLoss))],
        "When a site is lost, the run waits to be resumed, ends for all, or continues without that site.",
        default="wait",
    )
    patience_s: float = of_sites([SECONDS], "How long to wait for a silent neighbour.", default=300.0, agree=False)
    join_s: float = of_sites([SECONDS], "How long to wait for a neighbour to start.", default=3600.0, agree=False)
    round_s: float = of_sites(
        [SECONDS], "How long a neighbour may be alive without sending numbers.", default=3600.0, agree=False
    )
    every_s: float = of_sites(
        [SECONDS],
        "In a followed run, a site with new samples begins the next batch after this time.",
        default=60.0,
        agree=False,
    )
    batch_rows: int = of_sites(
        [whole(0)],
        "In a followed run, a batch also begins as soon as there are this many new samples; 0 for time alone.",
        default=0,
        agree=False,
    )
    min_new_samples: int = of_sites(
        [whole(1)],
        "In a followed run with masks, a batch counts only if at least three sites have this many new samples each.",
        default=10,
    )


def rows_of(table: type) -> dict[str, Setting]:
    """The rows of a table by name, in order, those that it inherits first."""
    found = (pair for base in reversed(table.__mro__) for pair in vars(base).items())
    return {name: value for name, value in found if isinstance(value, Setting)}


ONE_FIT, A_STREAM = rows_of(OfOneFit), rows_of(OfAStream)
SETTINGS = {**ONE_FIT, **A_STREAM, **rows_of(OfSites)}
AT_SITES = {row.site: row for row in SETTINGS.values() if row.site}


@dataclass(frozen=True)
class Request:
    """Everything that decides a fit, apart from the data and the network.

    The fields are settings of the table, and mean what they mean there.

    Attributes
    ----------
    at_most : bool
        True if a K above min(N - 1, d) is lowered to it instead of raising an error.
    solver, averaging, covariance : Solver, Averaging, CovarianceKind or None
        None for "auto".
    seed : int or None
        Seed of the start; None for one that all nodes draw together, so that the data cannot depend on it. A drawn seed
        is ``DRAWN_FROM`` or more.
    missing : "error" or "mean"
        Always "mean" if the scale is "binomial".
    """

    n_components: int | float | None = None
    at_most: bool = False
    solver: Solver | None = None
    averaging: Averaging | None = None
    tol: float = DEFAULT_TOL
    max_rounds: int = DEFAULT_MAX_ROUNDS
    scale: Scaling = False
    missing: Missing = "error"
    covariance: CovarianceKind | None = None
    device: str | None = None
    seed: int | None = None
    costs: Costs = field(default_factory=Costs)
    privacy: Privacy = "open"
    min_samples: int = 0

    def __post_init__(self) -> None:
        require_settings(self.tol, self.max_rounds)
        object.__setattr__(self, "privacy", canonical_name("privacy", self.privacy, get_args(Privacy)))
        object.__setattr__(self, "missing", "mean" if self.scale == "binomial" else missing_policy(self.missing))

    @classmethod
    def parse(cls, **words: Any) -> Self:
        """From settings as users write them, each of which is checked.

        Parameters
        ----------
        **words : object
            Settings by name: those that are fields of a request, ``random_state`` for its seed, and ``at_most``. Those
            that are left out have their defaults.
        """
        for name, value in words.items():
            if name in SETTINGS:
                SETTINGS[name].require(name, value)
        settings: dict[str, Any] = {name: parse(name, value) for name, value in words.items()}
        settings["seed"] = parse_seed(settings.pop("random_state", None))
        settings["costs"] = settings.get("costs") or Costs()
        scale = settings.get("scale", False)
        settings["scale"] = "binomial" if isinstance(scale, str) else bool(scale)
        return cls(**settings)

    @property
    def layout_seed(self) -> int:
        """Seed of split and graph: the same for every drawn start, whether drawn now or in the run that is repeated."""
        return 0 if self.seed is None or self.seed >= DRAWN_FROM else self.seed

    @property
    def masked(self) -> bool:
        """Whether only sums over all nodes are revealed."""
        return self.privacy == "masked"

    def components(self, n_samples: int | None, n_features: int | None) -> int | float:
        """K, or the share of the variance, for N samples of d features; None for what is not known yet."""
        n_samples, n_features = n_samples or sys.maxsize, n_features or sys.maxsize
        wanted, most = self.n_components, min(n_samples - 1, n_features)
        if wanted is None:
            return most
        if isinstance(wanted, float | np.floating):
            if not 0 < wanted < 1:
                raise InputError(f"n_components = {wanted!r} must be whole, or a share strictly between 0 and 1.")
            return float(wanted)
        if self.at_most and isinstance(wanted, int):
            wanted = max(1, min(wanted, most))
        require_components(wanted, n_features, n_samples)
        return int(wanted)


# The settings from which a request is made, by the names that users write.
OF_REQUESTS = {"random_state", *(one.name for one in fields(Request))} & set(SETTINGS)


# What names stand for, as functions that make it.
MAKERS: dict[str, Mapping[str, Callable[[], Any]]] = {
    "solver": SOLVERS,
    "averaging": AVERAGINGS,
    "covariance": {kind.value: partial(CovarianceKind, kind) for kind in CovarianceKind},
}


def parse(name: str, value: Any) -> Any:
    """The value of a setting from what users write: what a name stands for, None for "auto", else the value itself."""
    if name not in MAKERS or not isinstance(value, str):
        return value
    return lookup(name, value, {"auto": lambda: None, **MAKERS[name]})()


def parse_seed(random_state: Any) -> int | None:
    """The seed that all nodes share; None if they draw one together at run time."""
    if random_state is None:
        return None
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    return int(random_state.integers(2**31))
