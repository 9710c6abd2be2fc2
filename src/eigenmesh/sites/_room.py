"""Disk space at a site: how much a run writes, and how a full disk parks the run."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from eigenmesh.errors import ParkedError
from eigenmesh.fitting import Forecast
from eigenmesh.sites._site import Site

# Bytes per audit line, per score in a text file, and of all small files of a short run (status, events, log).
AUDIT_LINE_BYTES, SCORE_BYTES, OTHER_BYTES = 350, 20, 100_000
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def written_bytes(site: Site, forecast: Forecast | None = None, n_samples: int = 0, n_features: int = 0) -> float:
    """Bytes that a run writes at one site: journal of received messages, audit of sent ones, model and scores.

    Without a forecast of the traffic, journal and audit are not included.
    """
    wanted = site.settings.asked.n_components
    k = wanted if isinstance(wanted, int) else 1
    scores = SCORE_BYTES * k * n_samples if site.out.scores is not None else 0
    # The model holds the components twice: those of the run, and those of this node.
    model = 8 * n_features * (2 * k + 3)
    sent = 0.0 if forecast is None else forecast.bytes + AUDIT_LINE_BYTES * forecast.messages
    return sent / len(site.sites) + model + scores + OTHER_BYTES


def is_without_room(error: BaseException) -> bool:
    """Whether a full disk or an exceeded quota caused the error."""
    return any(isinstance(one, OSError) and one.errno in NO_ROOM for one in (error, error.__context__))


@contextmanager
def parked_without_room(name: str) -> Iterator[None]:
    """Turn a full disk into a parked run, at the start or later: a restart continues it once there is room."""
    try:
        yield
    except OSError as error:
        if isinstance(error, ParkedError) or not is_without_room(error):
            raise
        raise ParkedError(f"{name} parked the run: {error} Free some space, and start it again.") from error
