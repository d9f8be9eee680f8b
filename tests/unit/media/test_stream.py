"""Streams from servers on the loopback."""

from __future__ import annotations

import http.server
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.unit.media.videos import EVEN, UNEVEN, number_in, video_bytes
from utils.media import live
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


@contextmanager
def tcp_server(serve: Callable[[socket.socket, int], None]) -> Iterator[str]:
    """A server that calls `serve` with each connection and its number, one after the other."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        number = 0
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    serve(connection, number)
                number += 1

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


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


def test_a_stream_that_breaks_off_is_opened_again(monkeypatch, caplog):
    monkeypatch.setattr(live, "PAUSES", (0.01, 0.02))
    content = video_bytes("mpeg2video", "mpegts", EVEN, g="1")

    def serve(connection: socket.socket, number: int) -> None:
        if number == 0:
            connection.sendall(content[: len(content) // 2])
        elif number == 1:
            connection.sendall(content)
            time.sleep(0.2)  # until the newest frame is taken

    with tcp_server(serve) as url:
        (source,) = find_sources(url, PIXELS)
        frames = []
        with pytest.raises(BrokenSourceError, match="2 attempts to open it again"):
            for frame in source.frames():
                frames.append(number_in(frame.image))
    assert frames[-1] == 19
    assert [f"{url}: " in record.getMessage() for record in caplog.records] == [True] * 2


def test_closing_does_not_wait_for_a_silent_server():
    done = threading.Event()
    with tcp_server(lambda connection, number: done.wait(10)) as url:
        (source,) = find_sources(url, PIXELS)
        threading.Timer(0.1, source.close).start()
        start = time.monotonic()
        assert list(source.frames()) == []
        assert time.monotonic() - start < 8  # the server waits for 10
        done.set()


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
