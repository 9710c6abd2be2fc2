"""Masks of a site whose machine records the masked words in the journal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eigenmesh.masking import pairwise_masks
from eigenmesh.protocol._events import Mask, PublicKeys
from eigenmesh.protocol._machine import SiteMachine


class JournalledMasks:
    """Masks whose words are in the journal before they are sent; after a crash the same words are sent again.

    ``ask`` makes a request to the machine; ``known`` has the keys that the members of the current epoch have signed.
    """

    signed = True

    def __init__(self, machine: SiteMachine, ask: Callable[[Any], Any], known: PublicKeys) -> None:
        context = machine.mask_context
        publics, rank = [known.publics[name] for name in context.names], context.names.index(machine.setup.name)
        self.left = tuple(name for name in machine.setup.sites if name not in context.names)
        self._ask, self._masks = ask, pairwise_masks(machine.past.site_key(machine.lost), publics, rank, context)

    def hear(self, digest: bytes) -> None:
        self._masks.hear(digest)

    def news(self) -> tuple[bytes, ...]:
        """Running hashes of what the site has heard since the last call, for the machine."""
        return self._masks.transcript.news()

    def masked(self, number: int, words: np.ndarray) -> np.ndarray:
        """The masked words that may be sent for the average with this number, (n,) -> (n,) uint64."""
        masked = self._masks.masked(number, words).astype("<u8", copy=False).tobytes()
        return np.frombuffer(self._ask(Mask(number, self.news(), masked)).masked, "<u8").astype(np.uint64, copy=False)
