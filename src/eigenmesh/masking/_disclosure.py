"""What a run has revealed, and to whom, in plain sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eigenmesh.masking._graph import graph_of_size

OPEN = "neighbours see what a node adds to an average"


@dataclass(frozen=True)
class Disclosure:
    """What all nodes know after a run, about all samples together and about those of one node.

    Attributes
    ----------
    n_nodes : int
        How many nodes masked their numbers; 0 if nothing was masked.
    n_features : int
        d.
    columns : int
        How many columns of products with the pooled covariance all nodes have received.
    by_columns : bool
        Whether each node has its own columns of the same samples; d is then the length of a vector that they send,
        N - 1.
    signed : bool
        Whether nodes sign their keys and what they have heard; see ``Masks``.
    left : tuple of str
        Nodes that left during the run.
    """

    n_nodes: int = 0
    n_features: int = 0
    columns: int = 0
    by_columns: bool = False
    signed: bool = False
    left: tuple[str, ...] = ()

    @property
    def masked(self) -> bool:
        """Whether any average of the run was masked."""
        return self.n_nodes > 0

    @property
    def of_all_samples(self) -> str:
        """What all nodes know about the pooled samples, in addition to the result."""
        return known_of_all(self.columns, self.n_features, self.by_columns)

    @property
    def of_one_that_left(self) -> str:
        """What all others know about one node that left."""
        own = "number of columns, total variance" if self.by_columns else "N, mean, variances"
        return f"{own}, and products on the dimensions that both results show: from the difference of two sums"

    @property
    def _condition(self) -> str:
        return "" if self.signed else ", if all nodes follow the protocol"

    def numbers(self) -> dict[str, Any]:
        """The disclosure as JSON values."""
        if not self.masked:
            return {"mode": "open", "of_one_site": OPEN}
        graph = graph_of_size(self.n_nodes)
        return {
            "mode": "masked",
            "masks": graph.rule,
            "colluders": graph.collusion,
            "of_all_samples": self.of_all_samples,
            "columns": self.columns,
            "of_one_site": f"nothing{', except of those that left' if self.left else ''}{self._condition}",
        }

    @property
    def words(self) -> tuple[str, ...]:
        """Sentences for a reader; none after an open run."""
        if not self.masked:
            return ()
        one = "any other single node" if self.left else "any single node"
        collusion = graph_of_size(self.n_nodes).collusion
        words = [
            f"Masked: nobody has learned a number of {one}{self._condition}; {collusion}.",
            f"All nodes now know {self.of_all_samples}.",
        ]
        if self.left:
            known = f"The others can work out what a node that leaves has sent: {self.of_one_that_left}."
            words.insert(0, f"{', '.join(self.left)} left during the run. {known}")
        return tuple(words)


def known_of_all(columns: int, n_features: int, by_columns: bool = False) -> str:
    """What these columns of products with the pooled covariance, and the moments, reveal about all samples together."""
    known = min(columns, n_features)
    where = "all" if known == n_features else f"at most {known:,} of"
    products = f"by {columns:,} columns of products"
    moments, matrix = "N, mean, variances", "covariance"
    if by_columns:
        moments, matrix = "scores of all samples, number of columns, total variance", "Gram matrix"
    return f"{moments}, and the pooled {matrix} on {where} {n_features:,} dimensions, {products}"
