"""The numbers of a fit as JSON."""

from __future__ import annotations

import math
from typing import Any

from eigenmesh.iteration._result import Result


def fitted_numbers(result: Result, total_variance: float, about: dict[str, Any]) -> dict[str, Any]:
    """Numbers of a fit for JSON: what was asked, what came out and what it cost."""
    shares = (result.explained_variance / total_variance).tolist()
    plain: dict[str, Any] = _without_nan({**about, **result.summary(), "explained_variance_ratio": shares})
    return plain


def _without_nan(value: Any) -> Any:
    """JSON has neither NaN nor infinity: null stands for them."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
