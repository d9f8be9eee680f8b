"""Read frames (H, W, 3) RGB and times of video files, and write H.264 in MP4, with PyAV (FFmpeg).

PyAV 17.1 (FFmpeg 8) compared with OpenCV 4.11 on files of eight containers: OpenCV ignored the
rotation, counted 91 frames for 20, lost up to six frames in front of a cut and reported no cut; it
writes even times only, and its build here has no H.264.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import cv2
import numpy as np

from duet.utils.data.image.decoding import orientation_of_matrix, turned_upright
from duet.utils.data.image.header import check_size
from duet.utils.detect.media.source import Frame, Kind, Source
from duet.utils.errors import BrokenSourceError, UserError
from duet.utils.files.atomic import atomic_file, naming
from duet.utils.files.regular import open_regular
from duet.utils.optional import import_optional
from duet.utils.text import count

# Of PyAV, which is imported where it decodes.
Container = Any
Stream = Any
Picture = Any

# Containers that FFmpeg may detect. Excluded are playlists and the like (HLS, DASH, concat, SDP),
# which open other files and addresses, past all hooks; and single images.
CONTAINERS = (
    "asf,avi,flv,h264,hevc,ivf,m4v,matroska,webm,mjpeg,mov,mp4,m4a,3gp,3g2,mj2,mpeg,mpegts,"
    "mpegvideo,mxf,nut,ogg"
)
_DEFAULT_RATE = Fraction(30)
# FFmpeg compares the size in memory: up to 96 columns and 48 rows more, of at most 65,536 each.
_PIXELS_AROUND = 10_000_000
_THREADS = 2  # for decoding and encoding; the network needs the cores too
_READ_BYTES = 1 << 18
MAX_SIDE = 16384  # of H.264
_TICKS = 90_000  # a second; MPEG's own clock, which 24, 25, 30 and 30000/1001 frames divide
# Measured on 720p: "veryfast" takes 0.6 of the time of "fast"; without B-frames none is held back.
_H264 = {"preset": "veryfast", "crf": "20", "bf": "0"}
_MAY_MISS = 0.01  # fraction of the header's frame count: an editor may have removed some


def open_options(max_pixels: int, containers: str = CONTAINERS) -> dict[str, str]:
    """Return options for opening a container, because FFmpeg decodes frames while probing."""
    return {"format_whitelist": containers, "max_pixels": str(max_pixels + _PIXELS_AROUND)}


def find_video(container: Container, max_pixels: int) -> Stream:
    """Return the video stream of a container, ready to decode; else BrokenSourceError."""
    found = container.streams.video
    covers = [x for x in found if x.disposition & type(x.disposition).attached_pic]  # one image
    stream = next((x for x in found if x not in covers), None)
    if stream is None:
        raise BrokenSourceError("contains no video")
    codec = stream.codec_context
    if codec is None:
        raise BrokenSourceError("uses an unsupported video codec")
    if codec.width and codec.height:  # else known from the first packet
        check_size((codec.height, codec.width), max_pixels)
    codec.options = {"max_pixels": str(max_pixels + _PIXELS_AROUND)}
    return stream


def rate_of(stream: Stream) -> Fraction:
    """Return the frames per second of a video stream, on average; 30 if it is not known."""
    rate = stream.average_rate or stream.guessed_rate
    return Fraction(rate) if rate else _DEFAULT_RATE


def timed_frames(
    decoded: Iterable[Picture], source: Path | str, rate: Fraction, max_pixels: int, stride: int = 1
) -> Iterator[Frame]:
    """Yield every n-th of PyAV's frames, at increasing times; BrokenSourceError for large ones."""
    # `frame.to_ndarray(format="rgb24")` alone would start one thread per core, for each frame.
    converter = import_optional("av", "a video").video.reformatter.VideoReformatter()
    first = seconds = 0.0
    for number, frame in enumerate(decoded):
        if number == 0:
            first = frame.time or 0.0
        else:
            given = -1.0 if frame.time is None else frame.time - first
            seconds = given if given > seconds else seconds + float(1 / rate)
        if number % stride == 0:
            check_size((frame.height, frame.width), max_pixels)
            yield Frame(_upright_rgb(frame, converter), source, number, seconds)


def _upright_rgb(frame: Picture, converter: Any) -> np.ndarray:
    """Convert a PyAV frame to (H, W, 3) uint8 RGB, rotated by its display matrix."""
    matrix = frame.side_data.get("DISPLAYMATRIX")
    image: np.ndarray = converter.reformat(frame, format="rgb24", threads=1).to_ndarray()
    if matrix is None:
        return image
    return turned_upright(image, orientation_of_matrix(np.frombuffer(matrix, np.int32).tolist()))


class VideoFile(Source):
    """A video file that yields every n-th frame."""

    kind: Kind = "video"

    def __init__(self, path: Path, max_pixels: int, stride: int = 1) -> None:
        self.path = self.name = path
        self._max_pixels = max_pixels
        self._stride = stride
        self._num_packets = self._num_damaged = 0

    def frames(self) -> Iterator[Frame]:
        """Yield the frames, and then an error if the file is cut short."""
        av = import_optional("av", "a video")
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
                settings = rate, self._max_pixels, self._stride
                for frame in timed_frames(decoded, self.path, *settings):
                    yield frame
                    num_frames += 1
        except av.FFmpegError as error:
            raise BrokenSourceError("damaged, truncated or not a video") from error
        self._check_end(num_counted, num_frames)

    def _decoded(self, av: ModuleType, container: Container, stream: Stream) -> Iterator[Picture]:
        """Yield the frames that can be decoded, in display order, and count damaged packets."""
        for packet in container.demux(stream):  # the last one is empty, and ends the decoder
            self._num_packets += packet.size > 0
            is_damaged = packet.is_corrupt
            try:
                yield from stream.decode(packet)
            except av.FFmpegError:
                is_damaged = True
            self._num_damaged += is_damaged

    def _check_end(self, num_counted: int, num_frames: int) -> None:
        is_cut = self._num_packets < num_counted * (1 - _MAY_MISS)
        if num_frames and not is_cut and not self._num_damaged:
            return
        reason = count(self._num_damaged, "damaged packet") if self._num_damaged else "no frame"
        if is_cut:
            reason = "cut short"
        if not num_frames:  # FFmpeg reports a too large frame as damaged
            reason += f", or frames of over {self._max_pixels:,} pixels (--max-pixels)"
        raise BrokenSourceError(f"{reason}; {count(num_frames, 'frame')} could be read")


class _Nameless:
    def __init__(self, file: BinaryIO) -> None:
        self.read, self.seek, self.tell = file.read, file.seek, file.tell


def _refuse(name: str, flags: int, options: dict[str, str]) -> Any:
    raise PermissionError("a video may not open other files")


class VideoWriter:
    """A video written frame by frame; the file gets its name when closed, also after an error."""

    def __init__(self, path: Path, size: tuple[int, int], rate: Fraction | None = None) -> None:
        """Begin a video of frames (height, width); odd sides are padded to even ones, for H.264.

        rate: frames per second, for the duration of the last frame; 30 if None.
        """
        if max(size) > MAX_SIDE:
            raise UserError(
                f"{path}: a video of {size[1]}x{size[0]} px; at most {MAX_SIDE:,} px per side "
                "can be written; use --nosave"
            )
        self._av = import_optional("av", "writing a video")
        self._path = path
        self._size = size
        self._rate = rate or _DEFAULT_RATE
        self._last_tick = -1
        with ExitStack() as stack:
            file = stack.enter_context(atomic_file(path))
            self._container = self._av.open(file, "w", format="mp4")
            self._stream = self._new_stream()
            self._stack = stack.pop_all()

    def _new_stream(self) -> Stream:
        stream = self._container.add_stream("libx264", rate=self._rate)
        stream.height, stream.width = (side + side % 2 for side in self._size)
        stream.pix_fmt = "yuv420p"
        stream.codec_context.time_base = stream.time_base = Fraction(1, _TICKS)
        stream.codec_context.thread_count = _THREADS
        stream.options = {**_H264, "g": str(max(round(self._rate), 1))}
        return stream

    def write(self, image: np.ndarray, seconds: float) -> None:
        height, width = self._size
        if image.shape[:2] != self._size:
            image = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
        image = cv2.copyMakeBorder(image, 0, height % 2, 0, width % 2, cv2.BORDER_REPLICATE)
        frame = self._av.VideoFrame.from_ndarray(image, format="rgb24")
        self._last_tick = max(round(seconds * _TICKS), self._last_tick + 1)
        frame.pts, frame.time_base = self._last_tick, Fraction(1, _TICKS)
        with naming(self._path):
            self._mux(frame)

    def _mux(self, frame: object) -> None:
        for packet in self._stream.encode(frame):
            packet.duration = max(round(_TICKS / self._rate), 1)
            self._container.mux(packet)

    def close(self) -> None:
        with self._stack:
            self._mux(None)
            self._container.close()
