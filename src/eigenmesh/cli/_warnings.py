"""How warnings about data, and last words, are shown on the command line."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from eigenmesh.errors import DataWarning


@contextmanager
def warnings_shown(in_words: Callable[[str], str] = str) -> Iterator[None]:
    """Show each warning about data once, in the words of who is at the command line."""
    said: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("always", DataWarning)
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if not issubclass(category, DataWarning):
                usual(message, category, *place, **more)
            elif str(message) not in said:
                said.add(str(message))
                alert(f"warning: {in_words(str(message))}", style="yellow")

        warnings.showwarning = show
        yield


def alert(text: str, style: str) -> None:
    """One line on standard error."""
    # Not through `_messages`: an interrupt may come while that is being imported.
    console = Console(stderr=True, highlight=False)
    console.print(text, style=style, markup=False, soft_wrap=not console.is_terminal)
