"""What holds for all tests."""

import os
import signal
from pathlib import Path

import pytest

# Tests run beside each other, a process for each core; threads of their own would only get in the way. Before NumPy.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell starts what runs in its background with SIGINT ignored, and processes that tests start would inherit that: no
# Ctrl-C would reach them.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Folders whose tests start processes and wait for them.
SLOW_FOLDERS = ("sites", "transports", "networks", "cli")
# Files whose tests take seconds each; `make check` leaves them out.
SLOW_FILES = {
    "test_cli_compare",
    "test_cli_demo",
    "test_cli_process",
    "test_cli_reproduce",
    "test_cli_sites",
    "test_cli_start",
    "test_cli_transport",
    "test_contract",
    "test_dask_cluster",
    "test_engines",
    "test_examples",
    "test_grpc",
    "test_intruders",
    "test_mpi",
    "test_pages",
    "test_planner",
    "test_sites_faults",
    "test_sites_run",
    "test_torch",
}


def pytest_collection_modifyitems(items):
    """Mark slow files, and put slow folders first, so that no worker is left alone with one at the end."""
    for item in items:
        if Path(item.path).stem in SLOW_FILES:
            item.add_marker(pytest.mark.slow)
    order = {name: place for place, name in enumerate(SLOW_FOLDERS)}
    items.sort(key=lambda item: order.get(Path(item.path).parent.name, len(SLOW_FOLDERS)))
