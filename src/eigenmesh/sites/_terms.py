"""Conditions before a site takes part: enough samples, pinned keys, and its consent to continue after a loss."""

from __future__ import annotations

from eigenmesh.errors import DataError, InputError
from eigenmesh.sites._site import Site


def require_terms(site: Site, n_samples: int | None = None) -> None:
    """Raise unless this site may take part in the run, before it calls any neighbour.

    ``n_samples`` is None if samples will arrive later.
    """
    settings, least = site.settings, site.settings.min_samples_per_site
    if n_samples is not None and n_samples < least:
        raise DataError(f"{site.name} has {n_samples} samples, fewer than min_samples_per_site = {least}; add some.")
    if not settings.masked:
        return
    if not site.fingerprints:
        why = "because without them the authority could impersonate a site and see masked numbers"
        fix = f"run eigenmesh site pin {site.path} with the certificates of all sites"
        raise InputError(f'{site.path}: privacy = "masked" needs [fingerprints], {why}; {fix}.')
    if settings.on_loss == "continue" and not site.agrees_to_continue:
        shown = "its number of samples, mean, variances and products follow from the two results"
        raise InputError(
            f'on_loss = "continue" in a masked run: the others learn more about a lost site, because {shown}. Each '
            f'site must agree to that first: write agrees_to_continue = true in {site.path}, or on_loss = "wait".'
        )
