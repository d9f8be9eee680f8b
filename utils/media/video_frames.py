"""FFmpeg by way of PyAV, within bounds: packets -> frames (H, W, 3) RGB with their times.

PyAV 17.1 (FFmpeg 8) compared with OpenCV 4.11 on files of eight containers: OpenCV ignored the
rotation, counted 91 frames for 20, lost up to six frames in front of a cut and reported no cut; it
writes even times only, and its build here has no H.264.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from utils.data.image.orientation import orientation_of_matrix, turned_upright
from utils.media.source import BrokenSourceError, require_size
from utils.optional import import_optional

# What FFmpeg may take a file for. Not among them: playlists and the like (HLS, DASH, concat, SDP),
# which open other files and addresses, past all hooks; and single images.
CONTAINERS = (
    "asf,avi,flv,h264,hevc,ivf,m4v,matroska,webm,mjpeg,mov,mp4,m4a,3gp,3g2,mj2,mpeg,mpegts,"
    "mpegvideo,mxf,nut,ogg"
)
_DEFAULT_RATE = Fraction(30)
# FFmpeg compares the size in memory: up to 96 columns and 48 rows more, of at most 65,536 each.
_PIXELS_AROUND = 10_000_000


class TimedImage(NamedTuple):
    """A frame as a container gives it."""

    image: np.ndarray  # (H, W, 3) uint8 RGB, upright
    number: int = 0  # from 0, as shown
    seconds: float = 0.0  # after the first frame


def load_av(what_for: str) -> ModuleType:
    """Return PyAV; UserError if it is absent. It keeps FFmpeg's own lines to itself."""
    return import_optional("av", what_for)


def open_options(max_pixels: int, containers: str = CONTAINERS) -> dict[str, str]:
    """Return what to open a container with; FFmpeg looks into frames before it hands them out."""
    return {"format_whitelist": containers, **_within(max_pixels)}


def _within(max_pixels: int) -> dict[str, str]:
    return {"max_pixels": str(max_pixels + _PIXELS_AROUND)}


def find_video(container: Any, max_pixels: int) -> Any:
    """Return the video stream of a container, made ready to be decoded.

    Raises:
        BrokenSourceError: there is none, it cannot be decoded, or its frames are too large.
    """
    found = [stream for stream in container.streams.video if not _is_cover(stream)]
    if not found:
        raise BrokenSourceError("holds no video")
    stream = found[0]
    codec = stream.codec_context
    if codec is None:
        raise BrokenSourceError("uses a video codec that cannot be decoded")
    if codec.width and codec.height:  # else the first packet says
        require_size((codec.height, codec.width), max_pixels)
    codec.options = _within(max_pixels)
    return stream


def _is_cover(stream: Any) -> bool:
    """Whether it is cover art, an image of one frame."""
    return bool(stream.disposition & type(stream.disposition).attached_pic)


def rate_of(stream: Any) -> Fraction:
    """Return the frames per second of a video stream, on average; 30 if it is not known."""
    rate = stream.average_rate or stream.guessed_rate
    return Fraction(rate) if rate else _DEFAULT_RATE


def timed_images(
    av: ModuleType, decoded: Iterable[Any], rate: Fraction, max_pixels: int, stride: int = 1
) -> Iterator[TimedImage]:
    """Yield every n-th of PyAV's frames; a time that is absent or runs back is made to go on.

    Raises:
        BrokenSourceError: a frame is too large; the size may change in the middle.
    """
    # `frame.to_ndarray(format="rgb24")` alone would start one thread per core, for each frame.
    converter = av.video.reformatter.VideoReformatter()
    first = seconds = 0.0
    for number, frame in enumerate(decoded):
        if number == 0:
            first = frame.time or 0.0
        else:
            given = -1.0 if frame.time is None else frame.time - first
            seconds = given if given > seconds else seconds + float(1 / rate)
        if number % stride == 0:
            require_size((frame.height, frame.width), max_pixels)
            yield TimedImage(_upright_rgb(frame, converter), number, seconds)


def _upright_rgb(frame: Any, converter: Any) -> np.ndarray:
    """Return PyAV's frame as (H, W, 3) uint8 RGB, turned as its display matrix says."""
    matrix = frame.side_data.get("DISPLAYMATRIX")
    image: np.ndarray = converter.reformat(frame, format="rgb24", threads=1).to_ndarray()
    if matrix is None:
        return image
    return turned_upright(image, orientation_of_matrix(np.frombuffer(matrix, np.int32).tolist()))
