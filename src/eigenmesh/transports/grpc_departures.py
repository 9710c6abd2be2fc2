"""Everything that leaves a site, told in order and off the path that the numbers take."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from eigenmesh.transports import wire
from eigenmesh.transports.grpc_board import Board
from eigenmesh.transports.grpc_link import Sent

logger = logging.getLogger("eigenmesh.transports.grpc")


class Departures:
    """A thread that hashes what has left, and tells it."""

    def __init__(self, board: Board, on_sent: Callable[[Sent], None]) -> None:
        self._board, self._on_sent = board, on_sent
        self._thread = threading.Thread(target=self._work, name="eigenmesh-departures", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Tell what is left to tell; nothing may leave any more."""
        if self._board.departures is not None:
            self._board.departures.put(None)
        self._thread.join()

    def _work(self) -> None:
        departures = self._board.departures
        while departures is not None and (departure := departures.get()) is not None:
            name, letter, again = departure
            body = letter.body
            sent = Sent(
                neighbour=name,
                kind=letter.kind.name,
                epoch=self._board.run.epoch,
                round=letter.round,
                shapes=body.shapes,
                dtypes=body.dtypes,
                bytes=body.payload_bytes,
                frame_bytes=wire.HEAD_BYTES + len(body.data),
                sha256=letter.digest,
                again=again,
            )
            try:
                self._on_sent(sent)
            except Exception as error:
                # What left must be told; a site that cannot do that must not go on sending.
                logger.error("what leaves %s can no longer be told: %s", self._board.name, error)
                self._board.fail(error, f"{self._board.name} ended the run: its audit failed: {error}")
