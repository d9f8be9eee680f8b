"""A camera of this machine, or a stream at a URL -> frames.

Of a stream only the URL that the user gave is opened: FFmpeg may use the protocols that the scheme
needs and no others, and follows no playlist.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from types import ModuleType
from typing import Any

import cv2

from duet.utils.detect.media.live import Feed
from duet.utils.detect.media.source import BrokenSourceError, Frame, require_size
from duet.utils.detect.media.video import (
    CONTAINERS,
    find_video,
    open_options,
    rate_of,
    timed_frames,
)
from duet.utils.optional import import_optional

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


@contextmanager
def open_camera(index: int, max_pixels: int) -> Iterator[Feed]:
    """Open a camera by its number; BrokenSourceError if there is none, or another uses it.

    OpenCV opens it: it knows the cameras of each system, and is always there.
    """
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
        require_size(image.shape[:2], max_pixels)
        yield Frame(cv2.cvtColor(image, cv2.COLOR_BGR2RGB), "camera")


def shown_url(url: str) -> str:
    """Return a URL without its user and password, for messages and files."""
    start, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{start}{separator}{host.rpartition('@')[2]}{slash}{path}"


@contextmanager
def open_stream(url: str, max_pixels: int) -> Iterator[Feed]:
    """Open a stream; what has a length, in seconds or bytes, is a recording.

    Raises:
        BrokenSourceError: it cannot be opened, or holds no video.
        UserError: PyAV is absent.
    """
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


def _decoded(av: ModuleType, container: Any, stream: Any) -> Iterator[Any]:
    """Yield PyAV's frames; a damaged packet is left out, as it is where something got lost."""
    for packet in container.demux(stream):
        with suppress(av.InvalidDataError):
            yield from stream.decode(packet)


def _options(url: str) -> dict[str, str]:
    """Return FFmpeg's options for the scheme of a URL."""
    scheme = url.partition(":")[0].lower()
    options = {"protocol_whitelist": _PROTOCOLS[scheme]}
    if scheme == "rtsp":
        options["rtsp_flags"] = "prefer_tcp"  # with UDP, lost packets are gray blocks
    if scheme in ("http", "https"):  # FFmpeg checks no certificate by default
        options["tls_verify"] = "1"
        if authorities := ssl.get_default_verify_paths().cafile:
            options["ca_file"] = authorities
    return options
