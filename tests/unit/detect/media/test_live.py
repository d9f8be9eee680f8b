"""Cameras (with a stand-in) and streams: the newest frame, reconnecting, and closing."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction

import numpy as np
import pytest

from duet.utils.detect.media import live
from duet.utils.detect.media.finding import find_sources
from duet.utils.detect.media.live import Feed, LiveSource, shown_url
from duet.utils.detect.media.source import Frame
from duet.utils.errors import BrokenSourceError
from tests.unit.data.fetch.conftest import loopback_site
from tests.unit.detect.made import UNEVEN, number_in, video_bytes


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
def fast_retries(monkeypatch):
    monkeypatch.setattr(live, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(live, "TRIES", 2)


def test_late_reader_gets_only_the_newest_frame():
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


def test_broken_stream_is_reopened_and_reported(fast_retries, caplog):
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
def test_closing_from_another_thread_wakes_the_reader(where, monkeypatch):
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


PIXELS = 10**6


class Camera:
    """Gives so many frames, BGR: blue at first."""

    def __init__(self, number_of_frames: int, rate: float = 29.97) -> None:
        self.left, self.rate, self.is_released = number_of_frames, rate, False

    def isOpened(self) -> bool:  # noqa: N802
        return self.left > 0

    def get(self, what: int) -> float:
        return self.rate

    def set(self, what: int, value: float) -> bool:
        return False

    def read(self):
        self.left -= 1
        image = np.zeros((20, 30, 3), np.uint8)
        image[..., 0] = 255
        return (True, image) if self.left >= 0 else (False, None)

    def release(self) -> None:
        self.is_released = True


def read_camera(monkeypatch, capture: Camera, max_pixels: int = PIXELS):
    monkeypatch.setattr(live.cv2, "VideoCapture", lambda index: capture)
    with live.open_camera(0, max_pixels) as feed:
        return feed.rate, next(iter(feed.frames)), feed


def test_camera_frames_are_rgb(monkeypatch):
    capture = Camera(2)
    rate, image, _ = read_camera(monkeypatch, capture)
    assert (image.image == (0, 0, 255)).all() and capture.is_released
    assert rate == Fraction(2997, 100)


def test_absent_camera_is_reported(monkeypatch):
    with pytest.raises(BrokenSourceError, match="no such camera, or it is in use by"):
        read_camera(monkeypatch, Camera(0))


def frames_of(url: str) -> list:
    (source,) = find_sources(url, PIXELS)
    return list(source.frames())


def test_recording_at_a_url_keeps_all_frames_and_times():
    content = video_bytes("libx264", "matroska", UNEVEN)
    with loopback_site() as site:
        frames = frames_of(site.put("/a.mkv", content))
    assert [number_in(frame.image) for frame in frames] == list(range(len(UNEVEN)))
    assert [frame.seconds for frame in frames] == pytest.approx(UNEVEN, abs=0.001)


@pytest.mark.parametrize("files", [{}, {"/a": b""}, {"/a": b"no video\n" * 99}])
def test_broken_stream_error_hides_the_password(files, capfd):
    with loopback_site() as site:
        site.files = files
        with_password = site.root.replace("//", "//user:word@")
        with pytest.raises(BrokenSourceError) as raised:
            frames_of(f"{with_password}/a")
    assert len(str(raised.value)) < 200 and "word" not in str(raised.value)
    assert capfd.readouterr() == ("", "")


def test_playlist_opens_no_other_address():
    playlist = b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n/inner.ts\n#EXT-X-ENDLIST\n"
    with loopback_site() as site:
        site.put("/inner.ts", video_bytes("libx264", "mpegts"))
        with pytest.raises(BrokenSourceError):
            frames_of(site.put("/a.m3u8", playlist))
        assert {path for path, _ in site.asked} == {"/a.m3u8"}


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("rtsp://user:word@host:554/a", "rtsp://host:554/a"),
        ("http://host/a@b", "http://host/a@b"),
        ("http://u:p@ss@host", "http://host"),
        ("udp://@:1234", "udp://:1234"),
        ("http://u:p@host?x=/y@z", "http://host?x=/y@z"),
    ],
)
def test_url_is_shown_without_its_password(url, shown):
    assert shown_url(url) == shown
