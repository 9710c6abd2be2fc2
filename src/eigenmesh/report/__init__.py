"""Pictures and tables of networks and runs. matplotlib is imported only when a picture is drawn."""

from eigenmesh.report._network_picture import network_picture
from eigenmesh.report._pictures import require_picture, save_picture
from eigenmesh.report._run_picture import convergence_picture, run_picture

__all__ = ["convergence_picture", "network_picture", "require_picture", "run_picture", "save_picture"]
