"""A benchmark with several parts: runs those named on the command line, or all."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping


def run_parts(parts: Mapping[str, Callable[[], bool]]) -> None:
    """Run the parts, and exit with status 1 if one of them misses its target."""
    warnings.simplefilter("ignore")
    kept = [parts[name]() for name in sys.argv[1:] or parts]
    raise SystemExit(0 if all(kept) else 1)
