"""How many requests a model holds, and what it tells those for which there is no place."""

import pytest

from utils.serve.failures import RequestError
from utils.serve.line import WEIGHT, Line


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def held(line: Line, number: int) -> list:
    places = [line.place() for _ in range(number)]
    for place in places:
        place.__enter__()
    return places


def answer(place) -> None:
    place.__exit__(None, None, None)


def test_no_more_are_held_than_there_are_places():
    line = Line(2, 30)
    first, _ = held(line, 2)
    with pytest.raises(RequestError) as caught, line.place():
        pass
    assert (caught.value.status, caught.value.headers) == (429, {"Retry-After": "1"})
    answer(first)
    line.require_place()
    assert line.taken == 1


def test_whoever_is_refused_waits_as_long_as_half_of_those_held_take():
    clock = Clock()
    line = Line(100, 1000, clock)
    places = held(line, 100)
    clock.seconds = 3.0
    answer(places.pop())
    assert line.retry_after() == 3 * 50  # 99 are held, of which 50 are answered first
    clock.seconds = 4.0
    answer(places.pop())
    mean = 3 + WEIGHT * (1 - 3)
    assert line.retry_after() == -(-mean * 49 // 1)  # rounded up


def test_the_time_in_which_nothing_is_held_is_no_work():
    clock = Clock()
    line = Line(4, 1000, clock)
    for start in (0.0, 500.0):
        clock.seconds = start
        (place,) = held(line, 1)
        clock.seconds = start + 2
        answer(place)
    places = held(line, 4)
    assert line.retry_after() == 2 * len(places) / 2


def test_a_model_that_has_stopped_answering_is_left_in_peace_longer_and_longer():
    clock = Clock()
    line = Line(4, 1000, clock)
    places = held(line, 4)
    for seconds in (1, 30):
        clock.seconds = float(seconds)
        assert line.retry_after() == seconds * len(places) / 2
    assert not places.pop().__exit__(TimeoutError, TimeoutError(), None)  # that is no answer
    assert line.retry_after() == 30 * 2


def test_nobody_is_told_to_wait_longer_than_a_request_may_take():
    clock = Clock()
    line = Line(50, 20, clock)
    place, *_ = held(line, 50)
    clock.seconds = 100
    answer(place)
    assert line.retry_after() == 20


def test_a_place_is_free_again_after_an_error():
    line = Line(1, 30)
    with pytest.raises(ZeroDivisionError), line.place():
        raise ZeroDivisionError
    line.require_place()
