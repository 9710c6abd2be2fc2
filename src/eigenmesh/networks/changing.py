"""Networks that change from round to round or lose messages, so that there is no tree, diameter or spectrum.

All methods rely on conserved sums: what a node keeps and sends in a round adds up to what it had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

import numpy as np
from scipy import sparse

from eigenmesh.arrays import Array, whole
from eigenmesh.averaging import CHANCE, LinearRound, Probes, PushSum, PushSumAverage, in_order, only_rounding_left
from eigenmesh.errors import GraphError, InputError
from eigenmesh.graphs import NetworkSequence, Weights
from eigenmesh.networks.network import Bound, Flooding, Mixes, PushMixes, rounds_to_contract
from eigenmesh.transports import Transport

# Running sums: mixing that conserves sums over links that lose messages, without acknowledgements.


# A link from sender j to receiver i is (i, j).
Link = tuple[int, int]


class RunningSums:
    """Mixing in which a message is the sum of everything ever sent over its link.

    ::

        s_ij <- s_ij + w_ij(t) x_j      at the sender j, who sends s_ij with its number and keeps w_jj x_j
        x_i <- x_i + s_ij - last_ij     at the receiver i, unless a later message came before; last_ij <- s_ij

    The next message repairs a lost one; late, duplicate and reordered messages do no harm. The links have memory, so a
    sum that is mixed in several calls must always be mixed by the same object.
    """

    def __init__(self, network: Changing) -> None:
        self._network = network
        self._sent: dict[Link, np.ndarray] = {}
        # Number and content of the newest message on each link.
        self._newest: dict[Link, tuple[int, np.ndarray]] = {}
        # Messages on their way, by the round in which they arrive: link, number, sum.
        self._in_flight: dict[int, list[tuple[Link, int, np.ndarray]]] = {}
        self._round = 0

    def mix(self, *arrays: Array) -> tuple[Array, ...]:
        """One round on all arrays, each (M, ...), in one message."""
        weights, copies = self._network.send(arrays)
        values = np.concatenate([array.reshape(len(array), -1) for array in arrays], axis=1)
        mixed = weights.diagonal()[:, np.newaxis] * values
        for receiver, sender in np.argwhere(weights).tolist():
            if receiver != sender:
                self._send((receiver, sender), weights[receiver, sender] * values[sender], copies)
        for link, number, total in self._in_flight.pop(self._round, []):
            newest, known = self._newest.get(link, (-1, np.zeros_like(total)))
            if number > newest:
                mixed[link[0]] += total - known
                self._newest[link] = (number, total)
        self._round += 1
        parts = np.split(mixed, np.cumsum([array[0].size for array in arrays])[:-1], axis=1)
        return tuple(part.reshape(array.shape) for part, array in zip(parts, arrays, strict=True))

    def _send(self, link: Link, share: np.ndarray, copies: list[np.ndarray]) -> None:
        total = self._sent[link] = share + self._sent.get(link, 0.0)
        for late in copies:
            if late[link] >= 0:
                self._in_flight.setdefault(self._round + int(late[link]), []).append((link, self._round, total))


# Accuracy of later push sums, as a multiple of the error that rounding left in one: it grows with the rounds.
ABOVE_ROUNDING = 4.0
# A push sum may take as many rounds as a run, or if that is more, FLOODS times those of a flood: the certificate of a
# run needs averages even if the run may take few rounds. MOST_ROUNDS is for networks that are used without a run.
FLOODS, MOST_ROUNDS = 100, 100_000


class Changing(Flooding):
    """Hold all M nodes of a ``NetworkSequence`` in NumPy arrays of shape (M, ...).

    ``mix`` uses the weights of the current round, ``maximum`` floods (``Flooding``), and ``mean`` is a push sum that
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

    def common_mean_and_maximum(self, array: Array, values: Array) -> tuple[Array, Array]:
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
            agreed = self.maximum(np.hstack([error[:, np.newaxis], self._rows(sent)]))
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
    _common_mean_and_maximum = send_down = combine  # type: ignore[assignment]

    def _no_fixed_links(self) -> InputError:
        fix = "use the solver tracked-subspace, which does not need them"
        return InputError(f"a network that changes has no fixed weights, tree or exact averages; {fix}.")


# One node per process on a network that changes from round to round, over a transport.


class ChangingPeers(Changing):
    """Hold one node of a ``NetworkSequence``, NumPy arrays of shape (1, ...), and exchange with its current neighbours.

    Every process knows the links of each round, so all processes count the same traffic and take the same decisions.
    """

    def __init__(self, sequence: NetworkSequence, transport: Transport, averaging: PushSum | None = None) -> None:
        engine = type(transport).__name__
        if transport.size != sequence.n_nodes:
            raise InputError(
                f"the transport has {transport.size} nodes, the graph {sequence.n_nodes}; make them equal."
            )
        if not transport.changes_links:
            fix = "use threads or torch, or leave the transport out"
            raise InputError(f"{engine} keeps its links for the whole run, but this network changes; {fix}.")
        if not sequence.reliable:
            simulated = "loss, delay and duplicates can only be simulated"
            raise InputError(f"{engine} loses no messages: {simulated}; leave them out, or leave the transport out.")
        self.transport = transport
        super().__init__(sequence, averaging)

    @property
    def ids(self) -> Sequence[int]:
        return (self.transport.rank,)

    def private_bytes(self, count: int) -> bytes:
        return self.transport.private_bytes(count)

    def _spread_rider(self, rider: Array, on_time: np.ndarray) -> None:
        """Nothing: the rider travels with the arrays (``_gathered``)."""

    def _spread(self, values: Array, on_time: np.ndarray) -> Array:
        return self._gathered(on_time, (values,))[1][0].max(axis=0)

    def _mixed(self, weights: Sequence[np.ndarray], arrays: Sequence[Array]) -> tuple[Array, ...]:
        rank, (places, stacks) = self.transport.rank, self._gathered(weights[-1] > 0, tuple(arrays))
        return tuple(
            # The order of `in_order`: this node, then its senders.
            (sparse.csr_array(W[rank, places].astype(x.dtype)[np.newaxis]) @ x.reshape(len(x), -1)).reshape(x.shape[1:])
            for W, x in zip(weights, stacks, strict=True)
        )

    def _gathered(self, linked: np.ndarray, arrays: tuple[Array, ...]) -> tuple[list[int], tuple[Array, ...]]:
        """This node and its senders, and their arrays, (1 + senders, ...) each; the rider travels with them."""
        rank, riding = self.transport.rank, () if self._rider is None else (self._rider,)
        lines = linked[rank], linked[:, rank]
        senders, receivers = ([j for j in np.flatnonzero(line).tolist() if j != rank] for line in lines)
        stacks = self.transport.gather((*arrays, *riding), self.transport.links(receivers, senders))
        if riding:
            self._rider = stacks[-1].max(axis=0)
        return [rank, *senders], stacks[: len(arrays)]
