"""A neighbour with a valid certificate that misbehaves: what it sends must be refused, or change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eigenmesh.protocol import wire
from eigenmesh.protocol.effects import Write
from eigenmesh.protocol.setup import make_statement
from eigenmesh.protocol.wire import Kind
from eigenmesh.rehearsal.world import SecretKeyring
from harness.masked_sums import is_total
from harness.scenario import TOLD_APART

if TYPE_CHECKING:
    from harness.process import FaultyProcess
    from harness.scenario import Fault
    from harness.world import FaultWorld

# How often it misbehaves. After that it follows the protocol, so that the run can end.
TIMES = 4
N_FLOOD, N_FAREWELLS, N_STREAMS = 60, 40, 16


class Impostor(SecretKeyring):
    """Signs with its own key in the name of another site."""

    def __init__(self, site: str, claimed: str) -> None:
        super().__init__(site)
        self.certificate = claimed


class Adversary:
    """Sits between the machine of a site and the network, and changes what the machine sends."""

    def __init__(self, world: FaultWorld, fault: Fault) -> None:
        self._world, self._fault, self._left = world, fault, TIMES
        self._first: dict[int, bytes] = {}

    def take(self, process: FaultyProcess) -> None:
        """Intercept everything that this process sends."""
        process.twist = lambda effect: self._pass(process, effect)

    def _pass(self, process: FaultyProcess, effect: Write) -> None:
        stream, data, _ = effect
        kind = Kind(data[5])
        self._first.setdefault(stream, data)
        if self._left > 0 and self._world.time.random.random() < 0.3:
            changed = self._misbehave(process, stream, kind, data)
            if changed is not None:
                self._left -= 1
                data = changed
        self._world.network.send(process, stream, data)

    def _misbehave(self, process: FaultyProcess, stream: int, kind: Kind, data: bytes) -> bytes | None:
        """Misbehave, if this message gives the occasion; returns the message to send instead, or None if not."""
        network, what = self._world.network, self._fault.kind
        met = kind not in (Kind.HELLO, Kind.WELCOME, Kind.REFUSE)
        if what == "bad hashes" and kind is Kind.DATA:
            return data[:-16] + bytes([data[-16] ^ 1]) + data[-15:]
        if what == "misfits" and kind is Kind.DATA:
            return data[:8] + (int.from_bytes(data[8:12], "little") + 1).to_bytes(4, "little") + data[12:]
        if what == "farewell repeated" and kind is Kind.DONE:
            for _ in range(N_FAREWELLS):
                network.send(process, stream, data)
        elif what == "farewell early" and kind is Kind.DATA:
            epoch, nothing = process.machine.epoch, wire.text_body("")
            frame = wire.encode(Kind.DONE, epoch.run_id, epoch.number, epoch.round, 0, nothing)
            network.send(process, stream, frame)
        elif what == "two results" and met:
            result = [process.machine.epoch.number, "0" * 64, ""]
            text = self._statement(SecretKeyring(process.site), "result", process.site, result)
            network.send(process, stream, self._frame(process, text))
        elif what == "forged statements" and met:
            network.send(process, stream, self._frame(process, self._forged(process)))
        elif what == "statement flood" and met:
            for number in range(N_FLOOD):
                network.send(process, stream, self._frame(process, self._own_view(process, number)))
        elif what == "old epoch" and met:
            return self._of_another_epoch(data)
        elif what == TOLD_APART:
            return self._other_sum(process, stream, data) if kind is Kind.DATA else None
        elif what == "garbage":
            return self._world.time.random.randbytes(self._world.time.random.randrange(200))
        elif what == "replayed streams":
            self._open_streams(process)
        else:
            return None
        return data

    def _other_sum(self, process: FaultyProcess, stream: int, data: bytes) -> bytes | None:
        """The frame with another sum, if it passes on a sum to the site that it lies to."""
        frame, machine = wire.decode(data, self._world.run.max_message_bytes), process.machine
        if not is_total(frame.tag) or machine.peering.streams[stream].link != self._fault.other:
            return None
        lie = frame.arrays[0].view(np.uint64) + np.uint64(1 + self._world.time.random.getrandbits(60))
        self._world.watch.lied(process, self._fault.other, frame, int(lie[0]))
        head = frame.kind, frame.run_id, frame.epoch, frame.round, frame.acknowledged
        return wire.encode(*head, wire.array_body([lie.view(np.int64)], 64), frame.tag)

    def _frame(self, process: FaultyProcess, text: str) -> bytes:
        machine = process.machine
        return wire.encode(Kind.STATEMENT, machine.epoch.run_id, machine.epoch.number, 0, 0, wire.text_body(text))

    def _statement(self, keyring: Any, kind: str, site: str, content: Any) -> str:
        return make_statement(keyring, self._world.run.run_id, kind, site, content).text

    def _forged(self, process: FaultyProcess) -> str:
        """A statement that only another site may make."""
        random = self._world.time.random
        if random.random() < 0.3:
            # In its own name, but about a link between other sites.
            others = [edge for edge in self._world.edges if process.site not in edge]
            if others:
                return self._statement(SecretKeyring(process.site), "lost", process.site, list(random.choice(others)))
        victim = random.choice([site for site in self._world.sites if site != process.site])
        keyring = Impostor(process.site, random.choice((process.site, victim)))
        link = list(random.choice([edge for edge in self._world.edges if victim in edge]))
        kind, content = random.choice(
            (
                ("lost", link),
                ("view", [1, "0" * 32, ""]),
                ("heard", [process.machine.epoch.number, "set-up", 0, "0" * 64, 0]),
                ("result", [process.machine.epoch.number, "0" * 64, ""]),
                ("instance", [f"{victim}-other", 2, "0", ""]),
            )
        )
        return self._statement(keyring, kind, victim, content)

    def _own_view(self, process: FaultyProcess, number: int) -> str:
        """A useless view in its own name; it may sign what it likes."""
        count = 1 + number % len(self._world.edges)
        return self._statement(SecretKeyring(process.site), "view", process.site, [count, f"{number:032x}", ""])

    def _of_another_epoch(self, data: bytes) -> bytes:
        """The frame as if of the next epoch, with other numbers for the same round."""
        frame = wire.decode(data, self._world.run.max_message_bytes)
        body = (
            wire.array_body([array + 1 for array in frame.arrays], 64) if frame.arrays else wire.text_body(frame.text)
        )
        head = frame.kind, bytes(16), frame.epoch + 1, frame.round, frame.acknowledged
        return wire.encode(*head, body, frame.tag)

    def _open_streams(self, process: FaultyProcess) -> None:
        network = self._world.network
        greetings = list(self._first.values())
        for _ in range(N_STREAMS):
            number = network.open_as(process, self._fault.other)
            if number is not None and self._world.time.random.random() < 0.5:
                network.send_as_caller(number, self._world.time.random.choice(greetings))
