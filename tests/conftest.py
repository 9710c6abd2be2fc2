"""What holds for all tests."""

import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

# Tests run beside each other, a process for each core; threads of their own would only get in the way. Before NumPy.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell starts what runs in its background with SIGINT ignored, and processes that tests start would inherit that: no
# Ctrl-C would reach them.
signal.signal(signal.SIGINT, signal.default_int_handler)

# On a busy machine examples take long to draw and to run; that says nothing about the code.
with contextlib.suppress(ImportError):
    from hypothesis import HealthCheck, settings

    settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("any machine")

# Folders whose tests start processes and wait for them.
SLOW_FOLDERS = ("sites", "transports", "networks", "cli")


def pytest_collection_modifyitems(items):
    """Slow folders first, so that no worker is left alone with one at the end."""
    order = {name: place for place, name in enumerate(SLOW_FOLDERS)}
    items.sort(key=lambda item: order.get(Path(item.path).parent.name, len(SLOW_FOLDERS)))


@pytest.fixture(autouse=True, scope="session")
def cache_folder(tmp_path_factory):
    """Tests leave nothing in the user's cache, and find nothing there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(
            "LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache"))
        )
        yield
