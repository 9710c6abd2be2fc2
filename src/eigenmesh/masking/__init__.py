"""Pairwise masks: every site adds words that it shares with one other site; in the sum over all sites they cancel."""

from eigenmesh.masking._disclosure import Disclosure, known_of_all
from eigenmesh.masking._graph import ALL_PAIRS_UP_TO, MaskGraph, mask_graph, mask_rule
from eigenmesh.masking._keys import MaskContext, SiteKey, pair_key
from eigenmesh.masking._masks import MIN_SITES, Masks, PairwiseMasks, Transcript, pairwise_masks

__all__ = [
    "ALL_PAIRS_UP_TO",
    "MIN_SITES",
    "Disclosure",
    "MaskContext",
    "MaskGraph",
    "Masks",
    "PairwiseMasks",
    "SiteKey",
    "Transcript",
    "known_of_all",
    "mask_graph",
    "mask_rule",
    "pair_key",
    "pairwise_masks",
]


def __dir__() -> list[str]:
    return __all__
