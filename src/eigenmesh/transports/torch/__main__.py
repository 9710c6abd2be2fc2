"""``python -m eigenmesh.transports.torch``: torchrun, with the exit status of the process that failed first.

torchrun itself ends with status 1 whenever a process fails, and a traceback of its own.
"""

import sys

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import main

if __name__ == "__main__":
    try:
        main()
    except ChildFailedError as error:
        status = error.get_first_failure()[1].exitcode
        if status < 0:
            # A killed process could not say so itself; a shell reports death by signal 9 as 137.
            sys.stderr.write(f"{error}\n")
            status = 128 - status
        sys.exit(status)
