"""Video files -> frames, with the times at which they are shown."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

from backend.words import count
from utils.files.regular import open_regular
from utils.media.frame import Frame
from utils.media.source import BrokenSourceError, Kind
from utils.media.video_frames import find_video, load_av, open_options, rate_of, timed_images

_THREADS = 2  # of the decoder; the network needs the cores too
_READ_BYTES = 1 << 18
_MAY_MISS = 0.01  # of the frames that a header counts: an editor may have cut some out of the list


class VideoFile:
    """A video file, of which every n-th frame is given."""

    kind: Kind = "video"

    def __init__(self, path: Path, max_pixels: int, stride: int = 1) -> None:
        self.path = self.name = path
        self.rate: Fraction | None = None
        self.num_frames: int | None = None
        self._max_pixels = max_pixels
        self._stride = stride
        self._is_closed = False
        self._num_packets = self._num_damaged = 0

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
        num_frames = num_counted = 0
        try:
            # It has no name, so that nothing is guessed from that, and opens no other file.
            with av.open(
                _Nameless(file),
                options=open_options(self._max_pixels),
                buffer_size=_READ_BYTES,
                metadata_errors="replace",
                io_open=_refuse,
            ) as container:
                stream = find_video(container, self._max_pixels)
                stream.codec_context.thread_type = "AUTO"
                stream.codec_context.thread_count = _THREADS
                rate, num_counted = rate_of(stream), stream.frames
                self.rate = rate / self._stride
                self.num_frames = -(-num_counted // self._stride) or None
                decoded = self._decoded(av, container, stream)
                for image in timed_images(av, decoded, rate, self._max_pixels, self._stride):
                    if self._is_closed:
                        return
                    yield Frame(image.image, self.path, image.number, image.seconds)
                    num_frames += 1
        except av.FFmpegError as error:
            raise BrokenSourceError("damaged, cut short or no video") from error
        self._check_end(num_counted, num_frames)

    def _decoded(self, av: ModuleType, container: Any, stream: Any) -> Iterator[Any]:
        """Yield PyAV's frames in the order in which they are shown, as far as they can be decoded.

        Counts the packets, and the damaged ones.
        """
        packets = container.demux(stream)
        is_last = False
        while not is_last:
            packet = None
            try:
                packet = next(packets)  # the last one is empty, and ends the decoder
                is_last = packet.size == 0 and packet.pts is None
                self._num_packets += packet.size > 0
                self._num_damaged += packet.is_corrupt
                yield from stream.decode(packet)
            except av.FFmpegError:
                # Without a packet it is the container itself: behind it nothing can be found.
                is_last = packet is None
                self._num_damaged += packet is None or not packet.is_corrupt
            except StopIteration:
                return

    def _check_end(self, num_counted: int, num_frames: int) -> None:
        """Raise BrokenSourceError unless all of the file could be read."""
        if self._num_packets < num_counted * (1 - _MAY_MISS):
            reason = "cut short"
        elif self._num_damaged:
            reason = count(self._num_damaged, "damaged packet")
        elif num_frames:
            return
        else:
            raise BrokenSourceError("holds no frame")
        if not num_frames:  # FFmpeg refuses what is too large, and says no more than of damage
            reason += f", or frames of over {self._max_pixels:,} pixels (--max-pixels)"
        raise BrokenSourceError(f"{reason}; {count(num_frames, 'frame')} could be read")


class _Nameless:
    """An open file without its name."""

    def __init__(self, file: BinaryIO) -> None:
        self.read, self.seek, self.tell = file.read, file.seek, file.tell


def _refuse(name: str, flags: int, options: dict[str, str]) -> Any:
    raise PermissionError("a video may not open other files")
