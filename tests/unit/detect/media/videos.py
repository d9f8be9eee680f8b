"""Small videos with numbered frames, written with PyAV."""

import io
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

SIZE = (48, 64)  # height and width
EVEN = [index / 25 for index in range(20)]
UNEVEN = [0, 0.04, 0.08, 0.4, 0.44, 1.0, 1.04, 1.5, 2.0, 2.04, 2.5, 3.0]
# Container and codec of each file name.
KINDS = {
    "a.mp4": "libx264",
    "a.mkv": "libx264",
    "a.webm": "libvpx",
    "a.avi": "mpeg4",
    "a.mov": "mpeg4",
    "a.ts": "libx264",
    "a.flv": "libx264",
    "a.mpg": "mpeg2video",
}


def picture(index: int, size: tuple[int, int] = SIZE) -> np.ndarray:
    """An image with its number as gray level, and a red corner at the top left."""
    image = np.full((*size, 3), 10 + 10 * index % 240, np.uint8)
    image[: size[0] // 3, : size[1] // 3] = (255, 0, 0)
    return image


def number_in(image: np.ndarray) -> int:
    """The number of the frame that `picture` made: from the gray of its lower right quarter."""
    gray = image[image.shape[0] // 2 :, image.shape[1] // 2 :].mean()
    return round((gray - 10) / 10)


def video(
    file: Path | io.BytesIO,
    codec: str,
    seconds: Sequence[float] = EVEN,
    rotation: int = 0,
    size: tuple[int, int] = SIZE,
    **options: str,
) -> None:
    """Write a video; `movflags` and `format` are the container's, others the codec's."""
    with_b_frames = {"bf": "2"} if codec == "libx264" else {}
    container_options = {"movflags": options.pop("movflags")} if "movflags" in options else {}
    target = str(file) if isinstance(file, Path) else file
    form = options.pop("format", None)
    with av.open(target, "w", format=form, options=container_options) as container:
        stream = container.add_stream(codec, rate=25)
        stream.height, stream.width = size
        stream.pix_fmt = "yuv420p"
        stream.options = {**with_b_frames, **options}
        stream.codec_context.thread_count = 1  # with threads, x264 may write other bytes each time
        ticks = 25 if seconds is EVEN else 1000
        stream.codec_context.time_base = Fraction(1, ticks)
        if rotation:
            stream.set_display_rotation(rotation)
        for index, moment in enumerate(seconds):
            frame = av.VideoFrame.from_ndarray(picture(index, size), "rgb24")
            frame.pts, frame.time_base = round(moment * ticks), Fraction(1, ticks)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def video_bytes(codec: str, form: str, seconds: Sequence[float] = EVEN, **options: str) -> bytes:
    """The bytes of a video in a container of PyAV's name."""
    file = io.BytesIO()
    video(file, codec, seconds, format=form, **options)
    return file.getvalue()
