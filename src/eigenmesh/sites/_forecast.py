"""A forecast of what a run would cost, as if all sites had samples like those of this one. Nothing is sent."""

from eigenmesh.data import Shards, Source
from eigenmesh.errors import EigenmeshError
from eigenmesh.events import Planned
from eigenmesh.fitting import NodeData, planned
from eigenmesh.sites._site import Site, read_samples


def alike(site: Site, samples: Source) -> NodeData:
    """The data of a simulated run in which every site has these samples."""
    shards = Shards.from_list([samples] * len(site.sites), node_names=site.sites)
    return NodeData(shards, site.weights)


def forecast(site: Site) -> Planned | None:
    """The planner's forecast for the run of a site.toml; None where columns are split, or samples cannot be read."""
    if site.settings.partition == "features":
        return None
    try:
        samples = read_samples(site.data).source
    except EigenmeshError:
        # The samples may arrive later, or only the peer may be allowed to read them.
        return None
    return planned(site.settings.request(site.data.covariance), alike(site, samples))
