"""What holds for all tests."""

from pathlib import Path

# Folders whose tests start processes and wait for them.
SLOW = ("sites", "transports", "networks", "cli")


def pytest_collection_modifyitems(items):
    """Slow files first, so that no worker is left alone with one at the end."""
    order = {name: place for place, name in enumerate(SLOW)}
    items.sort(key=lambda item: order.get(Path(item.path).parent.name, len(SLOW)))
