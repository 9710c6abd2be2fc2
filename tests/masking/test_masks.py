"""Pairwise masks: they cancel, they are those of the stated ciphers, and nothing that would weaken them is taken."""

from __future__ import annotations

import hashlib
import itertools
import subprocess
import sys
from pathlib import Path

import by_hand
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenmesh.errors import InputError
from eigenmesh.masking import MaskContext, PairwiseMasks, SiteKey, Transcript, mask_graph, pair_key, pairwise_masks

NAMES = ("north", "east", "south", "west")
SECRETS = [hashlib.sha256(name.encode()).digest() for name in NAMES]
CONTEXT = MaskContext("autumn", 2, hashlib.sha256(b"manifest").digest(), NAMES)
# The vectors of docs/sites/masks.md: public keys, the key of north and west, the first words of each site.
PUBLICS = [
    "3c98b3db713d0297b0bca2784729821933c4e5afc8f7705c18807b6c79c89319",
    "cfee3609538f5a65614a16568756ece91eb1fe9c2f0b53bd896f00b23ece2961",
    "c9350dc8e0a88333c7419bae9476fcaa99aae3ec116e678c1bb9015a30dd0829",
    "ad1ff4ea910d13a0ced33fb880b29e9ea17dbda6d2eb70c304e01c2fa5edb043",
]
NORTH_WEST = "73cd35093529d020cd828a36746748bf65157280b60c10779bfac672b5da5a13"
# What the sites have heard before average 1: two words. The hashes before and after it.
HEARD = [np.array([1, 2**63], "<u8").tobytes()]
TRANSCRIPTS = [
    "0e98209dd45d57296a26808eef52e0ae901b0a70991c76f28e3495a46912e7bf",
    "4259952b89ed6f4df1b682e51c94edcd1f5bdb4b23da78fd057a3cc9ac3129d3",
]
WORDS = {
    (0, 0): "447158009b96b6c5 4b29d43c904805ab",
    (1, 0): "2a388d49b0025b99 2994cbc3fe639f71",
    (2, 0): "36e6c69ed06af90c 82e1bd1c6f4cf4a1",
    (3, 0): "5a6f5416e3fbf496 085fa2e302076643",
    (0, 1): "8d572c4abf88bd7f fd085e9b9695c19e",
}


def sites(context: MaskContext = CONTEXT, secrets: list[bytes] = SECRETS) -> list[PairwiseMasks]:
    keys = [SiteKey.generate(secret) for secret in secrets]
    publics = [key.public for key in keys]
    return [pairwise_masks(key, publics, rank, context) for rank, key in enumerate(keys)]


def test_the_vectors_of_the_page():
    assert [SiteKey(secret).public.hex() for secret in SECRETS] == PUBLICS
    publics = (bytes.fromhex(PUBLICS[0]), bytes.fromhex(PUBLICS[3]))
    assert pair_key(SiteKey(SECRETS[0]), publics, (0, 3), CONTEXT).hex() == NORTH_WEST
    assert pair_key(SiteKey(SECRETS[3]), publics, (0, 3), CONTEXT).hex() == NORTH_WEST
    masks = sites()
    assert masks[0].transcript.hash.hex() == TRANSCRIPTS[0]
    for (rank, number), shown in WORDS.items():
        if number:
            masks[rank].hear(hashlib.sha256(HEARD[0]).digest())
            assert masks[rank].transcript.hash.hex() == TRANSCRIPTS[1]
        assert " ".join(f"{word:016x}" for word in masks[rank].words(number, 2)) == shown


def test_a_second_implementation_finds_the_vectors():
    publics = [by_hand.public_key(secret) for secret in SECRETS]
    assert [public.hex() for public in publics] == PUBLICS
    encoded = by_hand.context("autumn", 2, hashlib.sha256(b"manifest").digest(), list(NAMES))
    keys: dict[int, dict[int, bytes]] = {rank: {} for rank in range(4)}
    for one, two in itertools.combinations(range(4), 2):
        ends = (NAMES[one], publics[one]), (NAMES[two], publics[two])
        made = by_hand.pair_key(SECRETS[one], publics[two], encoded, *ends)
        assert made == by_hand.pair_key(SECRETS[two], publics[one], encoded, *ends)
        keys[one][two] = keys[two][one] = made
    assert keys[0][3].hex() == NORTH_WEST
    for (rank, number), shown in WORDS.items():
        heard = by_hand.transcript(encoded, publics, HEARD[:number])
        assert " ".join(f"{word:016x}" for word in by_hand.words(rank, keys[rank], heard, number, 2)) == shown
    assert by_hand.transcript(encoded, publics, HEARD[:0]).hex() == TRANSCRIPTS[0]
    assert by_hand.transcript(encoded, publics, HEARD[:1]).hex() == TRANSCRIPTS[1]


def test_the_second_implementation_is_that_of_the_standards():
    # RFC 7748 section 5.2, RFC 5869 appendix A.1, RFC 8439 section 2.3.2.
    nine = (9).to_bytes(32, "little")
    assert by_hand.x25519(nine, nine).hex() == "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"
    okm = by_hand.hkdf(b"\x0b" * 22, bytes(range(13)), bytes(range(0xF0, 0xFA)))
    assert okm.hex() == "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"
    key, nonce = bytes(range(32)), bytes.fromhex("000000090000004a00000000")
    assert by_hand.block(key, 1, nonce).hex().startswith("10f1e7e4d13b5915500fdd1fa32071c4")


@settings(max_examples=25, deadline=None)
@given(st.integers(3, 12), st.integers(0, 2**64 - 1), st.integers(0, 70), st.integers(0, 2**32))
def test_masks_cancel_in_the_sum_and_in_no_smaller_one(n_sites, number, count, seed):
    random = np.random.default_rng(seed)
    context = MaskContext("a", 0, b"", tuple(f"site{one}" for one in range(n_sites)))
    words = np.array([one.words(number, count) for one in sites(context, [random.bytes(32) for _ in range(n_sites)])])
    assert not words.sum(axis=0, dtype=np.uint64).any()
    for left_out in range(n_sites):
        rest = np.delete(words, left_out, axis=0).sum(axis=0, dtype=np.uint64)
        assert count < 4 or rest.any()


def test_words_do_not_depend_on_how_many_are_asked_for_and_cross_chunks():
    long = sites()[1].words(5, 100_003)
    assert np.array_equal(sites()[1].words(5, 40_000), long[:40_000])
    assert len(set(long.tolist())) == long.size


def test_everything_that_a_mask_is_bound_to_changes_it():
    plain = sites()[0].words(0, 8)
    others = [
        MaskContext("winter", 2, CONTEXT.manifest, NAMES),
        MaskContext("autumn", 3, CONTEXT.manifest, NAMES),
        MaskContext("autumn", 2, hashlib.sha256(b"another").digest(), NAMES),
        MaskContext("autumn", 2, CONTEXT.manifest, ("north", "east", "south", "west2")),
        MaskContext("autumn", 2, CONTEXT.manifest, ("north", "south", "east", "west")),
    ]
    seen = [sites(context)[0].words(0, 8) for context in others] + [sites()[0].words(1, 8)]
    seen.append(sites(secrets=[SECRETS[0], *map(bytes, [[9] * 32, [8] * 32, [7] * 32])])[0].words(0, 8))
    assert all((plain != other).all() for other in seen)
    assert all((one != two).all() for one, two in itertools.combinations(seen, 2))


@pytest.mark.parametrize("apart", range(4))
def test_masks_of_a_site_that_was_told_something_else_do_not_cancel(apart):
    """Sums over all, and over any of the others, are evenly spread, and stay so whatever is heard from then on."""
    masks = sites()
    for rank, one in enumerate(masks):
        one.hear(hashlib.sha256(b"another sum" if rank == apart else b"a sum").digest())
    for number in range(3):
        words = np.array([one.words(number, 1 << 15) for one in masks])
        for chosen in ([0, 1, 2, 3], [rank for rank in range(4) if rank != apart]):
            leading = (words[chosen].sum(axis=0, dtype=np.uint64) >> np.uint64(56)).astype(int)
            counts = np.bincount(leading, minlength=256)
            # 255 degrees of freedom: beyond 370 with probability 3e-6.
            assert ((counts - 128) ** 2 / 128).sum() < 370
        for one in masks:
            one.hear(hashlib.sha256(b"the same").digest())


def test_everything_that_all_sites_show_is_the_start_of_what_they_have_heard():
    shown = [bytes([one]) * 32 for one in range(3)]
    starts = {Transcript(CONTEXT, keys).hash for keys in (shown, shown[::-1], shown[:2])}
    assert len(starts | {Transcript(MaskContext("a", 0, b"", NAMES), shown).hash}) == 4


def test_a_number_is_masked_once():
    masks = sites()[0]
    masks.words(3, 5)
    with pytest.raises(InputError, match="average 3 would be masked again; the next one is 4 or later"):
        masks.words(3, 5)
    with pytest.raises(InputError, match="average 0 would be masked again"):
        masks.words(0, 5)


def test_keys_that_hide_nothing_are_refused():
    keys = [SiteKey.generate() for _ in range(4)]
    publics = [key.public for key in keys]
    with pytest.raises(InputError, match="2 sites cannot be masked: each would find the other's numbers"):
        pairwise_masks(keys[0], publics[:2], 0, MaskContext("a", 0, b"", NAMES[:2]))
    with pytest.raises(InputError, match="3 public keys for 4 sites"):
        pairwise_masks(keys[0], publics[:3], 0, CONTEXT)
    with pytest.raises(InputError, match="public key of east does not match its secret"):
        pairwise_masks(keys[0], publics, 1, CONTEXT)
    with pytest.raises(InputError, match="east and west have the same public key"):
        pairwise_masks(keys[0], [*publics[:3], publics[1]], 0, CONTEXT)
    with pytest.raises(InputError, match="not usable as a public key"):
        pairwise_masks(keys[0], [*publics[:3], bytes(32)], 0, CONTEXT)
    with pytest.raises(InputError, match="31 bytes; X25519 takes 32"):
        SiteKey.generate(bytes(31))
    with pytest.raises(InputError, match="are not unique"):
        MaskContext("a", 0, b"", ("north", "north", "east"))


def test_a_secret_is_not_shown():
    assert SECRETS[0].hex() not in repr(SiteKey(SECRETS[0]))
    assert str(SECRETS[0]) not in repr(SiteKey(SECRETS[0]))


def test_masked_numbers_are_evenly_spread():
    """Chi-square over the 256 values of each byte: the 8 statistics of 2^16 words with 255 degrees of freedom."""
    words = sites()[2].words(1, 1 << 16) + np.uint64(12345)
    counts = [np.bincount(row, minlength=256) for row in words.view(np.uint8).reshape(-1, 8).T]
    statistics = [float(((row - 256) ** 2).sum() / 256) for row in counts]
    # Beyond 370 with probability 3e-6.
    assert max(statistics) < 370


def test_the_missing_extra_says_what_to_install():
    code = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from eigenmesh.masking import SiteKey\n"
        "SiteKey.generate().public"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "masking needs cryptography; install it with: pip install 'eigenmesh[masked]'" in ended.stderr


def graph_of(n_sites: int, run: str = "a"):
    return mask_graph(MaskContext(run, 0, b"m", tuple(f"s{one}" for one in range(n_sites))))


def test_all_pairs_up_to_fifty_sites():
    graph = graph_of(50)
    assert graph.is_complete
    assert graph.tolerated == 48
    assert str(graph) == "all pairs of 50 sites; 48 may collude"
    assert graph.chance(48) == 0


def test_beyond_it_is_regular_symmetric_and_the_same_for_all():
    graph = graph_of(64)
    assert {len(row) for row in graph.partners} == {12}
    assert graph.tolerated == 11
    assert all(one in graph.partners[other] and one != other for one, row in enumerate(graph.partners) for other in row)
    assert graph == graph_of(64) != graph_of(64, "b")
    names = [f"s{one}" for one in range(64)]
    assert [list(row) for row in graph.partners] == by_hand.graph(by_hand.context("a", 0, b"m", names), 64)
    assert str(graph).startswith("12 partners for each of 64 sites; any 11 may collude; a site has no honest partner")


def test_masks_of_a_regular_graph_cancel():
    context = MaskContext("a", 0, b"m", tuple(f"s{one}" for one in range(51)))
    masks = sites(context, [bytes([one]) * 32 for one in range(51)])
    assert {len(one.partners) for one in masks} == {12}
    assert not np.array([one.words(0, 9) for one in masks]).sum(axis=0, dtype=np.uint64).any()


def test_the_collusion_bound_is_what_random_colluders_reach():
    graph, random, cut_off, draws = graph_of(51), np.random.default_rng(0), 0, 4000
    colluders = 34
    for _ in range(draws):
        bad = set(random.choice(51, colluders, replace=False).tolist())
        cut_off += sum(bad.issuperset(row) for one, row in enumerate(graph.partners) if one not in bad)
    expected = graph.chance(colluders) * draws
    assert abs(cut_off - expected) < 5 * expected**0.5
    with pytest.raises(InputError, match="50 of 51 sites cannot collude"):
        graph.chance(50)


def test_masked_numbers_add_up_to_their_sum():
    numbers = np.random.default_rng(1).integers(0, 2**63, (4, 21), np.uint64)
    masked = np.array([one.masked(4, row) for one, row in zip(sites(), numbers, strict=True)])
    assert np.array_equal(masked.sum(axis=0, dtype=np.uint64), numbers.sum(axis=0, dtype=np.uint64))
    assert (masked != numbers).all()


def test_the_page_has_these_vectors():
    page = (Path(__file__).parents[2] / "docs" / "sites" / "masks.md").read_text(encoding="utf-8")
    assert [vector for vector in (*PUBLICS, NORTH_WEST, *WORDS.values()) if f"`{vector}`" not in page] == []
