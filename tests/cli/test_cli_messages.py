"""What commands say while they work, and how they call settings."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from eigenmesh.cli import messages as messages_module
from eigenmesh.cli.messages import Messages, option_names
from eigenmesh.events import EventLog, Record, Started

STARTED = Started("fast-pca", "tree", ("a", "b"), (("a", "b"),), 8, 2, 1e-6, 5000)
RECORD = Record(40, 50, 600, 80, 2_500_000, 0.125, np.nan, 0.1)


def tell(listener) -> None:
    log = EventLog(listener)
    for event in (STARTED, RECORD):
        log.emit(event)


def make_voice(terminal: bool, quiet: bool = False) -> tuple[Messages, io.StringIO]:
    said = io.StringIO()
    console = Console(file=said, force_terminal=terminal, width=120, highlight=False)
    return Messages(console, console, quiet), said


def test_terminal_shows_live_progress():
    messages, said = make_voice(terminal=True)
    with messages.progress() as show:
        tell(show)
    for words in ("round 50 of a budget of 5000", "1.2e-01", "2.5 MB sent"):
        assert words in said.getvalue()


def test_log_gets_a_line_now_and_then(monkeypatch):
    messages, said = make_voice(terminal=False)
    with messages.progress() as show:
        tell(show)
        assert said.getvalue() == ""
    monkeypatch.setattr(messages_module, "LINE_EVERY_S", 0.0)
    with messages.progress() as show:
        tell(show)
    assert said.getvalue() == "round 50 of a budget of 5,000, residual 1.2e-01, 2.5 MB sent\n"


def test_quiet_has_no_progress_but_alerts():
    messages, said = make_voice(terminal=True, quiet=True)
    with messages.progress() as show, messages.waiting("reading"):
        assert show is None
    messages.print("result")
    assert said.getvalue() == ""
    messages.alert("careful", style="yellow")
    assert "careful" in said.getvalue()


def test_square_brackets_in_messages_are_not_markup():
    messages, said = make_voice(terminal=False)
    messages.alert("pip install 'eigenmesh[report]' in [bold]", style="red")
    assert said.getvalue() == "pip install 'eigenmesh[report]' in [bold]\n"


@pytest.mark.parametrize(
    ("library", "command_line"),
    [
        ('drop it, or pass missing="mean"', "drop it, or use --missing mean"),
        ("Raise max_rounds, or n_components = 3.", "Raise --max-rounds, or --components = 3."),
        ("Raise max_rounds.", "Raise --max-rounds."),
        ("n_nodes.csv and my_n_nodes and runs/n_nodes stay", "n_nodes.csv and my_n_nodes and runs/n_nodes stay"),
    ],
)
def test_settings_are_called_as_on_the_command_line(library, command_line):
    assert option_names(library) == command_line
