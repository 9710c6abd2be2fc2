"""The manifest: everything that all sites of a run must agree on before it starts, as one text.

It contains no path and no address, and the number of samples only where all sites have the same samples.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from eigenmesh import __version__
from eigenmesh.errors import InputError
from eigenmesh.graphs import Weights
from eigenmesh.masking import mask_rule
from eigenmesh.sites._site import Site

PROTOCOL = 2
RUN_SETTINGS = ("partition", "seed", "on_loss", "privacy")
PLAIN_SETTINGS = ("n_components", "tol", "max_rounds", "scale", "missing", *RUN_SETTINGS)
# A manifest is sent in one control message.
MAX_BYTES = 1 << 20
# Lists that are longer than this as text are replaced by digests of their parts.
MAX_LIST_BYTES = 200_000
MAX_PARTS = 512
# Weights are rounded to this many decimals: different processors may differ in the last bits.
WEIGHT_DECIMALS = 10
MAX_VALUE_CHARACTERS = 120
MAX_DEPTH = 3

Path = tuple[str, ...]


@dataclass(frozen=True)
class Manifest:
    """The description of a run as JSON values; sites that agree have the same ``text``."""

    content: dict[str, Any]

    @classmethod
    def of(
        cls, site: Site, n_features: int, feature_names: Sequence[str] | None, n_samples: int | None = None
    ) -> Manifest:
        """The manifest of this site, for data with these columns, or with these samples where columns are split."""
        settings, request = site.settings, site.settings.request()
        named = None if feature_names is None else _listed(feature_names)
        shared: dict[str, Any] = {"n_features": n_features, "feature_names": named}
        if settings.partition == "features":
            shared = {"n_samples": n_samples}
        followed = {} if site.batch is None else {"batch": site.batch, "min_new_samples": settings.min_new_samples}
        return cls(
            {
                "protocol": PROTOCOL,
                "eigenmesh": __version__,
                "run": site.run,
                "sites": _listed(site.sites),
                "edges": _listed([" - ".join(edge) for edge in site.edges]),
                "weights": weights_digest(site.weights),
                "fingerprints": dict(site.fingerprints) or None,
                **shared,
                "solver": {"name": settings.solver, **_parameters(request.solver)},
                "averaging": {"name": settings.averaging, **_parameters(request.averaging)},
                **{name: getattr(settings, name) for name in PLAIN_SETTINGS},
                "masks": mask_rule(len(site.sites)) if settings.masked else None,
                "min_samples": {"in all": settings.min_samples, "per site": settings.min_samples_per_site},
                **followed,
            }
        )

    @classmethod
    def parse(cls, text: str) -> Manifest:
        """The manifest in a text from another site; raises InputError if it is not one."""
        if len(text) > MAX_BYTES:
            raise InputError(f"a manifest of {len(text)} characters is too long; at most {MAX_BYTES} are read.")
        try:
            content = json.loads(text)
            canonical(content)
        except (ValueError, RecursionError) as error:
            raise InputError(f"the manifest is not plain JSON: {error}") from error
        if not isinstance(content, dict):
            raise InputError(f"the manifest is not a JSON object but a {type(content).__name__}.")
        return cls(content)

    @cached_property
    def text(self) -> str:
        """Canonical JSON: sorted keys, no white space, ASCII."""
        return canonical(self.content)

    @cached_property
    def digest(self) -> str:
        return _sha256(self.text)

    def batches_to(self, other: Manifest) -> int:
        """How many batches the other manifest is ahead in the same followed run; 0 if they are of different runs."""
        (run, batch), (their_run, theirs) = (
            (one.content.get("run"), one.content.get("batch")) for one in (self, other)
        )
        return theirs - batch if run == their_run and type(batch) is type(theirs) is int else 0

    @property
    def run_id(self) -> bytes:
        """16 bytes that identify the run; the same at all sites with the same manifest."""
        return hashlib.sha256(f"eigenmesh run\n{self.digest}".encode()).digest()[:16]


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def weights_digest(weights: Weights) -> str:
    """SHA-256 of the rounded weight matrix."""
    matrix = sparse.coo_array(weights.matrix)
    order = np.lexsort((matrix.col, matrix.row))
    places = np.stack([matrix.row[order], matrix.col[order]]).astype("<i8")
    values = np.round(matrix.data[order] * 10.0**WEIGHT_DECIMALS).astype("<i8")
    return hashlib.sha256(places.tobytes() + values.tobytes()).hexdigest()


def differences(ours: Manifest, theirs: Manifest) -> list[str]:
    """The fields that differ between two manifests, with both values; empty if and only if the digests are equal."""
    mine, other = _flat(ours.content), _flat(theirs.content)
    found = []
    for path in sorted({*mine, *other}):
        if path in mine and path in other and canonical(mine[path]) == canonical(other[path]):
            continue
        name = _short(".".join(path))[1:-1]
        if isinstance(mine.get(path), list) and isinstance(other.get(path), list):
            found.append(f"{name}: {_first_difference(mine[path], other[path], name)}")
        else:
            shown = [_short(content[path]) if path in content else "nothing" for content in (mine, other)]
            found.append(f"{name}: {shown[0]} here, {shown[1]} there")
    return found


def _first_difference(ours: list[Any], theirs: list[Any], name: str) -> str:
    what = "column" if name == "feature_names" else "entry"
    for place, (mine, other) in enumerate(zip(ours, theirs, strict=False)):
        if canonical(mine) != canonical(other):
            return f"{what} {place} is {_short(mine)} here, {_short(other)} there"
    return f"{len(ours)} of them here, {len(theirs)} there"


def _listed(values: Sequence[str]) -> Any:
    """The values; or, if the list is long, digests of parts of it, so that a difference can still be located."""
    listed = [str(value) for value in values]
    if len(canonical(listed)) <= MAX_LIST_BYTES:
        return listed
    size = -(-len(listed) // MAX_PARTS)
    parts = {start: listed[start : start + size] for start in range(0, len(listed), size)}
    digests = {f"{at} to {at + len(part) - 1}": _sha256(canonical(part))[:32] for at, part in parts.items()}
    return {"count": len(listed), "parts": digests}


def _parameters(method: Any) -> dict[str, Any]:
    """Fields of a solver or an averaging method as JSON values; empty if the planner chooses it."""
    return {} if method is None else dict(json.loads(json.dumps(dataclasses.asdict(method), default=repr)))


def _flat(content: dict[str, Any], before: Path = ()) -> dict[Path, Any]:
    """Nested objects flattened to one, by path. The depth is bounded, because the content may be another site's."""
    flat: dict[Path, Any] = {}
    for key, value in content.items():
        path = (*before, key)
        if isinstance(value, dict) and value and len(path) < MAX_DEPTH:
            flat.update(_flat(value, path))
        else:
            flat[path] = value
    return flat


def _short(value: Any) -> str:
    """A value for an error message, on one line of bounded length, because it may come from another site."""
    text = f"{len(value)} values" if isinstance(value, list) else "none" if value is None else canonical(value)
    return text if len(text) <= MAX_VALUE_CHARACTERS else f"{text[: MAX_VALUE_CHARACTERS - 4]}...{text[-1]}"
