"""``eigenmesh peer``: one site's part in a run with other organisations."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from eigenmesh._text import one_line, readable_bytes
from eigenmesh.cli import _options as options
from eigenmesh.cli._exit_codes import CANNOT_RESUME, ENDED, NOT_CONVERGED, PARKED
from eigenmesh.cli._messages import LINE_EVERY_S, Messages, plain_errors
from eigenmesh.cli._node_files import require_report
from eigenmesh.cli._peer_log import logged
from eigenmesh.cli._signals import interrupt
from eigenmesh.errors import CannotResumeError, DisagreementError, ParkedError, TransportError, import_extra

if TYPE_CHECKING:
    from eigenmesh.sites._results import Outcome
    from eigenmesh.sites._site import Site
    from eigenmesh.sites._status import Status

SiteFile = Annotated[Path, options.argument("SITE.toml", "What eigenmesh init has made.")]
FRESH_HELP = "Begin this run anew: set aside its journals and result. Needed at all sites."
Fresh = Annotated[bool, options.option(None, None, FRESH_HELP, "--fresh")]
FOLLOW_HELP = (
    "Stay, and take in what arrives, batch by batch: files that are moved into a folder, lines that are added to a "
    "text file, or lines from standard input (-)."
)
Follow = Annotated[Path | None, options.option(None, "WHERE", FOLLOW_HELP, "--follow")]
# Waits that are shorter than this are not worth a word.
SHORT_WAIT_S = 2.0


@plain_errors()
def peer(
    site: SiteFile,
    quiet: options.Quiet = False,
    fresh: Fresh = False,
    follow: Follow = None,
    report: options.ReportFile = None,
    live: options.Live = False,
) -> None:
    """Take part in a run beside this site's data, which do not leave it.

    Neighbours are called or waited for, over mutual TLS; all must be set up for the same run. The result, its
    certificate, the audit of everything that left, a log and the status are written to the site's out folder. A peer
    that was stopped or killed goes on where it was when it is started again.

    With **--follow** the peer stays: files that are moved into a folder, or lines that are added to a text file or come
    over standard input, are taken in batch by batch, and after each the result is that of everything so far at all
    sites.

    Exit status: 0 if the certificate reached the tolerance; 1 if not; 2 for input that cannot be worked with, or
    neighbours that are set up otherwise; 4 if the run was ended by another site or lost its neighbours; 5 if this site
    cannot resume what its neighbours are in the middle of; 75 if it was stopped or parked, and a restart will continue.

    Examples:

    - `eigenmesh peer hospital-a/site.toml`

    - `eigenmesh peer hospital-a/site.toml --follow hospital-a/arrivals`

    - `eigenmesh peer hospital-a/site.toml --live --report run.html`

    - `tail -F -n +1 sensor.csv | eigenmesh peer hospital-a/site.toml --follow -`

    - `eigenmesh status hospital-a/site.toml`
    """
    messages = Messages.of(quiet, live=live)
    if report is not None:
        require_report(report)
    import_extra("cryptography", "peers", "eigenmesh peer")
    from eigenmesh.sites._site import read_site

    # Messages of neighbours, results and logs are for the owner of this process alone.
    os.umask(0o077)
    described = read_site(site)
    signal.signal(signal.SIGTERM, interrupt)
    with messages.waiting("reading the data"), _last_words(messages, site):
        take_part = _once(messages, described, fresh) if follow is None else _followed(messages, site, follow, fresh)
    with _page(messages, site, report):
        outcome = _take_part(messages, described, site, take_part)
    if outcome is not None and not outcome.converged:
        raise typer.Exit(NOT_CONVERGED)


@contextmanager
def _page(messages: Messages, site: Path, report: Path | None) -> Iterator[None]:
    """The page of the run, if it is asked for; else nothing that a page needs is imported."""
    if not messages.live and report is None:
        yield
        return
    from eigenmesh.cli._watch import shown

    with shown(messages, site, report):
        yield


def _take_part(
    messages: Messages, described: Site, site: Path, take_part: Callable[..., Outcome | None]
) -> Outcome | None:
    """The run itself, with its log, and what is said of it."""
    with logged(described.out.folder / "peer.log"), _shown(messages) as show, _last_words(messages, site):
        outcome = take_part(show)
    if outcome is not None:
        _tell(messages, outcome)
    return outcome


def _once(messages: Messages, site: Site, fresh: bool) -> Callable[..., Outcome | None]:
    """One run on the file that the site names."""
    from eigenmesh.sites._peer import Peer

    taking_part = Peer(site)
    if fresh:
        for path in taking_part.run_folder.set_aside():
            messages.tell(f"set aside {path}")

    def take_part(show: Any) -> Outcome:
        taking_part.reporter.listener = show
        return taking_part.run()

    return take_part


def _followed(messages: Messages, site: Path, source: Path, fresh: bool) -> Callable[..., Outcome | None]:
    """One batch after the other, until the site leaves."""
    from eigenmesh.sites._follow import Follower

    follower = Follower(site, source, fresh=fresh)

    def take_part(show: Any) -> None:
        def tell(batch: int, outcome: Outcome) -> None:
            what = f"put off: {outcome.put_off}" if outcome.put_off else "done"
            wrong = "" if outcome.put_off or outcome.converged else "; it is not certified to tol"
            messages.alert(f"batch {batch} of {len(outcome.members)} sites is {what}{wrong}", style="none")

        follower.listener, follower.tell = show, tell
        follower.warn = lambda text: messages.alert(f"note: {one_line(text)}", style="yellow")
        handover = follower.run()
        messages.tell("This site has left.")
        if handover is not None:
            messages.tell(f"Give {handover} to its heir, who moves it into the folder that it follows.")

    return take_part


@contextmanager
def _last_words(during: Messages, site: Path) -> Iterator[None]:
    """What is said, and the exit status, when a run ends without a result."""
    from eigenmesh.sites._peer import STOPPED

    try:
        yield
    except KeyboardInterrupt as error:
        during.alert(f"{STOPPED}: eigenmesh peer {site}", style="yellow")
        raise typer.Exit(PARKED) from error
    except ParkedError as error:
        during.alert(f"parked: {one_line(str(error))}", style="yellow")
        during.alert(f"start it again to continue: eigenmesh peer {site}", style="yellow")
        raise typer.Exit(PARKED) from error
    except CannotResumeError as error:
        during.alert(f"cannot resume: {one_line(str(error))}", style="bold red")
        during.alert(f"begin anew at all sites: eigenmesh peer --fresh {site}", style="yellow")
        raise typer.Exit(CANNOT_RESUME) from error
    except DisagreementError:
        raise
    except TransportError as error:
        during.alert(f"error: {one_line(str(error))}", style="bold red")
        raise typer.Exit(ENDED) from error


def _tell(messages: Messages, outcome: Outcome) -> None:
    """What came out, and of whose samples."""
    if outcome.fit is None:
        messages.tell("The result of this run is there already; give the run another name to do it again.")
    else:
        messages.tell_fit(outcome.fit, loadings=True)
    notes = []
    if outcome.missing:
        lost = f"{', '.join(outcome.missing)} were lost on the way"
        notes.append(f"this is the PCA of {', '.join(outcome.members)} alone; {lost}.")
    if outcome.owed:
        fix = "when they are started again, start this site too, so that they can finish"
        notes.append(f"{', '.join(outcome.owed)} may not have everything yet; {fix}.")
    for note in notes:
        messages.alert(f"note: {note}", style="yellow")
    for path in outcome.written:
        messages.tell(f"wrote {path}" if outcome.fit is not None else f"see {path}")


@contextmanager
def _shown(messages: Messages) -> Iterator[Any]:
    """A listener that shows the status: one live line in a terminal, else a line now and then."""
    if messages.quiet:
        yield None
    elif messages.notices.is_terminal:
        with messages.notices.status("connecting") as live:
            # As text, or a neighbour's words in brackets would be taken for a style.
            yield lambda status: live.update(Text(in_words(status)))
    else:
        yield _lines(messages)


def _lines(messages: Messages) -> Any:
    last = time.monotonic()
    said: tuple[str, tuple[str, ...]] = ("", ())

    def show(status: Status) -> None:
        nonlocal last, said
        waits = status.waiting_for if status.waiting_s > SHORT_WAIT_S else ()
        if (status.phase, waits) != said or time.monotonic() - last >= LINE_EVERY_S:
            last, said = time.monotonic(), (status.phase, waits)
            messages.alert(in_words(status), style="none")

    return show


def in_words(status: Status) -> str:
    """One line: where the run is, and whom it waits for."""
    words = [f"{status.phase}: round {status.round:,} of at most {status.max_rounds:,}"]
    if status.residual == status.residual:
        words.append(f"residual {status.residual:.1e}")
    words.append(f"{readable_bytes(status.bytes)} sent")
    if status.waiting_for and status.waiting_s > SHORT_WAIT_S:
        words.append(f"waiting for {', '.join(status.waiting_for)} ({status.waiting_s:.0f} s)")
    words += [f"{neighbour.name}: {neighbour.refusal}" for neighbour in status.neighbours if neighbour.refusal]
    return ", ".join(words)
