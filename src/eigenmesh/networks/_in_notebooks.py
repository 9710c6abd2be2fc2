"""How a notebook shows a network: its graph, and the traffic so far."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter

from eigenmesh._text import html_paragraphs, readable_bytes
from eigenmesh.graphs import NetworkSequence, Weights
from eigenmesh.graphs._circle_picture import circle_picture
from eigenmesh.networks._traffic import Counted


class NetworkView(Counted):
    """HTML of a network that counts its traffic."""

    @property
    @abstractmethod
    def _wiring(self) -> Weights | NetworkSequence:
        """The links."""

    def _repr_html_(self) -> str:
        sent, weights = self.traffic, self._wiring
        words = f"{sent.rounds:,} rounds, {sent.messages:,} messages, {readable_bytes(sent.bytes)} so far"
        if isinstance(weights, NetworkSequence):
            return f"<div>{html_paragraphs([f'{type(self).__name__}: {words}.'])}{weights._repr_html_()}</div>"
        about = f"{type(self).__name__} of {weights.n_nodes} nodes and {weights.edges} links: {words}"
        wider = "; links are wider the more went over them" if self.exchanges else ""
        over = Counter[frozenset[int]]()
        for link, (_, n_bytes) in self.link_traffic().items():
            over[frozenset(link)] += n_bytes
        return f"<div>{html_paragraphs([f'{about}{wider}.'])}{circle_picture(weights.graph, over)}</div>"
