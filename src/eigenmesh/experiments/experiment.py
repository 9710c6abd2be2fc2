"""Settings of an experiment: data, network and methods, as plain values that can be written to a file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

from eigenmesh import __version__
from eigenmesh.solvers import Solver

# Raised when results change, so that runs that were stored before are repeated.
FORMAT = 1


@dataclass(frozen=True)
class Method:
    """A solver with its settings, under the name that tables and legends use."""

    label: str
    solver: Solver

    @property
    def name(self) -> str:
        return self.solver.name

    @property
    def centralised(self) -> bool:
        """Whether it runs on the pooled covariance at a single node."""
        return self.solver.traits.centralised

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the solver that users give."""
        solver: Any = self.solver
        return {one.name: getattr(solver, one.name) for one in fields(solver) if one.repr}

    @property
    def words(self) -> str:
        """The settings as the command line writes them, without those that are off: ``step_size=0.1``."""
        given = {name: value for name, value in self.settings.items() if value is not None and value is not False}
        return ", ".join(f"{name}={value}" for name, value in given.items())


@dataclass(frozen=True)
class DataSet:
    """A data set by name, split over the nodes; ``unit``: scaled so that l_1 = 1. Synthetic data have no seed yet."""

    name: str
    split: str = "random"
    unit: bool = False

    def drawn(self, seed: int) -> str:
        """The name for one trial, in which synthetic data are drawn with this seed."""
        return f"{self.name},seed={seed}" if self.name.startswith("synthetic:") else self.name


@dataclass(frozen=True)
class Panel:
    """Methods on one kind of problem with one budget: one plot of a figure."""

    name: str
    title: str
    data: DataSet
    topology: str
    n_components: int
    rounds: int
    methods: tuple[Method, ...]
    n_nodes: int = 20


@dataclass(frozen=True)
class Experiment:
    """Panels that are shown together.

    says: the paper's statement in our words, empty if the experiment is not from the paper. facts: settings in words.
    """

    name: str
    title: str
    says: str
    facts: dict[str, str]
    panels: tuple[Panel, ...]


class TrialRun(NamedTuple):
    """One method of a panel on one trial: the unit of work and of storage."""

    panel: Panel
    method: Method
    seed: int
    trial: int

    def description(self) -> str:
        """All settings that the result depends on, as JSON."""
        data, names = self.panel.data, ("topology", "n_nodes", "n_components", "rounds")
        content = {
            "format": FORMAT,
            "version": __version__,
            "data": asdict(data),
            **{name: getattr(self.panel, name) for name in names},
            "solver": self.method.name,
            "settings": self.method.settings,
            "seed": self.seed,
            "trial": self.trial,
        }
        return json.dumps(content, sort_keys=True)
