"""Experiments of published papers, and our own: settings -> problems -> runs -> tables -> claims."""

from eigenmesh.experiments.comparison import Compared, compare

__all__ = ["Compared", "compare"]
