"""How warnings about data, and final messages, are shown on the command line."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from eigenmesh.errors import DataWarning


@contextmanager
def warnings_shown(rewrite: Callable[[str], str] = str) -> Iterator[None]:
    """Show each warning about data once, after ``rewrite`` has put in the names of options."""
    seen: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("always", DataWarning)
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if not issubclass(category, DataWarning):
                usual(message, category, *place, **more)
            elif str(message) not in seen:
                seen.add(str(message))
                alert(f"warning: {rewrite(str(message))}", style="yellow")

        warnings.showwarning = show
        yield


def alert(text: str, style: str) -> None:
    """One line on standard error."""
    # Does not use `_messages`, because an interrupt may arrive while that is being imported.
    console = Console(stderr=True, highlight=False)
    console.print(text, style=style, markup=False, soft_wrap=not console.is_terminal)
