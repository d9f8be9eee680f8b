"""Small videos with numbered frames, written with PyAV, and results made by hand."""

import io
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from duet.utils.data.masks.runs import runs_of_mask
from duet.utils.detect.media.source import Frame
from duet.utils.detect.results.result import ClassResult, MaskResult, Result
from duet.utils.geometry.detections import Classification, Detections, Ragged, Segmentations
from tests.coco_reference import rows_as_detections

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


CLASS_NAMES = ("person", "traffic light", "cat")


def make_detections(*rows: tuple[float, ...]) -> Detections:
    return rows_as_detections(rows)


def make_result(
    source: Path | str,
    *rows: tuple[float, ...],
    size: tuple[int, int] = (40, 60),
    number: int | None = None,
    class_names: tuple[str, ...] = CLASS_NAMES,
    track_ids: np.ndarray | None = None,
) -> Result:
    """A result with detections as `make_detections` takes them, in a grey image."""
    seconds = None if number is None else number / 8
    frame = Frame(np.full((*size, 3), 90, np.uint8), source, number, seconds)
    return Result(frame, make_detections(*rows), class_names, track_ids)


def make_mask_result(
    source: Path | str,
    masks: np.ndarray,
    *rows: tuple[float, ...],
    number: int | None = None,
    track_ids: np.ndarray | None = None,
) -> MaskResult:
    """A result with masks (K, H, W) bool and their `make_detections` rows, in a grey image."""
    boxes = make_result(source, *rows, size=masks.shape[1:], number=number, track_ids=track_ids)
    runs = Ragged.of([runs_of_mask(mask) for mask in masks], np.uint32)
    return MaskResult(boxes.frame, Segmentations(*boxes.found, runs), CLASS_NAMES, track_ids)


def make_class_result(
    source: Path | str,
    probabilities: Sequence[float],
    size: tuple[int, int] = (40, 60),
    class_names: tuple[str, ...] = CLASS_NAMES,
) -> ClassResult:
    """A result with the probability of each class, of a grey image."""
    scores = np.array([probabilities], np.float32)
    return ClassResult(make_result(source, size=size).frame, Classification(scores), class_names)
