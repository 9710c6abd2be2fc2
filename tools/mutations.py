"""Remove one safeguard of the protocol at a time, and check that the fault harness notices: ``make mutations``."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from eigenmesh import masking as _masks
from eigenmesh.protocol import machine as _machine
from eigenmesh.protocol import membership as _membership
from eigenmesh.protocol import peering as _peering
from eigenmesh.protocol import wire as _wire
from eigenmesh.protocol.effects import Write
from eigenmesh.protocol.machine import SiteMachine
from eigenmesh.protocol.membership import Membership
from eigenmesh.protocol.outbox import Outbox
from eigenmesh.protocol.peering import Peering
from eigenmesh.protocol.rounds import Accounts, Rounds
from eigenmesh.protocol.setup import Topic, read_statement
from eigenmesh.rehearsal.world import Disk
from harness.scenario import draw
from harness.seeds import BAD, play
from harness.world import SeedOutcome

MOST_SEEDS = 10_000
Change = tuple[Any, str, Any]


def acknowledge_before_durable() -> list[Change]:
    original = Outbox.keep_frame

    def keep(self: Outbox, link: Any, data: bytes, round_: int) -> None:
        original(self, link, data, round_)
        link.safe_here = round_ + 1

    return [(Outbox, "keep_frame", keep)]


def _before_durable(part: type, method: str) -> list[Change]:
    """A method that does at once what should wait for the disk."""
    original = getattr(part, method)

    def at_once(self: Any, *values: Any) -> None:
        outbox = self if isinstance(self, Outbox) else self.outbox
        with patch.object(outbox, "once_durable", lambda action: action()):
            original(self, *values)

    return [(part, method, at_once)]


def leaves_without_a_word() -> list[Change]:
    return [(Peering, "leave", lambda self, how: None)]


def waits_for_those_who_have_gone() -> list[Change]:
    return [(SiteMachine, "_has_result", False)]


def unchecked_signatures() -> list[Change]:
    def read(text: str, keyring: Any, run_id: bytes) -> Any:
        return read_statement(text, None, run_id)

    return [(_peering, "read_statement", read)]


def unchecked_instances() -> list[Change]:
    original = Membership._is_newer

    def is_newer(self: Membership, statement: Any, known: Any) -> bool:
        return False if statement.kind == Topic.INSTANCE else original(self, statement, known)

    return [(Membership, "_is_newer", is_newer)]


def any_epoch() -> list[Change]:
    original = Peering._hear

    def hear(self: Peering, link: Any, stream: Any, frame: Any, data: bytes) -> None:
        epoch = self.outbox.epoch
        original(self, link, stream, frame._replace(run_id=epoch.run_id, epoch=epoch.number), data)

    return [(Peering, "_hear", hear)]


def unchecked_hashes() -> list[Change]:
    return [(_wire, "is_intact", lambda data: True)]


def no_majority() -> list[Change]:
    return [(Membership, "require_majority", lambda self: None)]


def repeats_not_audited() -> list[Change]:
    original = Outbox.write

    def write(self: Outbox, link: Any, message: Any, stream: int | None = None) -> None:
        before = len(self._effects)
        original(self, link, message, stream)
        for i, effect in enumerate(self._effects[before:], before):
            if isinstance(effect, Write) and effect.sent is not None and effect.sent.again:
                self._effects[i] = effect._replace(sent=None)

    return [(Outbox, "write", write)]


def damaged_records() -> list[Change]:
    return [(_wire, "is_whole", lambda head, content: True)]


def any_data() -> list[Change]:
    original = Disk.open

    def open_(self: Disk, fingerprint: str, random: Any) -> Any:
        self.fingerprint = fingerprint
        return original(self, fingerprint, random)

    return [(Disk, "open", open_)]


def any_word_on_links() -> list[Change]:
    original = Membership._key

    def key(self: Membership, statement: Any) -> Any:
        if statement.kind == Topic.LOST:
            return statement.kind, statement.site, tuple(sorted(statement.content))
        return original(self, statement)

    return [(Membership, "_key", key)]


def own_signature_is_enough() -> list[Change]:
    original = Accounts.count_signatures

    def count(self: Accounts, digest: str) -> Any:
        alone = (self.setup.name,)
        with patch.object(self.membership, "members", alone), patch.object(self.outbox.epoch, "members", alone):
            return original(self, digest)

    return [(Accounts, "count_signatures", count)]


def views_not_agreed() -> list[Change]:
    return [(Membership, "undecided", ())]


def old_words_put_off() -> list[Change]:
    original = Peering.hear_end

    def hear(self: Peering, link: Any, frame: Any) -> None:
        original(self, link, frame._replace(tag=1 << 31))

    return [(Peering, "hear_end", hear), (Outbox, "warn", _warn_always)]


def _warn_always(self: Outbox, link: Any) -> None:
    if link.stream is not None and self._warning.payload_bytes:
        self.write(link, self._warning)
        link.warned = True


def start_from_memory() -> list[Change]:
    """The solver starts an epoch before its estimate is on the disk."""
    original = SiteMachine._progress

    def progress(self: SiteMachine) -> None:
        if self._request is not None:
            self._request.record = -1
        original(self)

    return [(SiteMachine, "_progress", progress)]


def masked_before_durable() -> list[Change]:
    original = Rounds.collect

    def collect(self: Rounds, round_: Any) -> Any:
        self.masked_record = -1
        return original(self, round_)

    return [(Rounds, "collect", collect)]


def masked_again() -> list[Change]:
    original = Rounds.keep_masked

    def keep(self: Rounds, event: Any) -> Any:
        self.masked.clear()
        return original(self, event)

    return [(Rounds, "keep_masked", keep)]


def masks_of_any_transcript() -> list[Change]:
    return [(_masks, "hmac", SimpleNamespace(digest=lambda key, heard, name: key))]


def unchecked_transcripts() -> list[Change]:
    """What other sites have heard is signed and passed on, but nobody compares it."""
    return [(Accounts, "_compare", lambda self, statement: None), (Accounts, "last_heard", "")]


def keys_may_change() -> list[Change]:
    """A site that starts over shows a new key, although masks were made with the old one.

    What sites have heard begins with all keys, which would refuse such a run as well: the keys are left out there, too.
    """

    class Trusting(Membership):
        fresh = property(lambda self: True, lambda self, value: None)

    class WithoutKeys(_masks.Transcript):
        def __init__(self, context: Any, publics: Any) -> None:
            super().__init__(context, ())

    return [(_machine, "Membership", Trusting), (_masks, "Transcript", WithoutKeys)]


def called_once() -> list[Change]:
    return [(Peering, "_call_again", lambda self, link, reason: None)]


def answers_forgotten() -> list[Change]:
    """A round that has to wait for the disk is not tried again when the disk is done."""
    original = Outbox.durable

    def durable(self: Outbox, records: int) -> None:
        waiting, self._waiting = self._waiting, deque()
        original(self, records)
        self._waiting = waiting

    return [(Outbox, "durable", durable)]


MUTATIONS: dict[str, Callable[[], list[Change]]] = {
    "a round is acknowledged before it is on the disk": acknowledge_before_durable,
    "a statement is said before it is on the disk": lambda: _before_durable(Outbox, "state"),
    "a farewell is taken before it is on the disk": lambda: _before_durable(Outbox, "keep_farewell"),
    "a last word is taken before it is on the disk": lambda: _before_durable(Peering, "_hear_last_word"),
    "a site that cannot resume does not say so": leaves_without_a_word,
    "a neighbour is not called again": called_once,
    "what waits for the disk is forgotten": answers_forgotten,
    "a site with its result waits for those that have gone": waits_for_those_who_have_gone,
    "an epoch begins before its start is on the disk": start_from_memory,
    "signatures of statements are not checked": unchecked_signatures,
    "two processes of a site are not told apart": unchecked_instances,
    "frames of another epoch are taken": any_epoch,
    "hashes of numbers are not checked": unchecked_hashes,
    "no majority is needed": no_majority,
    "views need not be agreed on": views_not_agreed,
    "any site may say that a link is lost": any_word_on_links,
    "a site's own signature is enough": own_signature_is_enough,
    "what is sent again is not audited": repeats_not_audited,
    "damaged records are believed": damaged_records,
    "other data than at the start are taken": any_data,
    "old words put the run off again": old_words_put_off,
    "masked numbers leave before they are on the disk": masked_before_durable,
    "what was masked is masked again after a crash": masked_again,
    "a site may show another key once masks are made": keys_may_change,
    "masks do not depend on what a site was told": masks_of_any_transcript,
    "what sites were told is not compared": unchecked_transcripts,
    "two sites may be left with masks": lambda: [(_membership, "MIN_SITES", 0)],
}


@contextmanager
def without(name: str) -> Iterator[None]:
    """The protocol without one safeguard."""
    with ExitStack() as stack:
        for target, attribute, value in MUTATIONS[name]():
            stack.enter_context(patch.object(target, attribute, value))
        yield


def first_failing(seeds: Iterable[int]) -> tuple[int, SeedOutcome] | None:
    """The first seed that ends badly, if one does."""
    found = ((seed, play(draw(seed))) for seed in seeds)
    return next(((seed, outcome) for seed, outcome in found if outcome.kind in BAD), None)


def caught_by(name: str) -> tuple[str, int | None, str]:
    """The first seed that notices that a safeguard is missing, and what it says."""
    with without(name):
        found = first_failing(range(MOST_SEEDS))
    return (name, None, "") if found is None else (name, found[0], f"{found[1].kind}: {found[1].why}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2, help="processes; 0 for one per core")
    wanted = parser.parse_args()
    print(f"| safeguard removed | caught by seed, of {MOST_SEEDS:,} | as |\n| --- | ---: | --- |")
    missed = 0
    with multiprocessing.get_context("spawn").Pool(wanted.workers or os.cpu_count() or 1) as pool:
        for name, seed, what in pool.imap(caught_by, MUTATIONS):
            missed += seed is None
            print(f"| {name} | {'never' if seed is None else seed} | {what.replace('|', '/')[:90]} |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
