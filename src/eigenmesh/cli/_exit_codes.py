"""Exit statuses of the command; 0 is a run whose certificate reached the tolerance."""

NOT_CONVERGED = 1
# Of `eigenmesh audit`: a line is not the one that the next line was written after.
BROKEN_CHAIN = 1
BAD_INPUT = 2
# A run of peers that another site ended, or whose neighbours were lost.
ENDED = 4
# A peer whose journal is not the one that its neighbours know: a restart would only be refused again.
CANNOT_RESUME = 5
# A run of peers that a restart takes up again; the number that mail programs use for "try again later".
PARKED = 75
INTERRUPTED = 130
# Nobody reads what is printed, as after `| head`: the status of a command that the signal SIGPIPE ends.
PIPE_CLOSED = 141
