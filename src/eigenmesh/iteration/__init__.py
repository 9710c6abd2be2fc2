"""The loop that runs every solver on every network, its stopping rules, and its result."""

from eigenmesh.iteration.loop import (
    DEFAULT_MAX_ROUNDS,
    DEFAULT_TOL,
    FIRST_BLOCK,
    require_components,
    require_settings,
    run,
    run_to_fraction,
)
from eigenmesh.iteration.result import Result
from eigenmesh.iteration.stopping import StopReason
