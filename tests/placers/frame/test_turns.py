"""Turns: one lane for several members, more of it for those that improve, some of it for all."""

from __future__ import annotations

import threading
import time

from loadmaster.placers.frame.turns import OPENING, Turn, Turns


def run(gains: dict[str, float], rounds: int) -> tuple[dict[str, int], int]:
    """Members that gain so much a turn take turns of a second on a clock that they move themselves.

    How many turns each has had, and how many members were ever at work at once.
    """
    now, at_work, most = [0.0], [0], [0]
    had = dict.fromkeys(gains, 0)
    turns = Turns(1.0, lambda: sum(had.values()) >= rounds, clock=lambda: now[0])
    gate = threading.Barrier(len(gains))

    def member(name: str) -> None:
        gate.wait()
        turn = turns.join(name)
        while sum(had.values()) < rounds:
            while turns.waiting < len(gains) - 1 and sum(had.values()) < rounds:
                time.sleep(0.001)  # all others are in line
            at_work[0] += 1
            most[0] = max(most[0], at_work[0])
            had[name] += 1
            turn.gained(gains[name])
            now[0] += 1.0
            at_work[0] -= 1
            turn.pass_on()
        turns.leave(turn)

    threads = [threading.Thread(target=member, args=(name,)) for name in gains]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return had, most[0]


def test_whoever_improves_has_more_turns_and_nobody_is_forgotten() -> None:
    had, most = run({"good": 0.01, "idle": 0.0, "lazy": 0.0}, 40)
    assert most == 1
    assert had["good"] > max(had["idle"], had["lazy"])
    assert min(had.values()) >= 5


def test_whoever_gains_first_does_not_keep_others_from_showing_what_they_can() -> None:
    had, _ = run({"quick": 0.5, "b": 0.0, "c": 0.0, "d": 0.0, "e": 0.0}, 5 * OPENING)
    assert set(had.values()) == {OPENING}


def test_turns_are_even_where_nothing_improves() -> None:
    had, _ = run({"a": 0.0, "b": 0.0, "c": 0.0}, 30)
    assert max(had.values()) - min(had.values()) <= 3


def test_a_turn_is_not_passed_on_before_its_time_and_waiting_is_booked() -> None:
    now = [0.0]
    turns = Turns(1.0, lambda: False, clock=lambda: now[0])
    turn: Turn = turns.join("alone")
    now[0] = 0.5
    turn.pass_on()
    assert turn.spent == 0.0
    now[0] = 1.5
    turn.pass_on()
    assert turn.spent == 1.5
    assert turn.waited == 0.0


def test_a_member_expects_its_share_of_what_is_left() -> None:
    now = [0.0]
    turns = Turns(1.0, lambda: True, clock=lambda: now[0], left=lambda: 100.0 - now[0])
    heavy = turns.join("heavy", 3.0)
    assert heavy.expected == 100.0
    turns.join("light")
    assert heavy.expected == 75.0
    heavy.spent, heavy.waited, heavy.since = 10.0, 30.0, now[0]
    assert 25.0 < heavy.expected < 35.0
    now[0] = 100.0
    assert heavy.expected == 0.0


def test_nobody_expects_less_time_because_of_a_member_that_passes() -> None:
    turns = Turns(1.0, lambda: True, clock=lambda: 0.0, left=lambda: 100.0)
    groups = turns.join("groups", 3.0)
    turns.join("rule", 1000.0, passing=True)
    assert groups.expected == 100.0
    turns.join("other")
    assert groups.expected == 75.0


def test_the_heaviest_comes_first_and_whoever_works_in_vain_counts_less() -> None:
    turns = Turns(1.0, lambda: True)
    heavy, light, late = turns.join("heavy", 4.0), turns.join("light"), turns.join("a late rule", 1000.0)
    assert min((heavy, light, late), key=lambda turn: turn.fair) is late
    heavy.spent = 2.0  # a third turn is due to it before the other has its first
    assert heavy.fair < light.fair
    heavy.vain = 2
    assert heavy.fair > light.fair
    heavy.vain = 1000
    assert heavy.fair == 3.0 / (4.0 * 0.25)


def test_a_gain_makes_good_for_turns_in_vain() -> None:
    now = [0.0]
    turns = Turns(1.0, lambda: False, clock=lambda: now[0])
    turn = turns.join("alone")
    for gain, vain in ((0.0, 1), (0.0, 2), (0.1, 0), (0.0, 1)):
        turn.gained(gain)
        now[0] += 1.0
        turn.pass_on()
        assert turn.vain == vain
