"""What detect.py reads beside images: videos, lists of sources."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.fuzz.reader import MIB, Reader
from tests.unit.media.videos import video_bytes
from utils.data.image.limits import MAX_PIXELS
from utils.media.finding import find_sources
from utils.media.source import BrokenSourceError

VIDEO_PIXELS = 10_000  # three times those of the seeds
MAX_FRAMES = 200


def read_source(path: Path) -> object:
    """Read a video as detect.py does, until it has many frames."""
    (source,) = find_sources(str(path), VIDEO_PIXELS)
    shapes = []
    try:
        for frame in source.frames():
            shapes.append(frame.image.shape)
            if len(shapes) == MAX_FRAMES:
                break
    except BrokenSourceError as error:
        if not shapes:
            raise
        return str(error)
    return shapes


def read_list(path: Path) -> object:
    return [source.name for source in find_sources(str(path), MAX_PIXELS)]


def videos(codec: str, form: str, **options: str) -> Callable[[], list[bytes]]:
    return lambda: [video_bytes(codec, form, **options)]


def video_reader(
    suffix: str, seeds: Callable[[], list[bytes]], tokens: tuple[bytes, ...]
) -> Reader:
    # A decoder holds a few frames, and a damaged index asks for a table of its own size.
    return Reader(
        read_source, seeds, f"mutant.{suffix}", tokens, memory_bytes=256 * MIB, seconds=3.0
    )


BOXES = (
    b"moov", b"moof", b"mdat", b"trak", b"stbl", b"stsz", b"stts", b"stco", b"co64", b"elst",
    b"avcC", b"dref", b"url ", b"\x00\x00\x00\x01mdat", b"\x00\x00\x00\x00",
)  # fmt: skip
MEDIA_READERS = {
    "video-mp4": video_reader("mp4", videos("libx264", "mp4"), BOXES),
    "video-fragments": video_reader(
        "mp4", videos("libx264", "mp4", movflags="+frag_keyframe+empty_moov", g="4"), BOXES
    ),
    "video-matroska": video_reader(
        "mkv",
        videos("libx264", "matroska"),
        (b"\x1aE\xdf\xa3", b"\x18S\x80g", b"\x1fC\xb6u", b"\xec"),
    ),
    "video-ts": video_reader(
        "ts", videos("mpeg2video", "mpegts"), (b"G\x40\x00", b"\x00\x00\x01\xb3")
    ),
    "video-avi": video_reader("avi", videos("mpeg4", "avi"), (b"RIFF", b"LIST", b"idx1", b"strf")),
    "source-list": Reader(
        read_list, lambda: [b"a.jpg\nb/c.png\n/d.mp4\n", b"\xef\xbb\xbfa.jpg\r\n"], "mutant.txt",
        (b".jpg\n", b"://", b"rtsp://h\n", b"screen", b"0\n"),
    ),
    "stream-list": Reader(
        read_list, lambda: [b"rtsp://a:b@c/d\n0\n", b"screen 1\nudp://@:1\n"], "mutant.streams",
        (b"rtsp://", b"http://", b"file://", b"screen 9", b"@", b"0\n"),
    ),
}  # fmt: skip
