"""The page of a run: live, from a server on this machine, or as one file that shows the run after its end."""

from eigenmesh.watch._document import page_of, report_page
from eigenmesh.watch._feed import Feed, fate_of, follow
from eigenmesh.watch._server import PageServer

__all__ = ["Feed", "PageServer", "fate_of", "follow", "page_of", "report_page"]


def __dir__() -> list[str]:
    return __all__
