"""Exit statuses of the command; 0 is a run whose certificate reached the tolerance."""

NOT_CONVERGED = 1
BAD_INPUT = 2
# A run of peers that another site ended, or whose neighbours were lost.
ENDED = 4
# A run of peers that a restart takes up again; the number that mail programs use for "try again later".
PARKED = 75
INTERRUPTED = 130
