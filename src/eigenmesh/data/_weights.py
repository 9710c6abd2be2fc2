"""Weights of rows: a row of weight w counts as w equal samples, so the sum of the weights replaces N."""

import numpy as np

from eigenmesh.errors import DataError

# Smallest weight, relative to the largest at a node: a smaller one would be lost in rounding.
SMALLEST_WEIGHT = 1e-9
# Tolerances for counts that must be whole numbers without weights; the second is for inaccurate averages.
NEARLY_WHOLE, LOOSELY_WHOLE = 1e-9, 2e-8


def checked_weights(given: object, n_rows: int, where: str, fewest: int = 1) -> np.ndarray:
    """Weights as float64, (n_rows,): finite, not negative, and at least ``fewest`` of them positive."""
    weights = np.asarray(given)
    if weights.shape != (n_rows,) or weights.dtype.kind not in "biuf":
        found = f"{weights.dtype} of shape {weights.shape}"
        raise DataError(f"weights of {where} must be one number for each of {n_rows:,} rows; got {found}.")
    weights = weights.astype(np.float64)
    wrong = ~((weights >= 0) & np.isfinite(weights))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(f"weight {weights[row]:g} of {where}, row {row}, must be finite and not negative; correct it.")
    positive = weights[weights > 0]
    if len(positive) < fewest:
        raise DataError(f"all weights of {where} are zero; give one of its rows a weight, or leave it out.")
    if len(positive) and positive.min() < SMALLEST_WEIGHT * positive.max():
        share = f"{positive.min():g} is less than {SMALLEST_WEIGHT:g} of the largest, {positive.max():g}"
        raise DataError(f"a weight of {where}, {share}: it would be lost to rounding; set it to 0.")
    return weights


def whole_count(total: float) -> float:
    """A number of samples, rounded to an int if it is one up to rounding; unchanged for other sums of weights."""
    nearest = round(total)
    return nearest if abs(total - nearest) <= LOOSELY_WHOLE * total else total


def whole_counts(counts: np.ndarray, n_samples: float) -> np.ndarray:
    """The same for numbers of entries that are not missing, out of ``n_samples``: (d,)."""
    nearest = np.rint(counts)
    return np.where(np.abs(counts - nearest) <= NEARLY_WHOLE * n_samples, nearest, counts)
