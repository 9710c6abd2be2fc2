"""Pictures and tables of networks and runs. matplotlib is asked for only when a picture is drawn."""

from eigenmesh.report.convergence_picture import convergence_picture
from eigenmesh.report.network_picture import network_picture
from eigenmesh.report.pictures import require_picture, save_picture
from eigenmesh.report.run_picture import run_picture

__all__ = [
    "convergence_picture",
    "network_picture",
    "require_picture",
    "run_picture",
    "save_picture",
]
