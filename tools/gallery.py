"""The order of the gallery: data of users first, then what a fit tells, then engines, then networks and solvers."""

from __future__ import annotations

ORDER = (
    "plot_unlike_hospitals",
    "plot_columns_over_sites",
    "plot_single_cells",
    "plot_spectra",
    "plot_genotypes",
    "plot_stream_with_alarm",
    "plot_bound_and_truth",
    "plot_what_a_neighbour_sees",
    "plot_plan",
    "plot_rounds_by_network",
    "plot_mpi",
    "plot_dask",
    "plot_gpu",
    "plot_own_network",
    "plot_one_way_ring",
    "plot_own_solver",
)


class Chosen:
    """Sort key of scripts in a folder of the gallery."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, name: str) -> int:
        return ORDER.index(name.removesuffix(".py"))
