"""Streams from servers on the loopback."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.unit.media.videos import UNEVEN, number_in, video_bytes
from utils.media.feeds import shown_url
from utils.media.finding import find_sources
from utils.media.source import BrokenSourceError

PIXELS = 10**6


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
