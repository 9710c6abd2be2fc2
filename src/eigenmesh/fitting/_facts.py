"""What is known about the data before anything is read or sent."""

from __future__ import annotations

from typing import Any, NamedTuple

from eigenmesh.fitting._matching import listed


class Size(NamedTuple):
    """N and d over all nodes; None if a single node cannot know it."""

    n_samples: int | None
    n_features: int | None


class DataFacts(NamedTuple):
    """What is known about samples without reading them.

    ``has_all_reduce``: the engine can sum over all nodes; ``n_features``, ``feature_names``: of the columns in this
    process; ``size``: of all nodes; ``length``: numbers in a vector that nodes send.
    """

    n_nodes: int
    n_features: int
    size: Size
    length: int
    has_all_reduce: bool = False
    feature_names: tuple[str, ...] | None = None
    node_names: tuple[str, ...] | None = None

    @property
    def common(self) -> dict[str, Any]:
        """The facts that must be the same at all nodes, as JSON values."""
        by_columns = self.size.n_features is None
        names = None if by_columns or self.feature_names is None else listed(self.feature_names)
        return {
            "partition": "features" if by_columns else "samples",
            "n_samples": self.size.n_samples,
            "n_features": self.size.n_features,
            "feature_names": names,
            "node_names": None if self.node_names is None else listed(self.node_names),
        }

    @classmethod
    def of_rows(cls, n_nodes: int, n_features: int, **more: Any) -> DataFacts:
        """Facts for nodes with samples of the same d columns: vectors have d numbers; one node does not know N."""
        return cls(n_nodes, n_features, Size(None, n_features), n_features, **more)
