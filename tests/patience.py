"""How long things may take in tests that run beside others."""

import os


def allowed_s(seconds: float) -> float:
    """So many seconds on a machine that has time; longer where more processes want to run than there are cores."""
    crowded = os.getloadavg()[0] / (os.cpu_count() or 1) / 2 if hasattr(os, "getloadavg") else 1.0
    return seconds * max(1.0, crowded)
