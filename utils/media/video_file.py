"""Video files -> frames, with the times at which they are shown.

Before: `finding.py` names the files. After: `models/inference/job.py`; `video_frames.py` decodes.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

from backend.words import count
from utils.files.regular import open_regular
from utils.media.container_length import measure_container
from utils.media.frame import Frame
from utils.media.source import BrokenSourceError, Kind
from utils.media.video_frames import find_video, load_av, open_options, rate_of, timed_images

_THREADS = 2  # of the decoder; the network needs the cores too
_READ_BYTES = 1 << 18


class VideoFile:
    """A video file, of which every n-th frame is given."""

    kind: Kind = "video"

    def __init__(self, path: Path, max_pixels: int, stride: int = 1) -> None:
        self.path = path
        self.rate: Fraction | None = None
        self.num_frames: int | None = None
        self._max_pixels = max_pixels
        self._stride = stride
        self._is_closed = False

    @property
    def name(self) -> Path:
        return self.path

    def close(self) -> None:
        """End `frames` before its next frame."""
        self._is_closed = True

    def frames(self) -> Iterator[Frame]:
        """Yield the frames; of a file that is cut short those that are there, then an error."""
        av = load_av("a video")
        try:
            with open_regular(self.path) as file:
                yield from self._frames(av, file)
        except OSError as error:
            raise BrokenSourceError(error.strerror or str(error)) from error

    def _frames(self, av: ModuleType, file: BinaryIO) -> Iterator[Frame]:
        length = measure_container(file)
        cut = "cut short: " if length.is_cut else ""
        packets = _Packets(av)
        num_frames = 0
        try:
            with _opened(av, file, length.readable_bytes, self._max_pixels) as container:
                stream = find_video(container, self._max_pixels)
                stream.codec_context.thread_type = "AUTO"
                stream.codec_context.thread_count = _THREADS
                rate = rate_of(stream)
                self.rate = rate / self._stride
                self.num_frames = -(-stream.frames // self._stride) or None
                decoded = packets.decode(container, stream)
                images = timed_images(av, decoded, rate, self._max_pixels, self._stride)
                for image, number, seconds in images:
                    if self._is_closed:
                        return
                    yield Frame(image, self.path, number, seconds)
                    num_frames += 1
        except av.FFmpegError as error:
            raise BrokenSourceError(f"{cut}cannot be read as a video") from error
        self._check_end(length.is_cut, packets.num_damaged, num_frames)

    def _check_end(self, is_cut: bool, num_damaged: int, num_frames: int) -> None:
        """Raise BrokenSourceError unless all of the file could be read."""
        if is_cut:
            reason = "cut short"
        elif num_damaged:
            reason = count(num_damaged, "damaged packet")
        elif num_frames:
            return
        else:
            raise BrokenSourceError("holds no frame")
        if not num_frames:  # FFmpeg refuses what is too large, and says no more than of damage
            reason += f", or frames of over {self._max_pixels:,} pixels (--max-pixels)"
        raise BrokenSourceError(f"{reason}; {count(num_frames, 'frame')} could be read")


class _Packets:
    """The packets of a video, decoded as far as they can be."""

    def __init__(self, av: ModuleType) -> None:
        self._av = av
        self.num_damaged = 0

    def decode(self, container: Any, stream: Any) -> Iterator[Any]:
        """Yield PyAV's frames in the order in which they are shown."""
        try:
            for packet in container.demux(stream):  # the last one is empty, and ends the decoder
                self.num_damaged += packet.is_corrupt
                yield from self._frames_of(stream, packet)
        except self._av.FFmpegError:  # the container itself: behind it nothing can be found
            self.num_damaged += 1
            yield from self._frames_of(stream, None)

    def _frames_of(self, stream: Any, packet: Any) -> list[Any]:
        try:
            found: list[Any] = stream.decode(packet)
        except self._av.FFmpegError:
            self.num_damaged += packet is None or not packet.is_corrupt
            return []
        return found


class _FirstBytes:
    """The first bytes of a file, for PyAV. It has no name, so nothing is guessed from that."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._size = size
        self.tell = file.tell

    def read(self, size: int) -> bytes:
        return self._file.read(max(0, min(size, self._size - self._file.tell())))

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END:
            offset, whence = self._size + offset, io.SEEK_SET
        return self._file.seek(offset, whence)


def _opened(av: ModuleType, file: BinaryIO, size: int, max_pixels: int) -> Any:
    """Open a container that reads only its file, whatever other files it names."""
    return av.open(
        _FirstBytes(file, size),
        options=open_options(max_pixels),
        buffer_size=_READ_BYTES,
        metadata_errors="replace",
        io_open=_refuse,
    )


def _refuse(name: str, flags: int, options: dict[str, str]) -> Any:
    raise PermissionError("a video may not open other files")
