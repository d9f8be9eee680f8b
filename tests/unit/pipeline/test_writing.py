"""Work goes on in threads, and is told in order; what fails ends it."""

from __future__ import annotations

import time
from functools import partial

import pytest

from utils.pipeline import background
from utils.pipeline.background import Writer


def slowly(number, seconds=0.0):
    time.sleep(seconds or 0.001 * (number * 7 % 5))
    return number


def fail(number):
    raise OSError(28, "No space left on device", f"{number}.jpg")


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_work_is_told_in_order(threads):
    told = []
    with Writer(told.append, threads, most=5) as writer:
        for number in range(40):
            writer.add(partial(slowly, number), in_turn=number % 3 == 0, num_bytes=1)
            assert number + 1 - len(told) <= 5
    assert told == list(range(40))


def test_what_is_done_in_turn_does_not_overlap():
    running, most, order = [], [], []

    def work(number):
        running.append(number)
        most.append(len(running))
        time.sleep(0.002)
        order.append(number)
        running.remove(number)

    with Writer(lambda done: None, 4, most=10) as writer:
        for number in range(20):
            writer.add(partial(work, number), in_turn=True, num_bytes=0)
    assert max(most) == 1 and order == list(range(20))


def test_large_images_wait_for_each_other(monkeypatch):
    monkeypatch.setattr(background, "MOST_BYTES", 100)
    told = []
    with Writer(told.append, 2, most=50) as writer:
        for number in range(6):
            writer.add(partial(slowly, number), in_turn=False, num_bytes=60)
            assert len(told) >= number  # a second one is never kept beside the first


def test_a_failure_ends_the_work_and_what_was_before_it_is_told():
    told, begun = [], []

    def work(number):
        begun.append(number)
        return slowly(number, 0.005)

    with pytest.raises(OSError, match="4.jpg"), Writer(told.append, 1, most=30) as writer:
        for number in range(30):
            task = partial(fail, number) if number == 4 else partial(work, number)
            writer.add(task, in_turn=False, num_bytes=0)
    assert told == [0, 1, 2, 3]
    assert len(begun) < 30  # what had not begun was dropped
