"""Virtual time: order, chance and the end of a run."""

from eigenmesh.rehearsal.virtual_time import VirtualTime


def test_actions_happen_in_the_order_of_their_times_and_then_of_their_planning():
    time, seen = VirtualTime(0), []
    for name, at in (("later", 2.0), ("first", 1.0), ("second", 1.0)):
        time.at(at, lambda name: seen.append((time.now, name)), name)
    assert time.run(until=10.0)
    assert seen == [(1.0, "first"), (1.0, "second"), (2.0, "later")]


def test_an_action_may_plan_others_and_the_past_is_now():
    time, seen = VirtualTime(0), []
    time.after(5.0, lambda: time.at(1.0, lambda: seen.append(time.now)))
    time.run(until=10.0)
    assert seen == [5.0]


def test_a_run_ends_when_the_time_is_up_or_nothing_more_is_wanted():
    time, seen = VirtualTime(0), []

    def again():
        seen.append(time.now)
        time.after(1.0, again)

    again()
    assert not time.run(until=3.5)
    assert time.run(until=100.0, is_over=lambda: len(seen) == 6)
    assert seen == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_seed_decides_on_all_chance():
    assert VirtualTime(7).random.random() == VirtualTime(7).random.random()
