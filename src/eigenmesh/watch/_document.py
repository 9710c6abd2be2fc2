"""The page as one HTML document: style, script and data are embedded, and nothing is fetched from elsewhere."""

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files
from itertools import pairwise
from typing import Any

from eigenmesh.events import Entry, to_json

# Most events of a report; of a longer run, every n-th record and all other events are kept.
MOST_EVENTS = 4000


def page_of(title: str, run: dict[str, Any]) -> str:
    """The page of a run, which has ``events``, or ``live``: the address of a stream of events."""
    # "</script>" inside a string would end the script element that contains the data.
    data = json.dumps(run, allow_nan=False).replace("<", "\\u003c")
    parts = {"STYLE": _part("page.css"), "SCRIPT": _part("page.js"), "RUN": data, "TITLE": escape(title)}
    page = _part("page.html")
    head, *rest = page.split("__")
    # The template has double underscores only around names, so every second piece is a name.
    return head + "".join(parts[piece] if number % 2 == 0 else piece for number, piece in enumerate(rest))


def report_page(title: str, entries: Sequence[Entry], **about: Any) -> str:
    """The page of these events as a file to open from disk; ``about`` has facts, components and how to repeat it."""
    return page_of(title, {"events": _thinned([json.loads(to_json(entry)) for entry in entries]), **about})


def _thinned(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Fewer events: every n-th record, the traffic of the last fit only, and each network only where it changes."""
    starts = [number for number, event in enumerate(events) if event["kind"] == "started"]
    for before, number in reversed(list(pairwise(starts))):
        same = {name for name in ("nodes", "links") if events[number][name] == events[before][name]}
        events[number] = {name: value for name, value in events[number].items() if name not in same}
    if len(events) > MOST_EVENTS and starts:
        events = [one for at, one in enumerate(events) if one["kind"] != "link_traffic" or at > starts[-1]]
    records = [number for number, event in enumerate(events) if event["kind"] == "record"]
    every = max(1, -(-len(records) // max(1, MOST_EVENTS - (len(events) - len(records)))))
    dropped = set(records) - set(records[::-1][::every])
    return [event for number, event in enumerate(events) if number not in dropped]


@cache
def policy() -> str:
    """The content security policy: the browser may use only the page's own style, script and stream."""
    script, style = _hash("page.js"), _hash("page.css")
    own = f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; img-src data:"
    return f"{own}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


@cache
def _part(name: str) -> str:
    return files("eigenmesh.watch").joinpath("static", name).read_text(encoding="utf-8")


def _hash(name: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(_part(name).encode()).digest()).decode()}'"
