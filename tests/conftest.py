"""What holds for all tests."""

import signal
from pathlib import Path

# A shell starts what runs in its background with SIGINT ignored, and processes that tests start would inherit that: no
# Ctrl-C would reach them.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Folders whose tests start processes and wait for them.
SLOW = ("sites", "transports", "networks", "cli")


def pytest_collection_modifyitems(items):
    """Slow files first, so that no worker is left alone with one at the end."""
    order = {name: place for place, name in enumerate(SLOW)}
    items.sort(key=lambda item: order.get(Path(item.path).parent.name, len(SLOW)))
