"""Images that wait for the network, and which of them go through it together.

Before: `worker.py` decodes them. After: its lanes take batches.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Gatherer(Generic[Item]):
    """Items in the order in which they came, until a lane takes those at the front.

    A lane that finds fewer than a batch waits for those that are on their way, and only for them:
    so a single item never waits, and under load the batches fill.

    Args:
        key: items of equal keys can be a batch.
        most: items of a batch.
        seconds: that the oldest item waits for others, at most.
    """

    def __init__(self, key: Callable[[Item], Hashable], most: int, seconds: float) -> None:
        self._key, self._most, self._seconds = key, most, seconds
        self._items: list[tuple[float, Item]] = []
        self._coming = 0
        self._is_closed = False
        self._changed = threading.Condition()

    def expect(self) -> None:
        """Announce an item: `add` or `miss` will follow."""
        with self._changed:
            self._coming += 1

    def add(self, item: Item) -> None:
        """Take an item that was announced."""
        with self._changed:
            self._coming -= 1
            self._items.append((time.monotonic(), item))
            self._changed.notify_all()

    def miss(self) -> None:
        """Take back an announcement: the item does not come."""
        with self._changed:
            self._coming -= 1
            self._changed.notify_all()

    def take(self) -> list[Item]:
        """Wait for items; return the oldest, and with it those that can go together.

        [] when nothing more is to be taken.
        """
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._items or self._is_closed)
                if self._is_closed:
                    return []
                came, first = self._items[0]
                places = self._places_of(self._key(first))
                left = came + self._seconds - time.monotonic()
                if len(places) == self._most or not self._coming or left <= 0:
                    return self._taken(places)
                self._changed.wait(left)

    def close(self) -> None:
        """Have each lane take nothing more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _places_of(self, key: Hashable) -> list[int]:
        """Return where the oldest items with a key are, no more than a batch of them."""
        places = (place for place, (_, item) in enumerate(self._items) if self._key(item) == key)
        return list(itertools.islice(places, self._most))

    def _taken(self, places: list[int]) -> list[Item]:
        chosen = [self._items[place][1] for place in places]
        for place in reversed(places):
            del self._items[place]
        return chosen
