"""Errors about files whose fields are called as in the library: said as they are, without names of options."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from eigenmesh.cli._exit_codes import BAD_INPUT
from eigenmesh.cli._messages import Messages
from eigenmesh.errors import EigenmeshError


@contextmanager
def plain_errors() -> Iterator[None]:
    """End with one line and status 2 on a mistake in the input; ``n_components`` in a file is not --components."""
    try:
        yield
    except EigenmeshError as error:
        Messages.of().alert(f"error: {error}", style="bold red")
        raise typer.Exit(BAD_INPUT) from error
