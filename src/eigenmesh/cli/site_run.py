"""``eigenmesh site run``: take part in a run with other organisations, as one site; ``eigenmesh site relay``.

The log of a peer, and that of a relay, has one JSON object per line. Strangers who keep calling the port add only a few
lines a minute.
"""

from __future__ import annotations

import asyncio
import json
import logging
import logging.handlers
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eigenmesh.cli import options
from eigenmesh.cli.messages import Messages
from eigenmesh.cli.process import CANNOT_RESUME, ENDED, NOT_CONVERGED, PARKED, signals_interrupt
from eigenmesh.errors import CannotResumeError, ParkedError, TransportError, import_extra
from eigenmesh.words import one_line, readable_bytes

if TYPE_CHECKING:
    from eigenmesh.sites.results import Outcome
    from eigenmesh.sites.site import Site
    from eigenmesh.sites.status import Status

FRESH_HELP = "Start this run over: set aside its journals and result. Needed at all sites."
Fresh = Annotated[bool, options.option(None, None, FRESH_HELP, "--fresh")]
FOLLOW_HELP = "Keep running, and process the files that are moved into this folder, batch by batch."
RelayPath = Annotated[Path, options.argument("RELAY.toml", "The settings of the relay, from eigenmesh site init.")]
Follow = Annotated[Path | None, options.option(None, "FOLDER", FOLLOW_HELP, "--follow")]
# How errors that end a run are reported, with what its operator does next, and the exit status.
ENDS = (
    (ParkedError, "parked", "start it again to continue: eigenmesh site run", PARKED),
    (CannotResumeError, "cannot resume", "start over at all sites: eigenmesh site run --fresh", CANNOT_RESUME),
    (TransportError, "error", "", ENDED),
)
# Shorter waits are not reported.
SHORT_WAIT_S = 2.0
LOG_BYTES, LOG_FILES = 10_000_000, 3
# At most MOST_REFUSALS lines of each kind about refused callers are logged in REFUSALS_EVERY_S; the rest are counted.
MOST_REFUSALS, REFUSALS_EVERY_S = 20, 60.0
# How the lines of each kind begin. Callers without a certificate may be many, so they are counted separately and do not
# hide those with one.
REFUSALS = ("refused a TLS handshake", "refused ")


def run(site: options.SiteFile, quiet: options.Quiet = False, fresh: Fresh = False, follow: Follow = None) -> None:
    """Take part in a run as one site; its samples stay where they are.

    The peer calls its neighbours, or waits for their calls, over mutual TLS; all sites must have the same settings of
    the run. The result, its certificate, the audit of everything that left, a log and the status are written to the
    site's out folder. A peer that was stopped or killed continues from its journal when it is started again.

    With **--follow** the peer keeps running: files that are moved into a folder are processed batch by batch. After
    each batch the result is that of all samples so far at all sites.

    Exit status: 0 if the certificate reached the tolerance; 1 if not; 2 for invalid input, or if the neighbours have
    other settings; 4 if another site ended the run or the neighbours were lost; 5 if this site cannot resume the run
    that its neighbours are in; 75 if it was stopped or parked, and a restart will continue.

    Examples:

    - `eigenmesh site run hospital-a/site.toml`

    - `eigenmesh site run hospital-a/site.toml --follow hospital-a/arrivals`

    - `eigenmesh watch hospital-a/site.toml`, at any time, shows the run on a page
    """
    messages = Messages.of(quiet)
    import_extra("cryptography", "peers", "eigenmesh site run")
    from eigenmesh.sites import read_site

    # Journals, results and logs may be read only by the owner of this process.
    os.umask(0o077)
    described = read_site(site)
    with signals_interrupt():
        with _last_words(messages, site):
            with messages.waiting("reading the data"):
                take_part = (
                    _once(messages, described, fresh) if follow is None else _followed(messages, site, follow, fresh)
                )
            with logged(described.out.folder / "peer.log"), messages.waiting("connecting") as tell:
                outcome = take_part(_shown(tell))
        if outcome is not None:
            # The run is over and its result is written, so an interrupt only ends the printing.
            with suppress(KeyboardInterrupt):
                _print_outcome(messages, outcome)
    if outcome is not None and not outcome.converged:
        raise typer.Exit(NOT_CONVERGED)


def relay(file: RelayPath) -> None:
    """Join sites that can only call out, and pass on what they send each other.

    A relay runs on any computer that both sites can reach. It has no data and no key that opens anything: the sites
    encrypt end to end, so it sees who is joined with whom, when, and how many bytes pass. It serves only the sites and
    links of its relay.toml, and writes nothing to the disk. The log goes to standard error, a JSON object per line. A
    relay that was stopped or killed is started again; the sites come back by themselves.

    Example:

    - `eigenmesh site relay mesh/relay/relay.toml`
    """
    import_extra("cryptography", "peers", "eigenmesh site relay")
    from eigenmesh.sites.prometheus import served
    from eigenmesh.sites.relay import Relay, read_relay
    from eigenmesh.transports.tls.connection import new_loop

    described = read_relay(file)
    service, messages = Relay(described), Messages.of()
    links = f"{len(described.links)} links of {len(described.sites)} sites"
    numbers = served(described.metrics, service.gauges)
    with _logging(logging.StreamHandler()), signals_interrupt(), numbers, suppress(KeyboardInterrupt):
        messages.print(f"{described.name} listens at {described.listen} for {links}.")
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(service.serve())
    messages.print(f"{described.name} has joined {service.joined} pairs; {readable_bytes(service.passed)} have passed.")


def _once(messages: Messages, site: Site, fresh: bool) -> Callable[..., Outcome | None]:
    """One run, on the file that the site's settings name."""
    from eigenmesh.sites.peer import Peer

    peer = Peer(site)
    if fresh:
        for path in peer.run_folder.set_aside():
            messages.print(f"set aside {path}")
    return peer.run


def _followed(messages: Messages, site: Path, folder: Path, fresh: bool) -> Callable[..., Outcome | None]:
    """One run per batch, until the site leaves."""
    from eigenmesh.sites.follow import Follower

    def print_batch(batch: int, outcome: Outcome) -> None:
        what = f"put off: {outcome.put_off}" if outcome.put_off else "done"
        wrong = "" if outcome.put_off or outcome.converged else "; it is not certified to tol"
        messages.alert(f"batch {batch} of {len(outcome.members)} sites is {what}{wrong}", style="none")

    def warn(text: str) -> None:
        messages.alert(f"note: {one_line(text)}", style="yellow")

    follower = Follower(site, folder, fresh, print_batch, warn)

    def take_part(show: Any) -> None:
        handover = follower.run(show)
        messages.print("This site has left.")
        if handover is not None:
            messages.print(f"Give {handover} to the site's heir, who moves it into the folder that it follows.")

    return take_part


@contextmanager
def _last_words(during: Messages, site: Path) -> Iterator[None]:
    """Report why a run ended without a result, and set the exit status."""
    from eigenmesh.sites.peer import STOPPED

    try:
        yield
    except KeyboardInterrupt as error:
        during.alert(f"{STOPPED}: eigenmesh site run {site}", style="yellow")
        raise typer.Exit(PARKED) from error
    except TransportError as error:
        kind, what, fix, status = next(end for end in ENDS if isinstance(error, end[0]))
        during.alert(f"{what}: {one_line(str(error))}", style="yellow" if kind is ParkedError else "bold red")
        if fix:
            during.alert(f"{fix} {site}", style="yellow")
        raise typer.Exit(status) from error


def _print_outcome(messages: Messages, outcome: Outcome) -> None:
    """Print the result, and which sites it includes."""
    if outcome.fit is None:
        messages.print("This run already has a result; give the run another name to repeat it.")
    else:
        messages.print_fit(outcome.fit, loadings=True)
    notes = []
    if outcome.missing:
        lost = f"lost during the run: {', '.join(outcome.missing)}"
        notes.append(f"this is the PCA of {', '.join(outcome.members)} only; {lost}.")
    if outcome.owed:
        fix = "when they are started again, start this site too, so that they can finish"
        notes.append(f"{', '.join(outcome.owed)} may not have everything yet; {fix}.")
    for note in notes:
        messages.alert(f"note: {note}", style="yellow")
    for path in outcome.written:
        messages.print(f"wrote {path}" if outcome.fit is not None else f"see {path}")


def _shown(tell: Callable[..., None]) -> Callable[[Status], None]:
    """A function that tells a status; at once, if the phase or the neighbours that it waits for are others."""
    said: tuple[str, tuple[str, ...]] = ("", ())

    def show(status: Status) -> None:
        nonlocal said
        before, said = said, (status.phase, status.waiting_for if status.waiting_s > SHORT_WAIT_S else ())
        tell(in_words(status), at_once=said != before)

    return show


def in_words(status: Status) -> str:
    """One line: phase, round, residual, bytes, and the neighbours it waits for."""
    words = [f"{status.phase}: round {status.round:,} of a budget of {status.max_rounds:,}"]
    if status.residual == status.residual:
        words.append(f"residual {status.residual:.1e}")
    words.append(f"{readable_bytes(status.bytes)} sent")
    if status.waiting_for and status.waiting_s > SHORT_WAIT_S:
        words.append(f"waiting for {', '.join(status.waiting_for)} ({status.waiting_s:.0f} s)")
    words += [f"{neighbour.name}: {neighbour.refusal}" for neighbour in status.neighbours if neighbour.refusal]
    return ", ".join(words)


@contextmanager
def logged(path: Path) -> Iterator[None]:
    """Write everything that eigenmesh logs to a file."""
    with _logging(_LogFile(path, maxBytes=LOG_BYTES, backupCount=LOG_FILES, encoding="utf-8", delay=True)):
        yield


@contextmanager
def _logging(handler: logging.Handler) -> Iterator[None]:
    """Give everything that eigenmesh logs to a handler."""
    logger = logging.getLogger("eigenmesh")
    handler.setFormatter(_AsJson())
    handler.addFilter(FewRefusals())
    level, logger.level = logger.level, logging.INFO
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        handler.close()


class _LogFile(logging.handlers.RotatingFileHandler):
    """If the disk fails, lines of the log are lost, but the run goes on and its outcome is reported."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)

    def close(self) -> None:
        with suppress(OSError):
            super().close()


class FewRefusals(logging.Filter):
    """Passes only some lines about refused callers, so that they cannot push all other lines out of the log.

    The first line after a pause says how many were left out.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        kind = next((start for start in REFUSALS if message.startswith(start)), None)
        if kind is None:
            return True
        now = self._clock()
        since, seen = self._kinds.get(kind, (now, 0))
        more = seen - MOST_REFUSALS
        if now - since >= REFUSALS_EVERY_S:
            since, seen = now, 0
            if more > 0:
                record.msg, record.args = f"{message} (and {more:,} more before that)", ()
        self._kinds[kind] = since, seen + 1
        return seen < MOST_REFUSALS


class _AsJson(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {"at": self.formatTime(record), "level": record.levelname, "logger": record.name}
        line["message"] = one_line(record.getMessage())
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)
