"""Room on the disk of a site: what a run writes, and what becomes of a run for which there is none."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from eigenmesh.errors import ParkedError
from eigenmesh.fitting import Forecast
from eigenmesh.sites._site import Site

# A line of the audit; a score in a text file; status, events and log of a short run, and the rest of its result.
AUDIT_LINE_BYTES, SCORE_BYTES, OTHER_BYTES = 350, 20, 100_000
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def written_bytes(site: Site, forecast: Forecast | None = None, n_samples: int = 0, n_features: int = 0) -> float:
    """What a run writes at one site: journal of what it receives, audit of what it sends, model and scores.

    Without a forecast of the traffic it is less than that.
    """
    wanted = site.settings.n_components
    k = wanted if isinstance(wanted, int) else 1
    scores = SCORE_BYTES * k * n_samples if site.out.scores is not None else 0
    # The model has the components twice: those of the run, and those of this node.
    model = 8 * n_features * (2 * k + 3)
    sent = 0.0 if forecast is None else forecast.bytes + AUDIT_LINE_BYTES * forecast.messages
    return sent / len(site.sites) + model + scores + OTHER_BYTES


def is_without_room(error: BaseException) -> bool:
    """Whether a full disk, or a used up quota, is what an error comes from."""
    return any(isinstance(one, OSError) and one.errno in NO_ROOM for one in (error, error.__context__))


@contextmanager
def parked_without_room(name: str) -> Iterator[None]:
    """A full disk puts the run off, at its start as on the way: once there is room, a restart goes on."""
    try:
        yield
    except OSError as error:
        if isinstance(error, ParkedError) or not is_without_room(error):
            raise
        raise ParkedError(f"{name} parked the run: {error} Make room, and start it again.") from error
