"""Which images go through the network together, and how long one waits for others."""

import threading
from concurrent.futures import ThreadPoolExecutor

from models.serving.gathering import Gatherer

FOREVER = 3600.0  # a test that waits for it does not end


def of_numbers(most, seconds=FOREVER):
    """A gatherer of numbers, of which those with equal parity can go together."""
    return Gatherer(lambda number: number % 2, most, seconds)


def put(gatherer, *numbers):
    for number in numbers:
        gatherer.expect()
        gatherer.add(number)


def test_an_only_item_goes_at_once():
    gatherer = of_numbers(most=8)
    put(gatherer, 4)
    assert gatherer.take() == [4]


def test_the_oldest_goes_first_with_those_like_it_and_no_more_than_a_batch():
    gatherer = of_numbers(most=3)
    put(gatherer, 1, 2, 3, 5, 4, 7)
    assert [gatherer.take() for _ in range(3)] == [[1, 3, 5], [2, 4], [7]]


def test_equal_items_are_not_lost():
    gatherer = of_numbers(most=2)
    put(gatherer, 1001, 1001, 1001)
    assert [gatherer.take(), gatherer.take()] == [[1001, 1001], [1001]]


def test_items_wait_for_those_that_are_on_their_way():
    gatherer = of_numbers(most=3)
    put(gatherer, 2)
    gatherer.expect()
    gatherer.expect()
    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(gatherer.take)
        gatherer.add(4)
        assert not taken.done()
        gatherer.add(6)
        assert taken.result() == [2, 4, 6]


def test_items_wait_no_longer_when_nothing_comes():
    gatherer = of_numbers(most=3)
    put(gatherer, 2)
    gatherer.expect()
    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(gatherer.take)
        assert not taken.done()
        gatherer.miss()
        assert taken.result() == [2]


def test_the_wait_has_an_end():
    gatherer = of_numbers(most=3, seconds=0.01)
    put(gatherer, 2)
    gatherer.expect()
    assert gatherer.take() == [2]


def test_a_full_batch_waits_for_nothing():
    gatherer = of_numbers(most=2)
    put(gatherer, 2, 4)
    gatherer.expect()
    assert gatherer.take() == [2, 4]


def test_each_item_goes_to_one_lane():
    gatherer = of_numbers(most=3)
    found, lock = [], threading.Lock()

    def lane():
        while len(found) < 200:
            batch = gatherer.take()
            with lock:
                found.extend(batch)
                if len(found) >= 200:
                    put(gatherer, *range(1000, 1004))  # wakes the other lanes

    lanes = [threading.Thread(target=lane) for _ in range(4)]
    for thread in lanes:
        thread.start()
    put(gatherer, *range(200))
    for thread in lanes:
        thread.join()
    assert sorted(number for number in found if number < 1000) == list(range(200))


def test_lanes_end_when_it_is_closed():
    gatherer = of_numbers(most=2)
    with ThreadPoolExecutor(2) as pool:
        taken = [pool.submit(gatherer.take) for _ in range(2)]
        gatherer.close()
        assert [one.result() for one in taken] == [[], []]
