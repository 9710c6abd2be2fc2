"""The real fit in virtual time: faults change when it ends, never what it finds."""

import pytest

from eigenmesh.rehearsal.fits import handed_over
from harness.fits import SmallFitProblem
from harness.scenario import Fault, Scenario
from harness.world import FaultWorld

SITES, RING = ("A", "B", "C", "D"), (("A", "B"), ("B", "C"), ("C", "D"), ("A", "D"))


def play(on_loss, *faults, masked=False):
    scenario = Scenario(5, SITES, RING, on_loss, 0, 256, faults, masked)
    world = FaultWorld(scenario, problem=SmallFitProblem(SITES, RING, masked))
    return world, world.play()


@pytest.mark.parametrize("masked", [False, True], ids=["open", "masked"])
@pytest.mark.parametrize(
    "fault",
    [
        Fault("crash", 0.5, "B", "", 1.0),
        Fault("crash of all", 0.6, "A", "", 1.0),
        Fault("break", 0.5, "A", "B"),
        Fault("disk full", 0.5, "C", "", 3.0),
        Fault("crash at a signature", 0.1, "D", "", 1.0),
    ],
    ids=lambda fault: fault.kind,
)
def test_a_fit_that_is_disturbed_has_the_bits_of_one_that_is_not(fault, masked):
    quiet, outcome = play("wait", masked=masked)
    assert outcome.kind == "exact"
    disturbed, outcome = play("wait", fault, masked=masked)
    assert outcome.kind == "exact"
    digests = {one.digest for world in (quiet, disturbed) for one in world.results[()].values()}
    assert len(digests) == 1


@pytest.mark.parametrize("masked", [False, True], ids=["open", "masked"])
def test_a_fit_continues_without_a_site_that_is_killed_and_finds_the_components_of_the_others(masked):
    world, outcome = play("continue", Fault("kill", 0.5, "B"), masked=masked)
    assert outcome.kind == "continued"
    ((lost, found),) = world.results.items()
    assert lost == (("A", "B"), ("B", "C"))
    assert sorted(found) == ["A", "C", "D"]


def test_a_solver_that_is_abandoned_ends_its_thread():
    ended = []

    def solve(ask):
        try:
            ask("question")
        finally:
            ended.append(True)

    program = handed_over(solve)
    assert next(program) == "question"
    program.close()
    assert ended == [True]
