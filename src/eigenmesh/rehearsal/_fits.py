"""The real fit as a site's solver: it computes in a thread while virtual time stands still, and then waits."""

from __future__ import annotations

import hashlib
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import networkx as nx
import numpy as np

from eigenmesh.data import Shards
from eigenmesh.errors import MembersChangedError
from eigenmesh.events import EventLog
from eigenmesh.fitting import NodeData, Prepared, Request, fit, prepare
from eigenmesh.graphs import metropolis
from eigenmesh.iteration import Result
from eigenmesh.masking import Masks
from eigenmesh.protocol import (
    SET_UP,
    Begin,
    Compare,
    Exchange,
    JournalledMasks,
    Keys,
    MembersChanged,
    Membership,
    Sign,
    wire,
)
from eigenmesh.rehearsal._conditions import Edges
from eigenmesh.transports._base import Arrays, Transport
from eigenmesh.transports._base import Links as Round

if TYPE_CHECKING:
    from eigenmesh.rehearsal._process import Process
    from eigenmesh.rehearsal._world import Position

Ask = Callable[[Any], Any]


class AbandonedError(Exception):
    """The process of this solver is gone."""


class SiteFit(NamedTuple):
    """The result of a site: the lost links without which it was found, its digest, and the members' statements."""

    lost: Edges
    result: Result
    digest: str
    statements: Mapping[str, str]


class FitProblem(ABC):
    """Principal components of one table per site."""

    def __init__(self, sites: tuple[str, ...], edges: Edges, request: Request) -> None:
        self._sites, self._edges, self._request = sites, edges, request

    @abstractmethod
    def table(self, process: Process) -> np.ndarray:
        """The samples of a process: (N_i, d)."""

    def prepared(self, process: Process, data: NodeData) -> Prepared:
        """The preparation of the fit of a process."""
        return prepare(self._request, data)

    def log_of(self, process: Process) -> EventLog | None:
        """The event log for the fit of a process, if it has one."""
        return None

    def solver(self, process: Process, position: Callable[[], Position]) -> Generator[Any, Any, SiteFit]:
        def solve(ask: Ask) -> SiteFit:
            while True:
                found, estimate = self._epoch(process, position(), ask)
                if found is not None:
                    return found
                ask(Begin(b"" if estimate is None else estimate.tobytes()))

        return handed_over(solve)

    def _epoch(self, process: Process, position: Position, ask: Ask) -> tuple[SiteFit | None, np.ndarray | None]:
        view = Membership(process.site, self._sites, self._edges, position.lost)
        own = self.table(process)
        start = np.frombuffer(position.start).reshape(own.shape[1], -1) if position.start else None
        latest = start

        def keep(estimate: np.ndarray) -> None:
            nonlocal latest
            latest = np.array(estimate, dtype=float)

        transport = RehearsedTransport(process, view, ask)
        graph = nx.Graph()
        graph.add_nodes_from(range(transport.size))
        inside = [link for link in view.links if link[0] in view.members]
        graph.add_edges_from([(view.members.index(one), view.members.index(other)) for one, other in inside])
        try:
            shards = Shards.from_list([own], ids=[transport.rank], n_nodes=transport.size, node_names=view.members)
            prepared = self.prepared(process, NodeData(shards, metropolis(graph), transport))
            transport.compare(SET_UP)
            average, log = bool(position.lost), self.log_of(process)
            result = fit(prepared, start, average_start=average, events=log, on_estimate=keep, share=True).result
            digest = hashlib.sha256(np.ascontiguousarray(result.components).tobytes()).hexdigest()
            return SiteFit(position.lost, result, digest, transport.sign(digest)), latest
        except MembersChangedError:
            return None, latest


class RehearsedTransport(Transport):
    """The links of one site in an epoch; every exchange is a request to its machine."""

    compares_settings: ClassVar[bool] = True

    def __init__(self, process: Process, view: Membership, ask: Ask) -> None:
        self._process, self._ask, self._members = process, ask, view.members
        self._rank, self._size = view.members.index(process.site), len(view.members)
        self._secret = f"{process.disk.identity} {view.lost}"
        self._drawn = 0
        self._masks: JournalledMasks | None = None

    def private_bytes(self, count: int) -> bytes:
        self._drawn += 1
        return hashlib.shake_256(f"{self._secret} {self._drawn}".encode()).digest(count)

    def masks(self) -> Masks | None:
        machine = self._process.machine
        if machine.setup.masked:
            self._masks = JournalledMasks(machine, self._ask, self._answer(Keys()))
        return self._masks

    def exchange(self, arrays: Arrays, links: Round) -> dict[int, Arrays]:
        own = [np.asarray(array) for array in arrays]
        to, from_ = (tuple(self._members[rank] for rank in ranks) for ranks in (links.send_to, links.receive_from))
        answer = self._answer(Exchange(wire.array_body(own, self._process.world.run.max_message_bytes), 0, to, from_))
        self.sent.add(len(to), sum(array.nbytes for array in own))
        return {rank: answer.frames[self._members[rank]].arrays for rank in links.receive_from}

    def compare(self, stage: str) -> None:
        if self._masks is not None:
            self._answer(Compare(stage, self._masks.news()))

    def sign(self, digest: str) -> Mapping[str, str]:
        heard = () if self._masks is None else self._masks.news()
        statements: Mapping[str, str] = self._answer(Sign(digest, heard)).statements
        return statements

    def _answer(self, question: Any) -> Any:
        answer = self._ask(question)
        if isinstance(answer, MembersChanged):
            raise MembersChangedError("sites were lost.", answer.lost)
        return answer

    def abort(self, reason: str) -> None:
        """The machine ends the run."""

    def close(self) -> None:
        """There is nothing to close."""


def handed_over(solve: Callable[[Ask], Any]) -> Generator[Any, Any, Any]:
    """Run ``solve`` in a thread, and yield its requests one at a time; thread and caller never run at once."""
    questions: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def ask(question: Any) -> Any:
        questions.put(("asks", question))
        answer = answers.get()
        if isinstance(answer, AbandonedError):
            raise answer
        return answer

    def work() -> None:
        try:
            questions.put(("ends", solve(ask)))
        except BaseException as error:
            questions.put(("fails", error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while True:
            kind, value = questions.get()
            if kind == "ends":
                return value
            if kind == "fails":
                raise value
            answers.put((yield value))
    finally:
        answers.put(AbandonedError())
        thread.join()
