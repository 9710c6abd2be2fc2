"""The loop that runs every solver on every network, its stopping rules, and its result."""

from eigenmesh.iteration._result import Result
from eigenmesh.iteration._run import run
from eigenmesh.iteration._settings import DEFAULT_MAX_ROUNDS, DEFAULT_TOL
from eigenmesh.iteration._stopping import StopReason

__all__ = ["DEFAULT_MAX_ROUNDS", "DEFAULT_TOL", "Result", "StopReason", "run"]
