"""Exit statuses of the command; 0 is a run whose certificate reached the tolerance."""

from eigenmesh.errors import EigenmeshError

NOT_CONVERGED = 1
# Of `eigenmesh audit`: a line is not the one whose hash the next line contains.
BROKEN_CHAIN = 1
BAD_INPUT = EigenmeshError.exit_status
# Another site ended the run of peers, or its neighbours were lost.
ENDED = 4
# A peer whose journal does not match what its neighbours know: they would refuse a restart again.
CANNOT_RESUME = 5
# A run of peers that a restart continues. 75 is EX_TEMPFAIL of sysexits.h: "try again later".
PARKED = 75
INTERRUPTED = 130
# The reader of the output has gone, as after `| head`: 128 + SIGPIPE, as a shell reports it.
PIPE_CLOSED = 141
