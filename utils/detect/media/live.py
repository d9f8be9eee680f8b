"""Live sources: the newest frame of a camera, or of a stream at a URL.

A thread reads and keeps only the newest frame, so frames are never stale and no queue grows. A
source that breaks off is reopened. FFmpeg opens only the user's URL, with the protocols that its
scheme needs, and follows no playlist.
"""

import logging
import queue
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from fractions import Fraction
from types import ModuleType
from typing import NamedTuple

import cv2

from duet.utils.data.image.header import check_size
from duet.utils.detect.media.source import Frame, Kind, Source
from duet.utils.detect.media.video import (
    CONTAINERS,
    Container,
    Picture,
    Stream,
    find_video,
    open_options,
    rate_of,
    timed_frames,
)
from duet.utils.errors import BrokenSourceError
from duet.utils.optional import import_optional

TRIES = 5  # in a row without a frame
PAUSE_SECONDS = 5.0  # before each of them
_POLL_SECONDS = 0.1  # between looks at whether it was closed
_MOST_RATE = 1000  # frames a second that a driver may claim in earnest
# FFmpeg's protocols that each scheme needs. HTTP may redirect, and go through a proxy.
_PROTOCOLS = {
    "rtsp": "rtp,tcp,udp",
    "rtmp": "rtmp,tcp",
    "http": "http,https,httpproxy,tls,tcp",
    "https": "https,httpproxy,tls,tcp",
    "tcp": "tcp",
    "udp": "udp",
}
SCHEMES = tuple(_PROTOCOLS)
_STREAM_CONTAINERS = f"{CONTAINERS},mpjpeg,rtsp"
_TIMEOUT_SECONDS = 10.0  # without a byte
_THREADS = 2

log = logging.getLogger("detect")


class Feed(NamedTuple):
    rate: Fraction | None
    frames: Iterable[Frame]  # all of them; BrokenSourceError where it breaks off
    is_recording: bool = False  # it has an end, and no frame is skipped


OpenFeed = Callable[[], AbstractContextManager[Feed]]


class LiveSource(Source):
    """A camera or stream that yields every n-th frame."""

    kind: Kind = "live"

    def __init__(self, name: str, open_feed: OpenFeed, stride: int = 1) -> None:
        self.name = name
        self._open_feed = open_feed
        self._stride = stride
        self._newest: queue.Queue[Frame | Exception | None] = queue.Queue(1)
        self._closed = threading.Event()
        self._num_read = 0
        self._start = self._last = 0.0  # when the first and the last frame came, by the clock

    def frames(self) -> Iterator[Frame]:
        """Yield the newest frame on each request; of a recording at a URL all frames."""
        # A daemon: a system call that waits for a camera cannot be ended.
        threading.Thread(target=self._read, name=f"read {self.name}", daemon=True).start()
        try:
            while not self._closed.is_set():
                with suppress(queue.Empty):
                    given = self._newest.get(timeout=_POLL_SECONDS)
                    if isinstance(given, Exception):
                        raise given
                    if given is None:
                        return
                    yield given
        finally:
            self.close()

    def close(self) -> None:
        self._closed.set()

    def _read(self) -> None:
        try:
            self._read_to_the_end()
            self._give(None, replace=False)
        except Exception as failure:  # any failure is raised in the consumer's thread
            self._give(failure, replace=False)

    def _give(self, frame: Frame | Exception | None, replace: bool) -> None:
        while not self._closed.is_set():
            if replace:
                with suppress(queue.Empty):
                    self._newest.get_nowait()
            with suppress(queue.Full):
                return self._newest.put(frame, timeout=_POLL_SECONDS)

    def _read_to_the_end(self) -> None:
        """Read until closed or the recording ends; BrokenSourceError if reopening fails."""
        tries = 0
        while True:
            num_before = self._num_read
            try:
                with self._open_feed() as feed:
                    self._read_feed(feed)
                if feed.is_recording or self._closed.is_set():
                    return
                reason = "it ended"
            except BrokenSourceError as error:
                reason = str(error)
            tries = 0 if self._num_read > num_before else tries + 1
            if not self._num_read or tries == TRIES:  # without a frame it was never there
                raise BrokenSourceError(reason)
            log.warning("%s: %s; reconnecting in %g s", self.name, reason, PAUSE_SECONDS)
            if self._closed.wait(PAUSE_SECONDS):
                return

    def _read_feed(self, feed: Feed) -> None:
        self.rate = feed.rate / self._stride if feed.rate else None
        for given in feed.frames:
            number, self._num_read = self._num_read, self._num_read + 1
            self._last = time.monotonic()
            self._start = self._start if number else self._last
            seconds = given.seconds if feed.is_recording else self._last - self._start
            if number % self._stride == 0:
                frame = Frame(given.image, self.name, number, seconds)
                self._give(frame, replace=not feed.is_recording)
            if self._closed.is_set():
                return


@contextmanager
def open_camera(index: int, max_pixels: int) -> Iterator[Feed]:
    """Open a camera by its number with OpenCV; BrokenSourceError if that fails."""
    capture = cv2.VideoCapture(index)
    try:
        if not capture.isOpened():
            raise BrokenSourceError("no such camera, or it is in use by another program")
        capture.set(cv2.CAP_PROP_BUFFERSIZE, 1)
        rate = capture.get(cv2.CAP_PROP_FPS)
        known = Fraction(rate).limit_denominator(1001) if 0 < rate < _MOST_RATE else None
        yield Feed(known, _camera_frames(capture, max_pixels))
    finally:
        capture.release()


def _camera_frames(capture: cv2.VideoCapture, max_pixels: int) -> Iterator[Frame]:
    while True:
        is_read, image = capture.read()
        if not is_read:
            raise BrokenSourceError("the camera stopped sending frames")
        check_size(image.shape[:2], max_pixels)
        yield Frame(cv2.cvtColor(image, cv2.COLOR_BGR2RGB), "camera")


def shown_url(url: str) -> str:
    """Return a URL without its user and password, for messages and files."""
    start, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{start}{separator}{host.rpartition('@')[2]}{slash}{path}"


@contextmanager
def open_stream(url: str, max_pixels: int) -> Iterator[Feed]:
    """Open a stream, a recording if it has a length; BrokenSourceError if that fails."""
    av = import_optional("av", "a stream")
    try:
        with av.open(
            url,
            options={**open_options(max_pixels, _STREAM_CONTAINERS), **_options(url)},
            timeout=_TIMEOUT_SECONDS,
            metadata_errors="replace",
        ) as container:
            stream = find_video(container, max_pixels)
            stream.codec_context.thread_type = "SLICE"  # by frames it would hold some back
            stream.codec_context.thread_count = _THREADS
            rate = rate_of(stream)
            frames = timed_frames(_decoded(av, container, stream), "stream", rate, max_pixels)
            has_length = bool(container.duration) or container.size > 0
            yield Feed(rate, frames, is_recording=has_length)
    except av.FFmpegError as error:  # its text has the URL, which may hold a password
        reason = getattr(error, "strerror", "") or type(error).__name__
        raise BrokenSourceError(reason) from error


def _decoded(av: ModuleType, container: Container, stream: Stream) -> Iterator[Picture]:
    for packet in container.demux(stream):
        with suppress(av.InvalidDataError):
            yield from stream.decode(packet)


def _options(url: str) -> dict[str, str]:
    scheme = url.partition(":")[0].lower()
    options = {"protocol_whitelist": _PROTOCOLS[scheme]}
    if scheme == "rtsp":
        options["rtsp_flags"] = "prefer_tcp"  # with UDP, lost packets are gray blocks
    if scheme in ("http", "https"):  # FFmpeg checks no certificate by default
        options["tls_verify"] = "1"
        if authorities := ssl.get_default_verify_paths().cafile:
            options["ca_file"] = authorities
    return options
