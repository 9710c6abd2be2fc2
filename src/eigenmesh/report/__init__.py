"""Pictures and tables of networks, runs and components. matplotlib is imported only when a picture is drawn."""

from eigenmesh.report._component_pictures import (
    disagreement_picture,
    loadings_picture,
    scores_picture,
    scree_picture,
    traffic_picture,
)
from eigenmesh.report._network_picture import network_picture
from eigenmesh.report._pictures import require_picture, save_picture
from eigenmesh.report._run_picture import convergence_picture, run_picture

__all__ = [
    "convergence_picture",
    "disagreement_picture",
    "loadings_picture",
    "network_picture",
    "require_picture",
    "run_picture",
    "save_picture",
    "scores_picture",
    "scree_picture",
    "traffic_picture",
]
