"""The command line: what there is, and what becomes of errors."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from eigenmesh import __version__
from eigenmesh.cli._audit import audit
from eigenmesh.cli._compare import compare
from eigenmesh.cli._demo import demo
from eigenmesh.cli._exit_codes import BAD_INPUT, INTERRUPTED
from eigenmesh.cli._fit import fit
from eigenmesh.cli._graph import graph
from eigenmesh.cli._init import init
from eigenmesh.cli._launch import launch
from eigenmesh.cli._messages import Messages, option_names
from eigenmesh.cli._peer import peer
from eigenmesh.cli._plan import plan
from eigenmesh.cli._reproduce import reproduce
from eigenmesh.cli._sign import sign
from eigenmesh.cli._status import status
from eigenmesh.cli._transform import transform
from eigenmesh.errors import EigenmeshError


class Commands(TyperGroup):
    """Commands whose mistakes in the input end with one line and status 2, not with a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; any error that was not raised on purpose goes on up."""
        messages = Messages.of()
        try:
            return super().invoke(ctx)
        except EigenmeshError as error:
            messages.alert(f"error: {option_names(str(error))}", style="bold red")
            raise typer.Exit(BAD_INPUT) from error
        except KeyboardInterrupt as error:
            messages.alert("interrupted.", style="yellow")
            raise typer.Exit(INTERRUPTED) from error


# A traceback with local variables would print samples; the plain one does not.
app = typer.Typer(
    cls=Commands,
    rich_markup_mode="markdown",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)
app.command()(fit)
app.command()(graph)
app.command()(plan)
app.command()(compare)
app.command()(reproduce)
app.command()(launch)
app.command()(transform)
app.command()(init)
app.command()(sign)
app.command()(peer)
app.command()(status)
app.command()(audit)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"eigenmesh {__version__}")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Exact PCA over data that stays where it is.

    Nodes of a network hold samples, talk to their neighbours alone, and all end with the principal components
    of the pooled samples, with a certificate of how near they are.

    Start with **eigenmesh demo**; then **eigenmesh fit** on data of your own, **eigenmesh plan** to see
    what it would cost, and **eigenmesh graph** to look at a network. Each has its own **--help**.
    """


def main() -> None:
    """Entry point of the ``eigenmesh`` command."""
    app(prog_name="eigenmesh")
