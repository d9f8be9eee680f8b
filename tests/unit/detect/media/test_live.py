"""Live sources: the newest frame, new tries, and an end from any thread."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction

import numpy as np
import pytest

from duet.utils.detect.media import live
from duet.utils.detect.media.live import Feed, LiveSource
from duet.utils.detect.media.source import BrokenSourceError, Frame


def image(number: int) -> Frame:
    return Frame(np.full((16, 16, 3), number, np.uint8), "", number, number / 10)


def source_of(*feeds: Callable[[], Iterator[Frame]], **options) -> LiveSource:
    """A source that opens each of these once, and is then gone."""
    left = list(feeds)

    @contextmanager
    def open_feed():
        if not left:
            raise BrokenSourceError("gone")
        yield Feed(Fraction(10), left.pop(0)(), options.get("is_recording", False))

    return LiveSource("a camera", open_feed, options.get("stride", 1))


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(live, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(live, "TRIES", 2)


def test_frames_that_nobody_took_in_time_are_left_out():
    begun, go_on = threading.Event(), threading.Event()

    def feed():
        yield image(0)
        begun.set()
        go_on.wait(5)
        yield from map(image, range(1, 100))
        begun.set()
        time.sleep(30)

    source = source_of(feed)
    frames = source.frames()
    assert next(frames).image[0, 0, 0] == 0
    begun.wait(5)
    begun.clear()
    go_on.set()
    begun.wait(5)
    newest = next(frames)
    assert (newest.number, newest.image[0, 0, 0]) == (99, 99)
    assert source.rate == 10
    source.close()


def test_what_breaks_off_is_opened_again_and_reports_it(quick, caplog):
    def breaks():
        yield image(1)
        time.sleep(0.05)
        raise BrokenSourceError("cable")

    source = source_of(breaks, lambda: iter([image(2)]))
    frames = []
    with pytest.raises(BrokenSourceError, match="gone"):
        for frame in source.frames():
            frames.append(frame)
    assert [frame.image[0, 0, 0] for frame in frames] == [1, 2]
    assert [frame.number for frame in frames] == [0, 1]
    assert [record.getMessage() for record in caplog.records] == [
        "a camera: cable; reconnecting in 0.01 s",
        "a camera: it ended; reconnecting in 0.01 s",
        "a camera: gone; reconnecting in 0.01 s",
    ]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


@pytest.mark.parametrize("where", ["frame", "opening", "pause"])
def test_closing_from_another_thread_wakes_who_waits(where, monkeypatch):
    monkeypatch.setattr(live, "PAUSE_SECONDS", 30.0)

    @contextmanager
    def open_feed():
        if where == "opening":
            time.sleep(30)
        yield Feed(None, feed())

    def feed():
        yield image(1)
        if where == "frame":
            time.sleep(30)

    source = LiveSource("a camera", open_feed)
    frames = source.frames()
    if where != "opening":
        next(frames)
    threading.Timer(0.1, source.close).start()
    start = time.monotonic()
    assert list(frames) == []
    assert time.monotonic() - start < 20  # not for 30
