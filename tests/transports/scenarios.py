"""What every transport must do, as work for one node and the answer that is due there.

``SCENARIOS`` holds the work: a function of the transport that returns named arrays. ``DUE`` holds the answers:
functions of (rank, size) that know nothing of any transport.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable

import networkx as nx
import numpy as np

from eigenmesh import graphs
from eigenmesh.transports import Transport

Outcome = dict[str, np.ndarray | str | float]

TOPOLOGIES: dict[str, Callable[[int], nx.Graph]] = {
    "ring": graphs.topologies.cycle,
    "star": graphs.topologies.star,
    "path": graphs.topologies.path,
    "random": lambda size: graphs.topologies.erdos_renyi(size, seed=1),
}
DTYPES = ("float64", "float32", "int64", "uint8")
SHAPES = ((1,), (1, 7, 3), (1, 1000, 100))
BIG = 3_000_000
TURNS = 3
SLOW_S = 0.5
# The message of every turn: several dtypes and shapes, an odd number of bytes among them, and nothing at all.
MIXED = (("float64", (1, 4, 2)), ("uint8", (5,)), ("float32", (3,)), ("int64", ()), ("float64", (0, 2)), ("bool", (7,)))


def graph_of(name: str, size: int) -> nx.Graph:
    return nx.empty_graph(size) if size == 1 else TOPOLOGIES[name](size) if size > 2 else nx.path_graph(size)


def content(dtype: str, shape: tuple[int, ...], rank: int, turn: int) -> np.ndarray:
    """What a node sends in a turn: every number its own."""
    values = np.arange(np.prod(shape, dtype=int)) * 3 + 10 * rank + turn
    return (values % 251).reshape(shape).astype(dtype)


def noted(array: np.ndarray) -> np.ndarray | str:
    """The array, copied, for the next turn may write to the same buffers; of a large one what tells it from others."""
    if array.size < 100:
        return np.array(array)
    return f"{array.dtype}{array.shape} {zlib.crc32(np.ascontiguousarray(array))}"


def over_graph(name: str, kinds: tuple[tuple[str, tuple[int, ...]], ...]) -> Callable[[Transport], Outcome]:
    """Send to all neighbours, several times, and give back what came from each."""

    def work(transport: Transport) -> Outcome:
        neighbours = sorted(graph_of(name, transport.size).neighbors(transport.rank))
        links = transport.links(neighbours, neighbours)
        seen: Outcome = {}
        for turn in range(TURNS):
            sent = tuple(content(dtype, shape, transport.rank, turn) for dtype, shape in kinds)
            for sender, message in transport.exchange(sent, links).items():
                seen |= {f"{turn}.{sender}.{index}": noted(array) for index, array in enumerate(message)}
            for array in sent:
                array[...] = 1  # what was sent must not change any more
        return seen

    return work


def over_graph_due(name: str, kinds: tuple[tuple[str, tuple[int, ...]], ...]) -> Callable[[int, int], Outcome]:
    def due(rank: int, size: int) -> Outcome:
        return {
            f"{turn}.{sender}.{index}": noted(content(dtype, shape, sender, turn))
            for turn in range(TURNS)
            for sender in graph_of(name, size).neighbors(rank)
            for index, (dtype, shape) in enumerate(kinds)
        }

    return due


def one_way(transport: Transport) -> Outcome:
    """Down a line: the first only sends, the last only hears; then a round in which only two nodes take part."""
    rank, last = transport.rank, transport.size - 1
    down = transport.links([rank + 1] if rank < last else [], [rank - 1] if rank > 0 else [])
    heard = transport.exchange((np.array([float(rank)]),), down)
    pair = transport.links([last] if rank == 0 < last else [], [0] if rank == last > 0 else [])
    told = transport.exchange((np.array([rank + 7], dtype=np.int64),), pair)
    return {
        "heard": np.array([(sender, message[0][0]) for sender, message in heard.items()]),
        "told": np.array([(sender, message[0][0]) for sender, message in told.items()]),
    }


def one_way_due(rank: int, size: int) -> Outcome:
    return {
        "heard": np.array([(rank - 1.0, rank - 1.0)] if rank else []),
        "told": np.array([(0, 7)] if rank == size - 1 > 0 else []),
    }


def big_message(transport: Transport) -> Outcome:
    """Tens of MB both ways at once."""
    beside = _beside(transport.rank, transport.size)
    received = transport.exchange((content("float64", (BIG,), transport.rank, 0),), transport.links(beside, beside))
    return {f"{sender}": noted(message[0]) for sender, message in received.items()}


def big_message_due(rank: int, size: int) -> Outcome:
    return {f"{sender}": noted(content("float64", (BIG,), sender, 0)) for sender in _beside(rank, size)}


def gathered(transport: Transport) -> Outcome:
    """The stacks have this node first, then the others in the order of the links, not of their ranks."""
    others = [rank for rank in reversed(range(transport.size)) if rank != transport.rank]
    stacks = transport.gather(_two(transport.rank), transport.links(others, others))
    return {"first": np.array(stacks[0]), "second": np.array(stacks[1])}


def gathered_due(rank: int, size: int) -> Outcome:
    order = [rank, *(other for other in reversed(range(size)) if other != rank)]
    first, second = zip(*(_two(sender) for sender in order), strict=True)
    return {"first": np.stack(first), "second": np.stack(second)}


def _two(rank: int) -> tuple[np.ndarray, np.ndarray]:
    return content("float64", (1, 3, 2), rank, 0), content("float32", (5,), rank, 1)


def many_rounds(transport: Transport) -> Outcome:
    """Kinds of message and links in turns: what was kept for one must not be taken for another."""
    rank, size = transport.rank, transport.size
    both = transport.links(_beside(rank, size), _beside(rank, size))
    onward = transport.links(_ahead(rank, size), _behind(rank, size))
    total = 0.0
    for turn in range(60):
        message = (np.full((1 + turn % 13,), float(rank + turn)),)
        received = transport.exchange(message, onward if turn % 2 else both)
        total += sum(float(arrays[0].sum()) for arrays in received.values())
    return {"total": total}


def many_rounds_due(rank: int, size: int) -> Outcome:
    both, onward = _beside(rank, size), _behind(rank, size)
    pairs = [(turn, sender) for turn in range(60) for sender in (onward if turn % 2 else both)]
    return {"total": float(sum((1 + turn % 13) * (sender + turn) for turn, sender in pairs))}


def slow_node(transport: Transport) -> Outcome:
    """The last node comes late and is waited for."""
    if transport.rank == transport.size - 1:
        time.sleep(SLOW_S)
    others = [rank for rank in range(transport.size) if rank != transport.rank]
    received = transport.exchange((np.array([2.0**transport.rank]),), transport.links(others, others))
    return {"sum": float(sum(message[0][0] for message in received.values()))}


def slow_node_due(rank: int, size: int) -> Outcome:
    return {"sum": 2.0**size - 1 - 2.0**rank}


def all_reduced(transport: Transport) -> Outcome:
    outcome: Outcome = {}
    for dtype in ("float64", "float32", "int64"):
        for shape in SHAPES:
            for turn in range(2):
                array = content(dtype, shape, transport.rank, turn)
                for reduction in ("sum", "max"):
                    reduced = transport.all_reduce(array, reduction)
                    outcome[f"{dtype}.{len(shape)}.{np.prod(shape)}.{turn}.{reduction}"] = noted(reduced)
                if dtype != "int64":
                    parts = np.stack([content(dtype, shape, rank, turn) for rank in range(transport.size)])
                    mean = np.asarray(transport.all_reduce(array, "mean"))
                    # Shares are rounded one by one, so the last bits depend on the order in which they are added.
                    rtol = 1e-14 if dtype == "float64" else 1e-6
                    if mean.dtype != dtype or not np.allclose(mean, parts.mean(axis=0), rtol=rtol):
                        raise ValueError(f"the mean of {dtype}{shape} is wrong")
                if not (array == content(dtype, shape, transport.rank, turn)).all():
                    raise ValueError("all_reduce wrote to its argument")
    return outcome


def all_reduced_due(rank: int, size: int) -> Outcome:
    outcome: Outcome = {}
    for dtype in ("float64", "float32", "int64"):
        for shape in SHAPES:
            for turn in range(2):
                parts = np.stack([content(dtype, shape, other, turn) for other in range(size)])
                key = f"{dtype}.{len(shape)}.{np.prod(shape)}.{turn}"
                outcome |= {f"{key}.sum": noted(parts.sum(axis=0)), f"{key}.max": noted(parts.max(axis=0))}
    return outcome


def _beside(rank: int, size: int) -> list[int]:
    return sorted({(rank - 1) % size, (rank + 1) % size} - {rank})


def _behind(rank: int, size: int) -> list[int]:
    return sorted({(rank - 1) % size} - {rank})


def _ahead(rank: int, size: int) -> list[int]:
    return sorted({(rank + 1) % size} - {rank})


SCENARIOS: dict[str, Callable[[Transport], Outcome]] = {}
DUE: dict[str, Callable[[int, int], Outcome]] = {}

for _name in TOPOLOGIES:
    for _dtype in DTYPES:
        for _shape in SHAPES:
            _kinds = ((_dtype, _shape), ("float64", (4,)))
            _key = f"{_name}-{_dtype}-{'x'.join(map(str, _shape))}"
            SCENARIOS[_key], DUE[_key] = over_graph(_name, _kinds), over_graph_due(_name, _kinds)
    SCENARIOS[f"{_name}-mixed"], DUE[f"{_name}-mixed"] = over_graph(_name, MIXED), over_graph_due(_name, MIXED)

SCENARIOS |= {
    "one-way": one_way,
    "big-message": big_message,
    "gathered": gathered,
    "many-rounds": many_rounds,
    "slow-node": slow_node,
    "all-reduced": all_reduced,
}
DUE |= {
    "one-way": one_way_due,
    "big-message": big_message_due,
    "gathered": gathered_due,
    "many-rounds": many_rounds_due,
    "slow-node": slow_node_due,
    "all-reduced": all_reduced_due,
}
