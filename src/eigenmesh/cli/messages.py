"""Output of commands: results on standard output; progress, warnings and errors on standard error."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.text import Text

from eigenmesh.data import TableOptions
from eigenmesh.events import EventLog, Listener, event_log
from eigenmesh.fitting import largest_loadings
from eigenmesh.report.tables import components_table, loadings_table, rounds_told, traffic_table
from eigenmesh.settings import SETTINGS

if TYPE_CHECKING:
    import numpy as np

    from eigenmesh.fitting import Fit


# Seconds between two lines of progress if the output is not a terminal.
LINE_EVERY_S = 10.0

# Environment variable: the folder in which every launched node records its PID, because mpiexec and torchrun may name a
# failed process only by that.
NODES_FOLDER = "EIGENMESH_NODES"

# Names of settings in the library, and the matching options of the command line.
OPTION_NAMES = {
    # Names of one word may be words of a sentence.
    **{name: row.command.split(", ")[0] for name, row in SETTINGS.items() if row.command and "_" in name},
    'pass missing="mean"': "use --missing mean",
    "(drop)": "(--table drop=NAME)",
    **{name: f"--table {name}" for name in ("id_column", "label_column", "weight_column", "categories", "na_values")},
    "scale=True": "--scale",
    "weights=": "--weights ",
    "averaging=": "--averaging ",
}


# An option of tables with its value, as Python has it, and several of them.
TEXT = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
LIST = rf"\[(?:{TEXT}|\d+)(?:, (?:{TEXT}|\d+))*\]"
VALUE = rf"(?:{TEXT}|\d+|{LIST}|{{{TEXT}: {LIST}(?:, {TEXT}: {LIST})*}})"
GIVEN = rf"\b(?:{'|'.join(one.name for one in fields(TableOptions))})={VALUE}"
# Signs that are hard to write in a shell.
SIGNS = {"\t": "tab", " ": "space"}


def option_names(message: str) -> str:
    """The message with the names of settings as options, and ``drop=["note"]`` as ``--table drop=note``."""
    longest = sorted(OPTION_NAMES, key=len, reverse=True)
    names = "|".join(rf"(?<![\w/-]){re.escape(name)}(?![\w/]|\.\w)" for name in longest)
    # What is an option already, and a list of names that one may type.
    kept = r"--table \w+|there are: [^.]*"

    def worded(found: re.Match[str]) -> str:
        if re.fullmatch(kept, found.group()):
            return found.group()
        if found.group() in OPTION_NAMES:
            return OPTION_NAMES[found.group()]
        said = [pair for given in re.findall(GIVEN, found.group()) for pair in _said(given)]
        texts = [(name, ",".join(map(str, value)) if isinstance(value, list) else str(value)) for name, value in said]
        words = [f"--table {_quoted(f'{name}={SIGNS.get(text, text)}')}" for name, text in texts]
        # An entry that is missing is an error unless the fit says what to do with it.
        return " ".join(words + ["--missing mean"] * ("na_values" in dict(said)))

    return re.sub(rf"{kept}|{GIVEN}(?:, {GIVEN})*|{names}", worded, message)


def _quoted(word: str) -> str:
    """A word as a shell reads it, in quotes also if it ends in a sign that could belong to the sentence."""
    quoted = shlex.quote(word)
    return quoted if quoted != word or word[-1] not in ",." else f"'{word}'"


def field_names(message: str) -> str:
    """The message with ``drop=["note"]`` as the line ``drop = ["note"]`` in the table [data] of a site.toml."""

    def worded(found: re.Match[str]) -> str:
        lines = (f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in _said(found.group()))
        return ", ".join(lines)

    return re.sub(GIVEN, worded, message)


def _said(given: str) -> list[tuple[str, Any]]:
    """Names and values of one option of tables; of categories, those of each column."""
    name, _, text = given.partition("=")
    value = ast.literal_eval(text)
    return [(f"{name}.{key}", each) for key, each in value.items()] if isinstance(value, dict) else [(name, value)]


def note_node(rank: int) -> None:
    """Record the PID of this node in the folder of its launch."""
    folder = os.environ.get(NODES_FOLDER)
    if folder is not None:
        with suppress(OSError):
            (Path(folder) / f"{os.getpid()}.node").write_text(str(rank))


@dataclass(frozen=True)
class Messages:
    """Two consoles: ``results`` for the results, ``notices`` for progress, warnings and errors."""

    results: Console
    notices: Console
    quiet: bool = False

    @classmethod
    def of(cls, quiet: bool = False, machine_output: bool = False) -> Messages:
        """Messages of a command; with ``machine_output``, standard output is reserved for JSON."""
        notices = Console(stderr=True, highlight=False)
        return cls(notices if machine_output else Console(highlight=False), notices, quiet)

    @classmethod
    def silent(cls) -> Messages:
        """For all nodes but node 0, which print nothing."""
        return cls(Console(quiet=True), Console(quiet=True), quiet=True)

    def print(self, content: RenderableType = "") -> None:
        """Print a result, unless quiet."""
        if not self.quiet:
            # Lines are wrapped only in a terminal, so that files and pipes can be searched.
            self.results.print(content, markup=False, soft_wrap=_is_line(content, self.results))

    def alert(self, text: str, style: str) -> None:
        """Print a warning or an error, quiet or not."""
        self.notices.print(text, style=style, markup=False, soft_wrap=_is_line(text, self.notices))

    def print_fit(self, fitted: Fit, true_sines: np.ndarray | None = None, loadings: bool = False) -> None:
        """Print the components, their cost, why the run ended, what it disclosed, and warnings."""
        result, certificate = fitted.result, fitted.result.certificate
        self.print(components_table(certificate, fitted.total_variance, true_sines))
        if loadings and fitted.facts.feature_names is not None:
            self.print(loadings_table(largest_loadings(fitted)))
        self.print(traffic_table(result.traffic, result.traffic_by_phase))
        advice = option_names(result.stop_reason.advice)
        if result.converged:
            steps = "1 iteration" if result.iterations == 1 else f"{result.iterations:,} iterations"
            self.print(f"Converged in {steps}, {result.wall_s:.2g} s. {advice}")
        else:
            reason, bound = result.stop_reason.label.replace("_", " "), f"bounded by {certificate.error_bound:.2g}"
            angles = f"the sines of the angles to the true components are {bound}, above tol = {fitted.request.tol:g}"
            self.alert(f"not converged ({reason}): {angles}. {advice}", style="yellow")
        moments = fitted.moments
        if moments.n_missing:
            share = moments.n_missing / (moments.n_samples * len(moments.mean))
            self.print(f"{moments.n_missing:,} missing entries ({share:.2%}) count as the mean of their column.")
        for line in certificate.disclosure.words:
            self.print(line)
        for warning in certificate.warnings:
            self.alert(f"note: {warning}.", style="yellow")

    @contextmanager
    def waiting(self, what: str) -> Iterator[Callable[..., None]]:
        """During work, say in a terminal what it is, and yield a function that tells how far it is.

        That function changes the live line of a terminal; elsewhere it prints a line every 10 s, and with
        ``at_once=True`` it does not wait until they are over.
        """
        if self.quiet:
            yield lambda words, at_once=False: None
        elif self.notices.is_terminal:
            with self.notices.status(what) as line:
                # As Text, because Rich would read words in brackets, which a neighbour may send, as markup.
                yield lambda words, at_once=False: line.update(Text(words))
        else:
            yield self._now_and_then()

    def _now_and_then(self) -> Callable[..., None]:
        last = time.monotonic()

        def tell(words: str, at_once: bool = False) -> None:
            nonlocal last
            if at_once or time.monotonic() - last >= LINE_EVERY_S:
                last = time.monotonic()
                self.alert(words, style="none")

        return tell

    @contextmanager
    def log(self, path: Path | None = None, *listeners: Listener | None) -> Iterator[EventLog]:
        """A log of events that shows the progress of a run, and writes the events to ``path`` and to the listeners."""
        with self.waiting("fitting") as tell, event_log(path, rounds_told(tell), *listeners) as log:
            yield log


def _is_line(content: RenderableType, console: Console) -> bool:
    return isinstance(content, str) and not console.is_terminal
