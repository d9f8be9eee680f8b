"""The times that a tracker is given."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from utils.tracking.clock import Clock

LONGEST = 0.25  # seconds


def gaps(clock: Clock, times: list[float | None]) -> list[float]:
    """Seconds from one frame to the next."""
    read = [clock.read(time) for time in times]
    return [after - before for before, after in zip(read, read[1:], strict=False)]


def test_times_of_a_video_keep_their_gaps():
    times = [0.0, 0.04, 0.08, 0.20, 0.21]
    assert gaps(Clock(25, LONGEST), times) == pytest.approx([0.04, 0.04, 0.12, 0.01])


def test_frames_without_a_time_are_one_step_of_the_rate_apart():
    assert gaps(Clock(20, LONGEST), [None] * 3) == pytest.approx([0.05, 0.05])
    assert gaps(Clock(Fraction(30000, 1001), LONGEST), [None] * 2) == pytest.approx([1001 / 30000])


@pytest.mark.parametrize("rate", [None, 0, -5, math.nan, math.inf, 90000, Fraction(0)])
def test_a_rate_that_cannot_be_counts_as_30(rate):
    assert Clock(rate, LONGEST).rate == 30
    assert gaps(Clock(rate, LONGEST), [None, None]) == pytest.approx([1 / 30])


@pytest.mark.parametrize("time", [1.0, 0.5, -1e9, math.nan, math.inf, -math.inf, None])
def test_a_time_that_does_not_go_on_is_one_step(time):
    times = [0.96, 1.0, time]
    assert gaps(Clock(25, LONGEST), times) == pytest.approx([0.04, 0.04])
    after = gaps(Clock(25, LONGEST), [*times, 100.0, 100.04])
    assert all(gap > 0 for gap in after) and after[-1] == pytest.approx(0.04)


def test_a_pause_counts_in_full():
    times = [0.0, 0.04, 60.0, 60.04]
    assert gaps(Clock(25, LONGEST), times) == pytest.approx([0.04, 59.96, 0.04])


def test_frames_that_are_always_far_apart_come_at_the_longest_usual_gap():
    times = [0.0, 2.0, 4.0, 7.0, 9.0]
    # The first gap may be a pause: nothing is known of the others. 3 s after 2 s are 3 / 2 of it.
    expected = [2.0, LONGEST, 3 / 2 * LONGEST, LONGEST]
    assert gaps(Clock(25, LONGEST), times) == pytest.approx(expected)
    assert gaps(Clock(0.5, LONGEST), times[:3]) == pytest.approx([LONGEST, LONGEST])
