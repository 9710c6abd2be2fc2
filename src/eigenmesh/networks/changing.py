"""Networks that change from round to round or lose messages, so that there is no tree, diameter or spectrum.

All methods rely on conserved sums: what a node keeps and sends in a round adds up to what it had. All nodes know the
links of every round, and so who has heard from whom. Whether all nodes are in one process or each in its own differs
only in how messages reach their receivers (`AllHere`, `OneHere`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, NoReturn

import numpy as np
import scipy

from eigenmesh import averaging as av
from eigenmesh.arrays import Array, whole
from eigenmesh.averaging import CHANCE, LinearRound, PushSum
from eigenmesh.errors import GraphError, InputError
from eigenmesh.graphs import NetworkSequence, Weights
from eigenmesh.graphs.changing import over_time
from eigenmesh.networks.codec import Bound
from eigenmesh.networks.mixes import Mixes, PushMixes, rounds_to_contract
from eigenmesh.networks.network import Network
from eigenmesh.networks.traffic import Traffic
from eigenmesh.transports import Transport

# How messages reach their receivers.


class AllHere:
    """All nodes in this process: a receiver reads the arrays of its senders where they are."""

    def __init__(self, n_nodes: int) -> None:
        self.ids: Sequence[int] = range(n_nodes)

    def received(self, linked: np.ndarray, arrays: tuple[Array, ...]) -> Sequence[Array]:
        """What there is after a round in which ``linked``, (M, M), says who (row) hears from whom (column)."""
        return arrays

    def sums(self, weights: np.ndarray, stack: Array) -> Array:
        """``sum_j w_ij x_j`` of a received array, with weights (M, M): (nodes, ...)."""
        return (av.in_order(weights.astype(stack.dtype)) @ stack.reshape(len(stack), -1)).reshape(stack.shape)

    def maxima(self, linked: np.ndarray, stack: Array) -> Array:
        """The largest of a node's own and all received values: (nodes, n)."""
        return np.stack([stack[senders].max(axis=0) for senders in linked])


class OneHere:
    """One node in this process: messages go through a transport, and arrive as stacks of this node and its senders."""

    def __init__(self, transport: Transport) -> None:
        self.ids: Sequence[int] = (transport.rank,)
        self._transport, self._heard = transport, [transport.rank]

    def received(self, linked: np.ndarray, arrays: tuple[Array, ...]) -> Sequence[Array]:
        rank = self._transport.rank
        lines = linked[rank], linked[:, rank]
        senders, receivers = ([j for j in np.flatnonzero(line).tolist() if j != rank] for line in lines)
        # The order of `in_order`, so that sums have the bits of the simulation: this node, then its senders.
        self._heard = [rank, *senders]
        return self._transport.gather(arrays, self._transport.links(receivers, senders))

    def sums(self, weights: np.ndarray, stack: Array) -> Array:
        row = scipy.sparse.csr_array(weights[self._heard[0], self._heard].astype(stack.dtype)[np.newaxis])
        return (row @ stack.reshape(len(stack), -1)).reshape(stack.shape[1:])

    def maxima(self, linked: np.ndarray, stack: Array) -> Array:
        return stack.max(axis=0)


class ChangingRound(NamedTuple):
    """One round: its weights (M, M), the delay of each copy of a message (-1 if lost), and what has come.

    ``on_time``, (M, M), says which receiver (row) hears from which sender (column) in the round itself, each also from
    itself. Late messages are not among them.
    """

    weights: np.ndarray
    copies: list[np.ndarray]
    on_time: np.ndarray
    stacks: Sequence[Array]


# Running sums: mixing that conserves sums over links that lose messages, without acknowledgements.


# A link from sender j to receiver i is (i, j).
Link = tuple[int, int]


class RunningSums:
    """Mixing in which a message is the sum of everything ever sent over its link.

    ::

        s_ij <- s_ij + w_ij(t) x_j      at the sender j, who sends s_ij with its number and keeps w_jj x_j
        x_i <- x_i + s_ij - last_ij     at the receiver i, unless a later message came before; last_ij <- s_ij

    The next message repairs a lost one. Late, duplicate and reordered messages do no harm. The links have memory, so a
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
        weights, copies, *_ = self._network.send(arrays)
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


# Nodes that have not heard from each other give up after HORIZON_PER_NODE * M + HORIZON rounds.
HORIZON_PER_NODE, HORIZON = 16, 64
# Extra rounds of a flood, beyond the measured number.
SPARE_ROUNDS = 4
# Accuracy of later push sums, as a multiple of the error that rounding left in one: it grows with the rounds.
ABOVE_ROUNDING = 4.0
# A push sum may take as many rounds as a run, or if that is more, FLOODS times those of a flood: the certificate of a
# run needs averages even if the run may take few rounds. MOST_ROUNDS is for networks that are used without a run.
FLOODS, MOST_ROUNDS = 100, 100_000


class Changing(Network):
    """The nodes of a ``NetworkSequence`` in NumPy arrays: all M of them, (M, ...), or the one of a transport, (1, ...).

    ``mix`` uses the weights of the current round, and ``mean`` is a push sum that continues until it has reached its
    accuracy (``PushSum``). If rounding errors prevent that, ``average.accuracy`` is the accuracy that was reached.

    ``maximum`` floods. At the first call the nodes measure how many rounds it takes until all have heard from all, by
    floods of 1, 2, 4, ... rounds. A later flood that has missed a node continues, and raises an error that names it if
    that does not help.

    Parameters
    ----------
    sequence : NetworkSequence
        The links of each round, and which messages are lost, late or sent twice.
    averaging : PushSum, optional
        The accuracy of averages.
    transport : Transport, optional
        What connects the nodes, if this process holds one of them. Every process knows the links of each round, so all
        processes count the same traffic and take the same decisions.
    """

    def __init__(
        self, sequence: NetworkSequence, averaging: PushSum | None = None, transport: Transport | None = None
    ) -> None:
        if transport is not None:
            _require_carried(sequence, transport)
        self.sequence, self.transport = over_time(sequence), transport
        self.n_nodes = self.sequence.n_nodes
        self._nodes = AllHere(self.n_nodes) if transport is None else OneHere(transport)
        self.accuracy = (averaging or PushSum()).accuracy
        self._push_sums, self._contraction, self._most_rounds = 0, 0.0, MOST_ROUNDS
        self._arrived = Traffic()
        self._round = self._in_turn = self._flood_rounds = 0
        # Who has heard from whom of the piggyback, directly or through others.
        self._heard = np.zeros((0, 0), dtype=bool)
        self._link_messages, self._link_bytes = (np.zeros((self.n_nodes, self.n_nodes), dtype=int) for _ in range(2))
        self._begin(av.PushSumAverage(0, 0, 0, self.accuracy))

    # Facts about the network.

    @property
    def weights(self) -> Weights:
        raise self._no_fixed_links()

    @property
    def ids(self) -> Sequence[int]:
        return self._nodes.ids

    @property
    def links(self) -> Sequence[tuple[int, int]]:
        return ()

    @property
    def arrived(self) -> Traffic:
        return self._arrived

    def link_traffic(self) -> dict[tuple[int, int], tuple[int, int]]:
        places = np.argwhere(self._link_messages.T).tolist()
        return {(j, i): (int(self._link_messages[i, j]), int(self._link_bytes[i, j])) for j, i in places}

    @property
    def flood_rounds(self) -> int:
        if not self._flood_rounds:
            self._flood_rounds = self._measured_flood()
        return self._flood_rounds

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

    @contextmanager
    def over_tree(self) -> Iterator[None]:
        """Nothing: links that change form no tree."""
        yield

    def limit_rounds(self, max_rounds: int) -> None:
        """Let no push sum take more rounds than this. How many one takes is not known beforehand."""
        self._most_rounds = max_rounds

    def require_sums_kept(self) -> None:
        """Nothing: the weights of every round conserve the sum over all nodes."""

    def require_time(self) -> None:
        what = "nodes at their own pace need links that stay the same, and this network changes or loses messages"
        raise InputError(f"{what}; use the solver tracked-subspace, or eigenmesh simulate with a file of conditions.")

    # Single rounds, and mixes of several.

    def send(self, arrays: tuple[Array, ...]) -> ChangingRound:
        """One round that sends the arrays, and the piggyback if there is one."""
        weights = self.sequence.weights_at(self._round)
        links = (weights > 0) & ~np.eye(self.n_nodes, dtype=bool)
        copies = [np.where(links, late, -1) for late in self.sequence.arrivals(self._round)]
        n_bytes = self.meter.count(int(links.sum()), arrays, extra=self._piggyback.n_bytes)
        arrived = sum(int((late >= 0).sum()) for late in copies)
        self._arrived += Traffic(1, arrived, 0, arrived * n_bytes)
        self._in_turn += int(links.sum(axis=0).max())
        self._link_messages += links
        self._link_bytes += links * n_bytes
        self._round += 1
        on_time = np.logical_or.reduce([late == 0 for late in copies]) | np.eye(self.n_nodes, dtype=bool)
        carried = self._piggyback
        if carried.values is None:
            return ChangingRound(weights, copies, on_time, self._nodes.received(on_time, arrays))
        *stacks, values = self._nodes.received(on_time, (*arrays, carried.values))
        carried.values = self._nodes.maxima(on_time, values)
        carried.rounds += 1
        self._heard = _heard_after(self._heard, on_time)
        return ChangingRound(weights, copies, on_time, stacks)

    def mix(self, *arrays: Array) -> Array | tuple[Array, ...]:
        """One round with the current weights. If messages can get lost, only ``mixes`` conserves the sums."""
        self._require_reliable()
        sent = self.send(arrays)
        mixed = tuple(self._nodes.sums(sent.weights, stack) for stack in sent.stacks)
        return mixed if len(mixed) > 1 else mixed[0]

    def push_pull(self, X: Array, S: Array) -> tuple[Array, Array]:
        """Half a step with the current weights. Over one-way links a node averages the X that it receives."""
        self._require_reliable()
        columns, *_, (stack_X, stack_S) = self.send((X, S))
        heard = columns > 0
        rows = heard / heard.sum(axis=1, keepdims=True) if self.sequence.one_way else columns
        return (X + self._nodes.sums(rows, stack_X)) / 2, (S + self._nodes.sums(columns, stack_S)) / 2

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

    # Maxima: floods that record who has heard from whom.

    def maximum(self, values: Array) -> Array:
        rounds = self.flood_rounds
        agreed, heard = self._flood(self._rows(values), rounds)
        while not heard.all():
            self._require_time_left(heard, rounds)
            agreed, heard = self._flood(agreed, SPARE_ROUNDS, heard)
            rounds += SPARE_ROUNDS
        return agreed[: len(values)].reshape(values.shape)

    def _rows(self, values: Array) -> Array:
        """Values as rows (nodes, n), one per node in this process, where a single row is repeated."""
        return np.broadcast_to(values.reshape(len(values), -1), (len(self.ids), values[0].size))

    def _flood(self, values: Array, rounds: int, heard: np.ndarray | None = None) -> tuple[Array, np.ndarray]:
        """Neighbour maxima over the given rounds, (nodes, n), and who has heard from whom, (M, M).

        ``heard`` is who had heard from whom before, if this continues a flood. Late messages count as lost.
        """
        heard = np.eye(self.n_nodes, dtype=bool) if heard is None else heard
        for _ in range(rounds):
            sent = self.send((values,))
            values, heard = self._nodes.maxima(sent.on_time, sent.stacks[0]), _heard_after(heard, sent.on_time)
        return values, heard

    def _measured_flood(self) -> int:
        """Rounds after which all have heard from all, by floods of 1, 2, 4, ... rounds, and some spare rounds.

        Each flood also carries which nodes had heard from all in the flood before. A node that hears from all nodes
        that they had, knows that the flood before was long enough.
        """
        rounds, enough = 1, False
        while True:
            heard = self._flood(np.zeros((len(self.ids), 1)), rounds)[1]
            if enough and heard.all():
                return rounds + SPARE_ROUNDS
            self._require_time_left(heard, rounds)
            enough, rounds = bool(heard.all()), 2 * rounds

    def _require_time_left(self, heard: np.ndarray, rounds: int) -> None:
        """Raise GraphError if a node has not heard from another one for so long that it never will."""
        if heard.all() or rounds <= HORIZON_PER_NODE * self.n_nodes + HORIZON:
            return
        node = int(np.argmin(heard.sum(axis=1)))
        silent = ", ".join(str(other) for other in np.flatnonzero(~heard[node])[:5])
        unheard = f"node {node} has not heard from node {silent} within {rounds} rounds"
        raise GraphError(f"{unheard}: the network is not connected over this time; add links, or lose fewer messages.")

    def piggyback(self, values: Array) -> None:
        super().piggyback(values)
        self._heard = np.eye(self.n_nodes, dtype=bool)

    def piggybacked(self) -> Array | None:
        if self.piggybacking and not self._heard.all():
            self._require_time_left(self._heard, self._piggyback.rounds)
            return None
        return super().piggybacked()

    def _neighbour_maxima(self, values: Array, rounds: int) -> Array:
        """The values as they are: a piggyback has travelled until all nodes had heard from all."""
        return values

    # Averages: push sums.

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
        probes, mix = av.Probes.drawn(self.n_nodes, self._push_sums), self._new_mix()
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
            stuck = av.only_rounding_left(largest, before)
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
        self.average = av.PushSumAverage(rounds, round(rounds * messages_per_round), in_turn, self.accuracy)
        return averaged, agreed[: len(sent), 1:].reshape(sent.shape)

    def _forecast(self) -> int:
        """Rounds that should be enough, by the contraction of the last push sum, or at first twice those of a flood."""
        if not self._contraction:
            return 2 * self.flood_rounds
        return rounds_to_contract(self.accuracy / 10, self._contraction)

    # What only links that stay the same have.

    def combine(self, exchange: LinearRound, *arrays: Array) -> NoReturn:
        raise self._no_fixed_links()

    _combine = send_down = _tree_maxima = _packed_sum = combine  # type: ignore[assignment]
    _reduced_mean = _reduced_sum = _reduced_maximum = combine  # type: ignore[assignment]

    def _no_fixed_links(self) -> InputError:
        fix = "use the solver tracked-subspace, which does not need them"
        return InputError(f"a network that changes has no fixed weights, tree or exact averages; {fix}.")


def _heard_after(heard: np.ndarray, on_time: np.ndarray) -> np.ndarray:
    """Who has heard from whom after one more round, directly or through others: (M, M)."""
    return np.asarray((on_time.astype(np.int64) @ heard.astype(np.int64)) > 0)


def _require_carried(sequence: NetworkSequence, transport: Transport) -> None:
    """Raise InputError unless the transport has these nodes, and can do what the network does over time."""
    engine = type(transport).__name__
    if transport.size != sequence.n_nodes:
        raise InputError(f"the transport has {transport.size} nodes, the graph {sequence.n_nodes}; make them equal.")
    if not transport.changes_links:
        fix = "use threads or torch, or leave the transport out"
        raise InputError(f"{engine} keeps its links for the whole run, but this network changes; {fix}.")
    if not sequence.reliable:
        simulated = "loss, delay and duplicates can only be simulated"
        raise InputError(f"{engine} loses no messages: {simulated}; leave them out, or leave the transport out.")
