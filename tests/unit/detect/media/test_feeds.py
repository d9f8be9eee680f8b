"""A camera (with a stand-in for the hardware), and streams from the loopback."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction

import numpy as np
import pytest

from duet.utils.detect.media import live as captured
from duet.utils.detect.media.finding import find_sources
from duet.utils.detect.media.live import shown_url
from duet.utils.detect.media.source import BrokenSourceError
from tests.unit.detect.media.videos import UNEVEN, number_in, video_bytes

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
    monkeypatch.setattr(captured.cv2, "VideoCapture", lambda index: capture)
    with captured.open_camera(0, max_pixels) as feed:
        return feed.rate, next(iter(feed.frames)), feed


def test_a_camera_gives_rgb(monkeypatch):
    capture = Camera(2)
    rate, image, _ = read_camera(monkeypatch, capture)
    assert (image.image == (0, 0, 255)).all() and capture.is_released
    assert rate == Fraction(2997, 100)


def test_a_camera_that_is_not_there_says_so(monkeypatch):
    with pytest.raises(BrokenSourceError, match="no such camera, or it is in use by"):
        read_camera(monkeypatch, Camera(0))


@contextmanager
def served(pages: dict[str, bytes | int]) -> Iterator[tuple[str, list[str]]]:
    """An HTTP server of these pages, or errors; its URL, and the paths that were asked for."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            page = pages.get(self.path, 404)
            if isinstance(page, int):
                self.send_error(page)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            with suppress(ConnectionError):
                self.wfile.write(page)

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def frames_of(url: str) -> list:
    (source,) = find_sources(url, PIXELS)
    return list(source.frames())


def test_a_recording_at_a_url_gives_all_frames_with_its_own_times():
    content = video_bytes("libx264", "matroska", UNEVEN)
    with served({"/a.mkv": content}) as (url, _):
        frames = frames_of(f"{url}/a.mkv")
    assert [number_in(frame.image) for frame in frames] == list(range(len(UNEVEN)))
    assert [frame.seconds for frame in frames] == pytest.approx(UNEVEN, abs=0.001)


@pytest.mark.parametrize("page", [404, b"", b"no video\n" * 99])
def test_what_is_no_stream_has_one_reason_without_the_password(page, capfd):
    with served({"/a": page}) as (url, _):
        with_password = url.replace("//", "//user:word@")
        with pytest.raises(BrokenSourceError) as raised:
            frames_of(f"{with_password}/a")
    assert len(str(raised.value)) < 200 and "word" not in str(raised.value)
    assert capfd.readouterr() == ("", "")


def test_a_playlist_leads_to_no_other_address():
    playlist = b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n/inner.ts\n#EXT-X-ENDLIST\n"
    pages = {"/a.m3u8": playlist, "/inner.ts": video_bytes("libx264", "mpegts")}
    with served(pages) as (url, asked):
        with pytest.raises(BrokenSourceError):
            frames_of(f"{url}/a.m3u8")
        assert set(asked) == {"/a.m3u8"}


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
def test_a_url_is_shown_without_its_password(url, shown):
    assert shown_url(url) == shown
