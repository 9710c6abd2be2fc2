"""What a run would take if all sites had samples like those of one: nothing is sent."""

from dataclasses import replace

import numpy as np

from eigenmesh.data import Shards, Source
from eigenmesh.errors import EigenmeshError
from eigenmesh.events import Planned
from eigenmesh.fitting import NodeData, planned
from eigenmesh.sites._site import Site, read_samples


def alike(site: Site, samples: Source) -> NodeData:
    """All sites of a run in this process, each with these samples."""
    shards = Shards.from_list([samples] * len(site.sites), node_names=site.sites)
    return NodeData(replace(shards, precision=np.dtype(site.settings.dtype)), site.weights)


def forecast(site: Site) -> Planned | None:
    """The planner's forecast of the run of a site.toml; None where columns are split, or samples are not here."""
    if site.settings.partition == "features":
        return None
    try:
        samples = read_samples(site.data).source
    except EigenmeshError:
        # They may come later, or be known to the peer alone.
        return None
    return planned(site.settings.request(site.data.covariance), alike(site, samples))
