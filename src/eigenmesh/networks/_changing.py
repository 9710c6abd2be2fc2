"""Networks that change from round to round or lose messages, so that there is no tree, diameter or spectrum.

All methods rely on conserved sums: what a node keeps and sends in a round adds up to what it had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

import numpy as np

from eigenmesh.arrays import Array, whole
from eigenmesh.averaging import LinearRound, PushSum
from eigenmesh.averaging._base import in_order, only_rounding_left
from eigenmesh.averaging._push_sum import CHANCE, Probes, PushSumAverage
from eigenmesh.errors import GraphError, InputError
from eigenmesh.graphs import NetworkSequence, Weights
from eigenmesh.networks._floods import Flooding
from eigenmesh.networks._integers import Bound
from eigenmesh.networks._mixes import Mixes, PushMixes, rounds_to_contract
from eigenmesh.networks._running_sums import RunningSums

# Accuracy of later push sums, as a multiple of the error that rounding left in one: it grows with the rounds.
ABOVE_ROUNDING = 4.0
# A push sum may take as many rounds as a run, or if that is more, FLOODS times those of a flood: the certificate of a
# run needs averages even if the run may take few rounds. MOST_ROUNDS is for networks that are used without a run.
FLOODS, MOST_ROUNDS = 100, 100_000


class Changing(Flooding):
    """Hold all M nodes of a ``NetworkSequence`` in NumPy arrays of shape (M, ...).

    ``mix`` uses the weights of the current round, ``worst`` floods (``Flooding``), and ``mean`` is a push sum that
    continues until it has reached its accuracy (``PushSum``). If rounding errors prevent that, ``average.accuracy`` is
    the accuracy that was reached.
    """

    def __init__(self, sequence: NetworkSequence, averaging: PushSum | None = None) -> None:
        self.accuracy = (averaging or PushSum()).accuracy
        self._push_sums, self._contraction, self._most_rounds = 0, 0.0, MOST_ROUNDS
        super().__init__(sequence, PushSumAverage(0, 0, 0, self.accuracy))

    @property
    def weights(self) -> Weights:
        raise self._no_fixed_links()

    def _mixed(self, weights: Sequence[np.ndarray], arrays: Sequence[Array]) -> tuple[Array, ...]:
        """``sum_j w_ij x_j`` of each array with its own weights, all in the messages of this round."""
        pairs = zip(weights, arrays, strict=True)
        return tuple((in_order(W.astype(x.dtype)) @ x.reshape(len(x), -1)).reshape(x.shape) for W, x in pairs)

    def mix(self, *arrays: Array) -> Array | tuple[Array, ...]:
        """One round with the current weights; if messages can get lost, only ``mixes`` conserves the sums."""
        self._require_reliable()
        weights, _ = self.send(arrays)
        mixed = self._mixed([weights] * len(arrays), arrays)
        return mixed if len(mixed) > 1 else mixed[0]

    def push_pull(self, X: Array, S: Array) -> tuple[Array, Array]:
        """Half a step with the current weights; over one-way links a node averages the X that it receives."""
        self._require_reliable()
        columns, _ = self.send((X, S))
        heard = columns > 0
        rows = heard / heard.sum(axis=1, keepdims=True) if self.sequence.one_way else columns
        mixed_X, mixed_S = self._mixed((rows, columns), (X, S))
        return (X + mixed_X) / 2, (S + mixed_S) / 2

    @contextmanager
    def over_tree(self) -> Iterator[None]:
        """Nothing: links that change form no tree."""
        yield

    def require_time(self) -> None:
        what = "nodes at their own pace need links that stay the same, and this network changes or loses messages"
        raise InputError(f"{what}; use the solver tracked-subspace, or eigenmesh simulate with a file of conditions.")

    def limit_rounds(self, max_rounds: int) -> None:
        """Let no push sum take more rounds than this; how many one takes is not known beforehand."""
        self._most_rounds = max_rounds

    def require_sums_kept(self) -> None:
        """Nothing: the weights of every round conserve the sum over all nodes."""

    def _require_reliable(self) -> None:
        if not self.sequence.reliable:
            raise InputError("this solver cannot run over links that lose messages; use the solver tracked-subspace.")

    def mixes(self, rounds: int, before: Mixes | None = None) -> Mixes:
        mix = before.mix if isinstance(before, PushMixes) else self._new_mix()
        return PushMixes(rounds, self.contraction**rounds, mix)

    def mixes_to(self, contraction: float, before: Mixes | None = None) -> Mixes:
        return self.mixes(rounds_to_contract(contraction, self.contraction), before)

    def _new_mix(self) -> Callable[..., tuple[Array, ...]]:
        return self.mix if self.sequence.reliable else RunningSums(self).mix

    @property
    def contraction(self) -> float:
        if not self._contraction:
            self.mean(np.zeros((len(self.ids), 0)))
        return self._contraction

    @property
    def second_eigenvalue(self) -> float:
        return self.contraction

    @property
    def chance(self) -> float:
        return CHANCE * self._push_sums

    @property
    def flood_ends_average(self) -> bool:
        return True

    def reduced_mean(self, array: Array) -> Array:
        """A push sum over all nodes: (M, ...) -> (M, ...)."""
        return self._push_sum(array, np.zeros((1, 0)))[0]

    def shared_mean(self, array: Array, bound: Bound = None) -> Array:
        """The average of node 0, which travels in the flood by which the nodes agree on their errors."""
        return self._push_sum(array, None)[1][:1, ...]

    def common_mean_and_worst(self, array: Array, values: Array) -> tuple[Array, Array]:
        return self._push_sum(array, values)

    def _push_sum(self, array: Array, values: Array | None) -> tuple[Array, Array]:
        """Mix sums, weights and probes until all nodes are within ``accuracy`` of the mean.

        Returns the average and the maxima of ``values``, or of node 0's average if they are None. The maxima travel in
        the flood by which the nodes agree on their errors.
        """
        array = whole(array)
        sums, y = np.asarray(array, dtype=np.float64), np.ones((len(self.ids), 1))
        probes, mix = Probes.drawn(self.n_nodes, self._push_sums), self._new_mix()
        self._push_sums += 1
        # A single node has its mean from the start.
        mixed, first = probes.start[list(self.ids)], probes.error(probes.start, np.ones((self.n_nodes, 1))).max() or 1.0
        taken, rounds, largest = 0, self._forecast(), np.inf
        while True:
            for _ in range(rounds):
                sums, mixed, y = mix(sums, mixed, y)
            taken += rounds
            error = probes.error(mixed, y)
            averaged = (sums / y.reshape(len(y), *[1] * (sums.ndim - 1))).astype(array.dtype)
            sent = self._of_node_0(averaged) if values is None else values
            agreed = self.worst(np.hstack([error[:, np.newaxis], self._rows(sent)]))
            before, largest = largest, float(agreed[0, 0])
            self._contraction = min(max((largest / first) ** (1 / taken), 1e-3), 1 - 1e-9)
            if largest <= self.accuracy:
                break
            stuck = only_rounding_left(largest, before)
            # In a shorter block links may have been down.
            if stuck and rounds >= self.flood_rounds:
                self.accuracy = ABOVE_ROUNDING * largest
            most = max(self._most_rounds, FLOODS * self.flood_rounds)
            if taken >= most:
                slow = f"an average has an error of {largest:.1g} after {taken:,} rounds, and needs {self.accuracy:.1g}"
                raise GraphError(f"{slow}: the links are up too seldom; use links that are up more often.")
            rounds = rounds_to_contract(self.accuracy / largest, self._contraction) + 1
            # A block in which links were down says nothing about the next one, so the rounds are doubled at most.
            rounds = min(max(rounds, self.flood_rounds) if stuck else rounds, taken, most - taken)
        rounds = taken + self.flood_rounds
        messages_per_round, in_turn_per_round = (
            count / self.traffic.rounds for count in (self.traffic.messages, self._in_turn)
        )
        in_turn = rounds * in_turn_per_round
        self.average = PushSumAverage(rounds, round(rounds * messages_per_round), in_turn, self.accuracy)
        return averaged, agreed[: len(sent), 1:].reshape(sent.shape)

    def _forecast(self) -> int:
        """Rounds that should be enough, by the contraction of the last push sum; at first, twice those of a flood."""
        if not self._contraction:
            return 2 * self.flood_rounds
        return rounds_to_contract(self.accuracy / 10, self._contraction)

    def combine(self, exchange: LinearRound, *arrays: Array) -> NoReturn:
        raise self._no_fixed_links()

    _combine = _mean_reducer = _reduced_sum = _maximum = combine  # type: ignore[assignment]
    _common_mean_and_maximum = broadcast = combine  # type: ignore[assignment]

    def _no_fixed_links(self) -> InputError:
        fix = "use the solver tracked-subspace, which does not need them"
        return InputError(f"a network that changes has no fixed weights, tree or exact averages; {fix}.")
