"""Pictures and tables of networks, runs and components. matplotlib is imported only when a picture is drawn."""

from eigenmesh.report.pictures import (
    convergence_picture,
    disagreement_picture,
    loadings_picture,
    network_picture,
    result_picture,
    run_picture,
    save_picture,
    scores_picture,
    scree_picture,
    traffic_picture,
)

__all__ = [
    "convergence_picture",
    "disagreement_picture",
    "loadings_picture",
    "network_picture",
    "result_picture",
    "run_picture",
    "save_picture",
    "scores_picture",
    "scree_picture",
    "traffic_picture",
]
