"""Solvers of the literature."""
