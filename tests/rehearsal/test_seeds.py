"""A thousand rehearsals with faults: nothing wrong, nothing hung; and a seed replays exactly."""

import os
import subprocess
import sys
from random import Random
from types import SimpleNamespace

import pytest

import mutations
from eigenmesh.protocol.membership import Membership
from harness.scenario import KINDS, TOLD_APART, Fault, Scenario, draw
from harness.seeds import BAD, play, shrink, survey
from harness.sums import Sum
from harness.watch import BrokenError, RunWatch
from harness.world import WAITS, FaultWorld


@pytest.mark.parametrize("first", range(0, 1000, 200))
def test_no_fault_makes_a_run_wrong_or_hang(first):
    found = survey(range(first, first + 200))
    told = [f"seed {seed}: {outcome.why}; {shrink(draw(seed)).faults}" for seed, outcome in found.failing.items()]
    assert not told
    assert found.by_fault["all"]["exact"] > 80


def test_a_thousand_seeds_have_every_fault_and_every_way_to_meet_a_loss():
    scenarios = [draw(seed) for seed in range(1000)]
    assert {fault.kind for scenario in scenarios for fault in scenario.faults} == {*KINDS, TOLD_APART}
    assert {scenario.on_loss for scenario in scenarios} == {"wait", "abort", "continue"}


def trace_of(seed):
    lines = []
    FaultWorld(draw(seed), trace=lines.append).play()
    return lines


def test_a_seed_replays_exactly():
    assert trace_of(11) == trace_of(11)


def test_a_seed_replays_exactly_in_another_process():
    code = "import test_seeds, hashlib; print([hash(tuple(map(len, test_seeds.trace_of(s)))) for s in range(20)])"
    folders = os.pathsep.join((os.path.dirname(__file__), os.path.dirname(mutations.__file__), *filter(None, sys.path)))
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": folders, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(seen) == 1


@pytest.mark.parametrize("seed", [10904, 34628, 62981])
def test_a_view_that_grows_after_it_was_agreed_on_is_agreed_on_again(seed):
    """Three of 100,000: a site began with the members of a view that nobody had signed."""
    assert FaultWorld(draw(seed)).play().kind in ("continued", "refused")


@pytest.mark.parametrize(
    ("seed", "said"),
    [
        (23334, "the journal of A is damaged"),
        (83466, "the journal of B is damaged"),
        (8301, "B is lost; only A and C are left"),
        (40629, "C is lost; only A and B are left"),
        (3515, "B finished before A-C was lost"),
        (69150, "F has started the run over, or runs twice"),
        (8657, "A: CannotResumeError: B cannot resume the run: its journal is gone"),
    ],
)
def test_seeds_that_were_wrong_are_refused_by_name(seed, said):
    """Of 100,000: a bit flip in the last masked words that were synced, and refusals without the name of the lost."""
    outcome = FaultWorld(draw(seed)).play()
    assert outcome.kind in ("continued", "refused")
    assert said in outcome.why


@pytest.mark.parametrize("seed", range(40))
def test_when_one_site_is_killed_the_majority_that_it_leaves_continues(seed):
    drawn = draw(seed)
    killed = drawn.sites[seed % len(drawn.sites)]
    scenario = drawn._replace(on_loss="continue", faults=(Fault("kill", 0.35, killed),), window_frames=4, masked=False)
    lost = tuple(edge for edge in scenario.edges if killed in edge)
    left = max(
        (Membership(site, scenario.sites, scenario.edges, lost).members for site in scenario.sites if site != killed),
        key=len,
    )
    world = FaultWorld(scenario)
    outcome = world.play()
    if 2 * len(left) > len(scenario.sites):
        assert outcome.kind == "continued"
        assert [site for site in left if world.ends[site] != "result"] == []
    else:
        assert outcome.kind == "refused"
        assert killed in outcome.why


RINGS = {4: (("A", "B"), ("A", "D"), ("B", "C"), ("C", "D"))}
RINGS[5] = (("A", "B"), ("A", "E"), ("B", "C"), ("C", "D"), ("D", "E"))
NOT_MET = [(seed, 4, True, (Fault("kill", 0.36, "D"),)) for seed in (1, 5, 6, 8, 9)]
IN_BETWEEN = [
    (seed, 5, False, (Fault("kill", 0.7, "C"), Fault("kill", 4.9 + 0.02 * seed, "D"))) for seed in (12, 13, 23)
]
STARTED_AGAIN = [(seed, 4, True, (Fault("kill", 0.6, "D"), Fault("crash", 4.7, "C", "", 0.2))) for seed in (0, 1)]
# The site that waits for it has forgotten that it was there, and the one that knows does not wait for it.
KNOWN_TO_ANOTHER = [
    (seed, 4, masked, (Fault("kill", 0.6, killed), Fault("crash", 2.5, neighbour, "", 0.2)))
    for seed, masked, killed, neighbour in (
        (3, True, "C", "B"),
        (4, False, "C", "B"),
        (4, False, "D", "A"),
        (7, True, "D", "A"),
    )
]


@pytest.mark.parametrize(
    ("seed", "size", "masked", "faults"), [*NOT_MET, *IN_BETWEEN, *STARTED_AGAIN, *KNOWN_TO_ANOTHER]
)
def test_a_site_that_is_gone_is_not_waited_for_as_one_that_is_still_to_start(monkeypatch, seed, size, masked, faults):
    """It was killed before all neighbours had met it, or between two epochs, or they were started again since."""
    monkeypatch.setitem(WAITS, "join_s", 3600.0)
    monkeypatch.setitem(WAITS, "round_s", 3660.0)
    outcome = FaultWorld(Scenario(seed, tuple("ABCDE")[:size], RINGS[size], "continue", 4, 256, faults, masked)).play()
    assert outcome.kind == "continued"
    assert outcome.virtual_s < 60


@pytest.mark.parametrize(
    ("seed", "killed", "crashed"), [(12, "D", "C"), (41, "C", "A"), (43, "D", "A"), (56, "D", "C")]
)
def test_a_view_that_a_crash_has_left_unsigned_is_signed_after_the_restart(monkeypatch, seed, killed, crashed):
    """The loss was in the journal, so nothing new was heard, and all waited for this signature."""
    monkeypatch.setitem(WAITS, "join_s", 3600.0)
    monkeypatch.setitem(WAITS, "round_s", 3660.0)
    faults = (Fault("crash at a view", 0.1, crashed, "", 0.2), Fault("kill", 0.6, killed))
    outcome = FaultWorld(Scenario(seed, tuple("ABCD"), RINGS[4], "continue", 4, 256, faults, True)).play()
    assert outcome.kind == "continued"
    assert outcome.virtual_s < 60


def test_two_hundred_kills_and_resumes_use_no_mask_on_other_numbers():
    """Each process adds other low bits; the watch takes every frame apart, and would see a mask that is used again."""
    starts, sums = 0, 0
    for seed in range(40):
        drawn, random = draw(seed), Random(seed)
        kinds = ("crash", "crash at power loss", "crash", "stop", "crash of all")
        faults = tuple(Fault(kind, random.uniform(0.1, 3.0), random.choice(drawn.sites), "", 0.2) for kind in kinds)
        world = FaultWorld(drawn._replace(faults=faults, masked=True, on_loss="wait", n_mixing=8))
        assert world.play().kind == "exact"
        starts += len(world.processes) - len(world.sites)
        sums += len(world.watch._hidden)
    assert starts >= 200
    assert sums > 1000


def test_a_run_without_faults_is_exact():
    scenario = Scenario(0, ("A", "B", "C"), (("A", "B"), ("B", "C")), "abort", 3, 256, ())
    assert play(scenario).kind == "exact"


@pytest.mark.parametrize(
    ("name", "n_seeds"),
    [
        ("a round is acknowledged before it is on the disk", 20),
        ("a statement is said before it is on the disk", 20),
        ("a farewell is taken before it is on the disk", 20),
        ("hashes of numbers are not checked", 400),
        ("frames of another epoch are taken", 400),
        ("no majority is needed", 100),
        ("a site's own signature is enough", 20),
        ("what is sent again is not audited", 50),
        ("other data than at the start are taken", 100),
        ("masked numbers leave before they are on the disk", 40),
        ("what was masked is masked again after a crash", 400),
        ("masks do not depend on what a site was told", 200),
        ("what sites were told is not compared", 200),
        ("two sites may be left with masks", 400),
    ],
)
def test_a_safeguard_that_is_removed_is_missed(name, n_seeds):
    with mutations.without(name):
        found = mutations.first_failing(range(n_seeds))
    assert found is not None


def test_a_failing_seed_shrinks_to_the_faults_that_it_needs():
    with mutations.without("hashes of numbers are not checked"):
        found = mutations.first_failing(s for s in range(1000) if len(draw(s).faults) > 1 and not draw(s).masked)
        assert found is not None
        whole = draw(found[0])
        small = shrink(whole)
        assert play(small).kind in BAD
        for fault in small.faults:
            assert play(small._replace(faults=tuple(set(small.faults) - {fault}))).kind not in BAD
    assert "bad hashes" in {fault.kind for fault in small.faults}
    assert len(small.faults) < len(whole.faults)


def test_two_results_of_one_epoch_are_noticed(monkeypatch):
    monkeypatch.setattr(RunWatch, "_check_signatures", lambda *arguments: None)
    world = SimpleNamespace(
        sites=("a", "b", "c"),
        edges=(("a", "b"), ("b", "c")),
        values={},
        problem=SimpleNamespace(fault_of=lambda *arguments: ""),
        scenario=SimpleNamespace(masked=False),
        results={(): {}},
    )
    watch = RunWatch(world)
    for site in "ab":
        watch.found(SimpleNamespace(site=site), Sum((), 1, "same", {}))
        world.results[()][site] = Sum((), 1, "same", {})
    with pytest.raises(BrokenError, match="equal epoch, equal bits: c differs from"):
        watch.found(SimpleNamespace(site="c"), Sum((), 1, "other", {}))
