"""Where samples are already: engines that can ask all sites for a sum, such as Dask.

To a solver all sites together are one node, whose covariance is a sum over them. An engine is a ``Coordinator`` with
one method, ``ask``. ``verbs`` is what a site answers. Nothing here imports an engine before there are data of it.
"""

from eigenmesh.coordinators import verbs
from eigenmesh.coordinators.coordinator import Coordinator, coordinator_of, is_asked

__all__ = ["Coordinator", "coordinator_of", "is_asked", "verbs"]
