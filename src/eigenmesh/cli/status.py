"""Exit statuses of the command; 0 is a run whose certificate reached the tolerance."""

NOT_CONVERGED = 1
BAD_INPUT = 2
INTERRUPTED = 130
