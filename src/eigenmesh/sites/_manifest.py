"""The manifest: everything that all sites of a run must agree on before it starts, as one text.

It contains no path and no address, and the number of samples only where all sites have the same samples.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from eigenmesh import __version__
from eigenmesh.errors import InputError
from eigenmesh.fitting import _matching as matching
from eigenmesh.fitting._matching import canonical, listed
from eigenmesh.masking import mask_rule
from eigenmesh.settings import AT_SITES
from eigenmesh.sites._settings import RunSettings
from eigenmesh.sites._site import Site

PROTOCOL = 3
# Settings that all sites must have in common, but that are not in the request for a fit. With ``min_new_samples`` it is
# so only in runs that are followed.
SITE_SETTINGS = [one.name for one in fields(RunSettings) if one.name in AT_SITES and AT_SITES[one.name].agree]
# A manifest is sent in one control message.
MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class Manifest:
    """The description of a run as JSON values; sites that agree have the same ``text``."""

    content: dict[str, Any]

    @classmethod
    def of(
        cls, site: Site, n_features: int, feature_names: Sequence[str] | None, n_samples: int | None = None
    ) -> Manifest:
        """The manifest of this site, for data with these columns, or with these samples where columns are split."""
        settings = site.settings
        named = None if feature_names is None else listed(feature_names)
        shared: dict[str, Any] = {"n_features": n_features, "feature_names": named}
        if settings.partition == "features":
            shared = {"n_samples": n_samples}
        followed = {} if site.batch is None else {"batch": site.batch, "min_new_samples": settings.min_new_samples}
        return cls(
            {
                "protocol": PROTOCOL,
                "eigenmesh": __version__,
                "run": site.run,
                "sites": listed(site.sites),
                "edges": listed([" - ".join(edge) for edge in site.edges]),
                "weights": site.weights.digest,
                "fingerprints": dict(site.fingerprints) or None,
                **shared,
                **matching.common_settings(settings.request()),
                **{name: getattr(settings, name) for name in SITE_SETTINGS if name != "min_new_samples"},
                "masks": mask_rule(len(site.sites)) if settings.masked else None,
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
        return hashlib.sha256(self.text.encode()).hexdigest()

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


def differences(ours: Manifest, theirs: Manifest) -> list[str]:
    """The fields that differ between two manifests, with both values; empty if and only if the digests are equal."""
    return matching.differences(ours.content, theirs.content)
