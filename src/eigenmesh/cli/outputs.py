"""The files that a fit leaves: checked before the work, written whole after it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eigenmesh.errors import InputError
from eigenmesh.estimator import DecentralizedPCA
from eigenmesh.report import require_picture
from eigenmesh.result import Result, require_writable, save_arrays, save_json

STANDARD_OUTPUT = "-"


@dataclass(frozen=True)
class Outputs:
    """Where to write arrays, numbers and the picture; None where not asked for."""

    arrays: Path | None
    numbers: str | None
    picture: Path | None

    @classmethod
    def checked(cls, arrays: Path | None, numbers: str | None, picture: Path | None, inputs: Sequence[str]) -> Outputs:
        """Raise now if any of them could not be written later, or would overwrite another or an input."""
        if arrays is not None and arrays.suffix.lower() != ".npz":
            raise InputError(f"--out {arrays} must end in .npz, the kind of file it is.")
        numbers_file = None if numbers in (None, STANDARD_OUTPUT) else Path(str(numbers))
        taken = {Path(name).resolve(): "an input" for name in inputs}
        for path in (arrays, numbers_file, picture):
            if path is None:
                continue
            if path.resolve() in taken:
                raise InputError(f"{path} is {taken[path.resolve()]} already; choose another name.")
            taken[path.resolve()] = "an output"
            require_writable(path)
        if picture is not None:
            require_picture(picture)
        return cls(arrays, numbers, picture)

    def write(self, arrays: dict[str, np.ndarray], numbers: dict[str, Any]) -> list[Path]:
        """Write arrays and numbers, and give the paths of what was written."""
        written = []
        if self.arrays is not None:
            save_arrays(self.arrays, arrays)
            written.append(self.arrays)
        if self.numbers == STANDARD_OUTPUT:
            print(json.dumps(numbers, indent=2, allow_nan=False))
        elif self.numbers is not None:
            save_json(self.numbers, numbers)
            written.append(Path(self.numbers))
        return written


def fitted_arrays(pca: DecentralizedPCA, node_names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """Arrays of a fit, without any that would need pickle."""
    arrays = {
        "components": pca.components_,
        "explained_variance": pca.explained_variance_,
        "explained_variance_ratio": pca.explained_variance_ratio_,
        "singular_values": pca.singular_values_,
        "mean": pca.mean_,
        "node_components": pca.node_components_,
    }
    if pca.scale_ is not None:
        arrays["scale"] = pca.scale_
    names = {"feature_names": getattr(pca, "feature_names_in_", None), "node_names": node_names}
    arrays.update({key: np.asarray(list(value), dtype=np.str_) for key, value in names.items() if value is not None})
    return arrays


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
