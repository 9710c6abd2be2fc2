"""What is known of data before anything is read or sent."""

from __future__ import annotations

from typing import Any, NamedTuple


class Size(NamedTuple):
    """N and d over all nodes; None for what one node cannot know."""

    n_samples: int | None
    n_features: int | None


class DataFacts(NamedTuple):
    """What is known of samples without reading them.

    ``item_bytes`` is the size of one number that is sent; ``has_all_reduce``: the engine can sum over all nodes;
    ``n_features`` and ``feature_names`` are of the columns held here, ``size`` is that of all; ``length``: numbers in a
    vector that nodes send.
    """

    n_nodes: int
    n_features: int
    item_bytes: int
    size: Size
    length: int
    has_all_reduce: bool = False
    feature_names: tuple[str, ...] | None = None
    node_names: tuple[str, ...] | None = None

    @classmethod
    def of_rows(cls, n_nodes: int, n_features: int, item_bytes: int, **more: Any) -> DataFacts:
        """Where nodes hold samples of the same d columns: vectors have d numbers, and one node does not know N."""
        return cls(n_nodes, n_features, item_bytes, Size(None, n_features), n_features, **more)
