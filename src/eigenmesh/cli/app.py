"""The command line: its commands, and how it reports errors."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from eigenmesh import __version__
from eigenmesh.cli.process import BAD_INPUT, INTERRUPTED, PIPE_CLOSED, Output, alert, warnings_shown
from eigenmesh.errors import EigenmeshError

# Module and help line of each command. `eigenmesh fit` is the function `fit` of the module `fit`.
COMMANDS = {
    "demo": ("demo", "Watch 20 nodes find the components of handwritten digits."),
    "fit": ("fit", "Find the principal components of data that are spread over nodes."),
    "certify": ("certify", "Bound how far components from any tool are from the true ones."),
    "transform": ("transform", "Project samples onto the components of a saved model."),
    "plan": ("plan", "Forecast rounds, bytes, memory and time of every solver, and name the best."),
    "graph": ("graph", "Describe a network: diameter, spectral gap, cost of an average."),
    "compare": ("compare", "Compare solvers on the same data: error against cost."),
    "reproduce": ("reproduce", "Repeat the experiments of the FAST-PCA paper, and check its claims."),
    "simulate": ("simulate", "Run solvers on data in virtual time: latency, loss, slow nodes, outages."),
    "launch": ("launch", "Start the nodes of a run on this machine, and wait for them."),
    "watch": ("watch", "Serve a page that shows a run: network, bounds, traffic, who waits."),
}
# The same for `eigenmesh site ...`, in the order in which an operator needs them.
SITE_COMMANDS = {
    "rehearse": ("site_rehearse", "Simulate a run of sites in virtual time: how long it takes, how it ends."),
    "init": ("site_keys", "Create the key, the certificate and the site.toml of every site of a network."),
    "sign": ("site_keys", "Sign a site's certificate request with the network's own authority."),
    "pin": ("site_keys", "Write the fingerprints of all sites' keys into a site.toml or network.toml."),
    "check": ("site_state", "Check everything that a run needs at this site, without starting it."),
    "approve": ("site_state", "Approve what one run would send, in the name of a person."),
    "run": ("site_run", "Take part in a run as one site; its samples stay where they are."),
    "relay": ("site_run", "Join sites that can only call out; runs on a computer that both can reach."),
    "status": ("site_state", "Show how the run is going at this site."),
    "audit": ("site_state", "Summarise what left a site: how much, to whom, of which kinds and shapes."),
    "key": ("site_files", "Without an open port: write this site's public key for a sum in files."),
    "summarise": ("site_files", "Without an open port: write this site's masked sum, and the page for its reviewer."),
    "combine": ("site_files", "Without an open port: find the components from the sums of all sites."),
    "withdraw": ("site_files", "Without an open port: sign that this site sends no sum, and delete its secret."),
    "renew": ("site_keys", "Issue a certificate with new dates for the same site and key."),
    "revoke": ("site_keys", "Revoke the certificates of a site whose key was lost or stolen."),
}
# Commands whose settings are in files: there, ``n_components`` must not become --components.
OF_FILES = ("site", "watch")
MARKUP: Final = "markdown"
VERSION_HELP = "Print the version and stop."


class LazyCommand(TyperCommand):
    """A command whose module is imported when it is called, so that ``eigenmesh --help`` need not wait for NumPy."""

    def __init__(self, name: str, module: str, text: str) -> None:
        super().__init__(name, help=text, rich_markup_mode=MARKUP)
        self.module = module

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the real command, which parses the arguments and runs."""
        return self.loaded().make_context(info_name, args, parent=parent, **extra)

    def loaded(self) -> Any:
        """The real command."""
        name = str(self.name)
        single = typer.Typer(rich_markup_mode=MARKUP, add_completion=False)
        single.command(name)(flat(getattr(import_module(f"eigenmesh.cli.{self.module}"), name)))
        return typer.main.get_command(single)


def flat(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with options of its own in place of every parameter that stands for a group of options.

    Such a parameter is annotated with a function, as in ``Annotated[TableOptions, read_table_options]``. The parameters
    of the function are the options, and its result is the value of the parameter.
    """
    groups: dict[str, tuple[Callable[..., Any], list[str]]] = {}
    parameters: list[inspect.Parameter] = []
    for one in inspect.signature(command, eval_str=True).parameters.values():
        read = next((note for note in getattr(one.annotation, "__metadata__", ()) if inspect.isfunction(note)), None)
        options = [one] if read is None else list(inspect.signature(read, eval_str=True).parameters.values())
        parameters += [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in options]
        if read is not None:
            groups[one.name] = read, [option.name for option in options]

    @functools.wraps(command)
    def with_options(**values: Any) -> Any:
        read = {place: group(**{name: values.pop(name) for name in names}) for place, (group, names) in groups.items()}
        return command(**read, **values)

    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {one.name: one.annotation for one in parameters}
    return with_options


def lazy_commands(table: Mapping[str, tuple[str, str]]) -> dict[str, LazyCommand]:
    """The commands of a table, by name."""
    return {name: LazyCommand(name, module, text) for name, (module, text) in table.items()}


class SiteCommands(TyperGroup):
    """The commands of ``eigenmesh site``."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands.update(lazy_commands(SITE_COMMANDS))


class Commands(TyperGroup):
    """All commands. Errors in the input end with one line and exit status 2, not with a traceback."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {**lazy_commands(COMMANDS), **self.commands}

    def invoke(self, ctx: Any) -> Any:
        """Run a command. Errors of the library and interrupts are reported in one line; all others are not caught."""

        def worded(message: str) -> str:
            from eigenmesh.cli.messages import field_names, option_names

            return field_names(message) if ctx.invoked_subcommand in OF_FILES else option_names(message)

        try:
            with warnings_shown(worded):
                return super().invoke(ctx)
        except EigenmeshError as error:
            alert(f"error: {worded(str(error))}", style="bold red")
            raise typer.Exit(BAD_INPUT) from error
        except KeyboardInterrupt as error:
            alert("interrupted.", style="yellow")
            raise typer.Exit(INTERRUPTED) from error


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
    what a fit would cost, and **eigenmesh graph** to look at a network. Organisations that keep their samples to
    themselves run **eigenmesh site**. Each command has its own **--help**.
    """


site = typer.Typer(cls=SiteCommands, rich_markup_mode=MARKUP, no_args_is_help=True)
app.add_typer(site, name="site")


@site.callback()
def about_sites() -> None:
    """Run one site of a network of organisations: keys, a dry run, the run itself, its status and its audit.

    The coordinator starts with **eigenmesh site init --example**, and every site with **eigenmesh site check**.
    """


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
