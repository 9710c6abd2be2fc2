"""The command line: its commands, and how it reports errors."""

import os
import sys
from importlib import import_module
from typing import Annotated, Any, Final, TextIO

import typer
from typer.core import TyperCommand, TyperGroup

from eigenmesh import __version__
from eigenmesh.cli._exit_codes import BAD_INPUT, INTERRUPTED, PIPE_CLOSED
from eigenmesh.cli._warnings import alert, warnings_shown
from eigenmesh.errors import EigenmeshError

# Help line of each command in `eigenmesh --help`. `eigenmesh fit` is the function `fit` of the module `_fit`.
COMMANDS = {
    "demo": "Watch 20 nodes find the components of handwritten digits.",
    "fit": "Find the principal components of data that are spread over nodes.",
    "graph": "Describe a network: diameter, spectral gap, cost of an average.",
    "plan": "Forecast rounds, bytes, memory and time of every solver, and name the best.",
    "compare": "Compare solvers on the same data: error against cost.",
    "reproduce": "Repeat the experiments of the FAST-PCA paper, and check its claims.",
    "simulate": "Run solvers on data in virtual time: latency, loss, slow nodes, outages.",
    "launch": "Start the nodes of a run on this machine, and wait for them.",
    "transform": "Project samples onto the components of a saved model.",
    "init": "Create the key, the certificate and the site.toml of every site of a network.",
    "sign": "Sign a site's certificate request with the network's own authority.",
    "pin": "Write the fingerprints of all sites' keys into a site.toml or network.toml.",
    "renew": "Issue a certificate with new dates for the same site and key.",
    "revoke": "Revoke the certificates of a site whose key was lost or stolen.",
    "rehearse": "Simulate a run of sites in virtual time: how long it takes, how it ends.",
    "check": "Check everything that a run needs at this site, without starting it.",
    "peer": "Take part in a run as one site; its samples stay where they are.",
    "watch": "Serve a page that shows a run: network, bounds, traffic, who waits.",
    "status": "Show how the run is going at this site.",
    "audit": "Summarise what left a site: how much, to whom, of which kinds and shapes.",
}
MARKUP: Final = "markdown"
VERSION_HELP = "Print the version and stop."


class LazyCommand(TyperCommand):
    """A command whose module is imported when it is called, so that ``eigenmesh --help`` need not wait for NumPy."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the real command, which parses the arguments and runs."""
        return self.loaded().make_context(info_name, args, parent=parent, **extra)

    def loaded(self) -> Any:
        """The real command."""
        name = str(self.name)
        single = typer.Typer(rich_markup_mode=MARKUP, add_completion=False)
        single.command(name)(getattr(import_module(f"eigenmesh.cli._{name}"), name))
        return typer.main.get_command(single)


class Commands(TyperGroup):
    """All commands. Errors in the input end with one line and exit status 2, not with a traceback."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, text in COMMANDS.items():
            self.commands[name] = LazyCommand(name, help=text, rich_markup_mode=MARKUP)

    def invoke(self, ctx: Any) -> Any:
        """Run a command. Errors of the library and interrupts are reported in one line; all others are not caught."""
        try:
            with warnings_shown(_option_names):
                return super().invoke(ctx)
        except EigenmeshError as error:
            alert(f"error: {_option_names(str(error))}", style="bold red")
            raise typer.Exit(BAD_INPUT) from error
        except KeyboardInterrupt as error:
            alert("interrupted.", style="yellow")
            raise typer.Exit(INTERRUPTED) from error


def _option_names(message: str) -> str:
    from eigenmesh.cli._messages import option_names

    return option_names(message)


# Typer's own tracebacks show local variables, and so could print samples; plain tracebacks do not.
app = typer.Typer(
    cls=Commands,
    rich_markup_mode=MARKUP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"eigenmesh {__version__}")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", metavar="", callback=_version, is_eager=True, help=VERSION_HELP)
    ] = False,
) -> None:
    """Exact PCA over data that stays where it is.

    The nodes of a network hold samples and talk only to their neighbours. At the end every node has the principal
    components of the pooled samples, and a certificate that bounds their error.

    Start with **eigenmesh demo**. Then use **eigenmesh fit** on your own data, **eigenmesh plan** to see
    what a fit would cost, and **eigenmesh graph** to look at a network. Each command has its own **--help**.
    """


class Output:
    """Standard output or standard error, which may end before the command does: ``head`` leaves, or a disk is full.

    What is written after that is dropped, so that the command goes on: a fit writes its files, and a peer takes part
    until the run ends. ``error`` is the reason.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.error: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text, or drop it."""
        try:
            return self._stream.write(text)
        except OSError as error:
            self._end(error)
            return len(text)

    def flush(self) -> None:
        """Pass on what was written, or drop it."""
        try:
            self._stream.flush()
        except OSError as error:
            self._end(error)

    def _end(self, error: OSError) -> None:
        self.error = error
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


def main() -> None:
    """Entry point of the ``eigenmesh`` command."""
    results, notices = Output(sys.stdout), Output(sys.stderr)
    sys.stdout, sys.stderr = results, notices
    try:
        app(prog_name="eigenmesh")
    except SystemExit as end:
        results.flush()
        if results.error is not None:
            end.code = end.code or PIPE_CLOSED
            if not isinstance(results.error, BrokenPipeError):
                alert(f"error: standard output cannot be written: {results.error.strerror}.", style="bold red")
        notices.flush()
        raise
