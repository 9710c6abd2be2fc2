"""What a site asks for before it takes part: enough samples, pinned keys, and its own word on a loss."""

from __future__ import annotations

from eigenmesh.errors import DataError, InputError
from eigenmesh.sites._site import Site


def require_terms(site: Site, n_samples: int | None = None) -> None:
    """Raise unless this site may take part in the run, before anybody is called; None if samples are yet to come."""
    settings, least = site.settings, site.settings.min_samples_per_site
    if n_samples is not None and n_samples < least:
        raise DataError(f"{site.name} has {n_samples} samples; min_samples_per_site = {least} asks for more.")
    if not settings.masked:
        return
    if not site.fingerprints:
        why = "else the authority could put another site in the place of one, and see what is masked"
        fix = f"run eigenmesh pin {site.path} with the certificates of all sites"
        raise InputError(f'{site.path}: privacy = "masked" needs [fingerprints], {why}; {fix}.')
    if settings.on_loss == "continue" and not site.agrees_to_continue:
        shown = "its number of samples, mean, variances and products follow from the two results"
        raise InputError(
            f'on_loss = "continue" in a masked run: of a site that is lost the others learn more, {shown}. Each site '
            f'has to agree to that beforehand: write agrees_to_continue = true in {site.path}, or on_loss = "wait".'
        )
