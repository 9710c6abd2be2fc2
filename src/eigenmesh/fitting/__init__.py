"""One place where a fit is decided: request, prepare, fit; and the planner."""
