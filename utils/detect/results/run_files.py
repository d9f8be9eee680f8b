"""The folder of a detection's results: what the flags of detect.py ask for, result by result.

In the folder lie

    NAME.jpg                    the image, drawn on, in the kind of its source; a video is NAME.mp4
    labels/NAME.txt             YOLO labels; labels/NAME_1.txt those of a video's first frame
    crops/CLASS/NAME.jpg        a part of the image; of one name NAME2.jpg, NAME3.jpg, ... follow
    predictions.csv             one line per object: image, class name, score
    detections.json             all of it, in pixels

NAME is that of the source. The second source of a name, from another folder or of another kind,
has NAME-2 everywhere.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from duet.utils.atomic_files import GrowingFile, atomic_file, growing_file, naming
from duet.utils.data.image.image_file import encode_image, save_image, suffix_that_holds
from duet.utils.detect.config import DetectConfig
from duet.utils.detect.media.source import Frame
from duet.utils.detect.media.video import VideoWriter
from duet.utils.detect.results.image_result import ImageResult, as_utf8
from duet.utils.errors import UserError

CROP_SUFFIX, VIDEO_SUFFIX = ".jpg", ".mp4"
# A file system takes 255 bytes. A name has a number and a suffix too, and while the file is being
# written 22 bytes more (`utils/atomic_files.py`).
MAX_BYTES = 180
_SEPARATORS = frozenset('/\\:*?"<>|')  # of some system's paths, or patterns


@dataclass
class SourceFiles:
    """What the files of one source are called."""

    stem: str
    table_name: str  # in the table of all results
    drawing: Path  # the image or video with boxes
    rate: Fraction | None  # frames a second; None: unknown, or an image
    last_frame: int = -1
    num_crops: Counter[str] = field(default_factory=Counter)  # in each folder


class Place(NamedTuple):
    """Where the files of a result go."""

    files: SourceFiles
    name: str  # base name of the image's files


class Share(NamedTuple):
    """What a result adds to the files of all results, in the order of the frames."""

    place: Place
    table: str
    record: str
    crops: Sequence[tuple[str, str, bytes]]  # a class's folder, suffix and content of each


class RunFiles:
    """Writes results into the folder of a run; once closed, all its files are whole.

    `reserve` and `append` are called in the order of the frames; `write` between them in any thread
    and order, but for the frames of videos: those of a file come in order, and none of another file
    in between; those of several cameras may alternate.
    """

    def __init__(self, folder: Path, config: DetectConfig, class_names: Sequence[str]) -> None:
        """Begin the files that hold all results; OSError if one cannot be written."""
        self.folder = folder
        self._config = config
        self._names, of_classes = Names(), Names()
        self._crop_folders = [
            of_classes.take(safe_name(name, otherwise="class")) for name in class_names
        ]
        self._table: GrowingFile | None = None
        self._records: GrowingFile | None = None
        self._separator = "\n"
        self._sources: dict[Path | str, SourceFiles] = {}  # videos and live ones
        self._videos = _Videos()
        with ExitStack() as stack:
            stack.callback(self._videos.close)
            if config.save_txt:
                (folder / "labels").mkdir(exist_ok=True)
            if config.save_csv:
                self._table = stack.enter_context(growing_file(folder / "predictions.csv"))
            if config.save_json:
                path = folder / "detections.json"
                self._records = stack.enter_context(growing_file(path, end=b"\n]}\n"))
                names_line = json_line(list(map(as_utf8, class_names)))
                self._records.add(f'{{"class_names": {names_line}, "images": ['.encode())
            self._open = stack.pop_all()

    def __enter__(self) -> RunFiles:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            self.close()
        except Exception:
            if kind is None or not issubclass(kind, Exception):
                raise  # otherwise report the first failure; an interrupt is none

    def close(self) -> None:
        """Finish all files."""
        self._open.close()

    def reserve(self, frame: Frame, rate: Fraction | None = None) -> Place:
        """Fix the names of a frame's files.

        Args:
            rate: frames per second of the frame's video, where known.

        Raises:
            UserError: the frame's own file would be written over.
        """
        source, number = frame.source, frame.number
        if number is None:
            files = self._new_files(frame, rate)
            place = Place(files, files.stem)
        else:
            known = self._sources.get(source)
            if known is None or number <= known.last_frame:  # the same source once more
                known = self._sources[source] = self._new_files(frame, rate)
            known.last_frame = number
            place = Place(known, f"{known.stem}_{number + 1}")
        drawing = place.files.drawing
        if self._config.nosave or not isinstance(source, Path) or not drawing.exists():
            return place
        if source.exists() and drawing.samefile(source):
            raise UserError(
                f"--source {source} is in the results folder, where the output would overwrite "
                "it; choose another --name"
            )
        return place

    def _new_files(self, frame: Frame, rate: Fraction | None) -> SourceFiles:
        is_video = frame.number is not None
        stem, suffix = name_of_source(frame.source)
        stem = self._names.take(stem, is_video)
        kind = VIDEO_SUFFIX if is_video else suffix_that_holds(suffix, frame.image)
        return SourceFiles(stem, stem + suffix, self.folder / f"{stem}{kind}", rate)

    def write(self, result: ImageResult, place: Place) -> Share:
        """Write the files that are a result's own.

        Raises:
            OSError: a file cannot be written; the error names it.
        """
        config = self._config
        if not config.nosave:
            self._draw(result, place)
        if config.save_txt:
            path = self.folder / "labels" / f"{place.name}.txt"
            if len(result):
                result.save_txt(path, config.save_conf)
            else:  # nor does one of an earlier run in this folder stay
                path.unlink(missing_ok=True)
        table = result.table_lines(place.files.table_name) if config.save_csv else ""
        record = (
            json_line({"name": as_utf8(place.name), **result.to_dict()}) if config.save_json else ""
        )
        return Share(place, table, record, self._crops(result) if config.save_crop else ())

    def _draw(self, result: ImageResult, place: Place) -> None:
        config = self._config
        drawn = result.plot(
            config.line_thickness, labels=not config.hide_labels, scores=not config.hide_conf
        )
        if result.frame.number is None:
            save_image(place.files.drawing, drawn)
        else:
            self._videos.write(result.frame, drawn, place.files)

    def _crops(self, result: ImageResult) -> list[tuple[str, str, bytes]]:
        crops = []
        for index, image in zip(result.class_index.tolist(), result.crop(), strict=True):
            suffix = suffix_that_holds(CROP_SUFFIX, image)
            crops.append((self._crop_folders[index], suffix, encode_image(suffix, image)))
        return crops

    def append(self, share: Share) -> None:
        """Write what a result adds to the files of all; OSError names the file."""
        if self._table is not None:
            self._table.add(share.table.encode())
        if self._records is not None:
            self._records.add(f"{self._separator}{share.record}".encode())
            self._separator = ",\n"
        for name, suffix, content in share.crops:
            with atomic_file(self._crop_path(name, suffix, share.place.files)) as file:
                file.write(content)

    def _crop_path(self, name: str, suffix: str, files: SourceFiles) -> Path:
        """Return the path of the next crop: NAME.jpg, NAME2.jpg, ..., the first that is free."""
        folder = self.folder / "crops" / name
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            files.num_crops[name] += 1
            number = files.num_crops[name]
            path = folder / f"{files.stem}{number if number > 1 else ''}{suffix}"
            if not path.exists():
                return path

    def add(self, result: ImageResult) -> None:
        """Write a result in one go, as the next one."""
        self.append(self.write(result, self.reserve(result.frame)))


class _Videos:
    """Drawn frames -> the videos of their sources.

    A video of a file is finished when that of the next file begins, so few are open at once.
    """

    def __init__(self) -> None:
        self._open: dict[Path, VideoWriter] = {}
        self._of_file: Path | None = None  # the one among them

    def write(self, frame: Frame, drawn: np.ndarray, files: SourceFiles) -> None:
        """Add a frame, drawn on, to the video of its source; OSError names the video."""
        assert frame.seconds is not None, f"frame {frame.number} of {frame.source} has no time"
        path = files.drawing
        with naming(path):
            if path not in self._open:
                if isinstance(frame.source, Path):
                    if self._of_file in self._open:
                        self._open.pop(self._of_file).close()
                    self._of_file = path
                self._open[path] = VideoWriter(path, frame.image.shape[:2], files.rate)
            self._open[path].write(drawn, frame.seconds)

    def close(self) -> None:
        """Finish all videos; OSError if one cannot be."""
        with ExitStack() as stack:
            while self._open:
                stack.callback(self._open.popitem()[1].close)


def json_line(value: Any) -> str:
    """Return a value in one line of JSON that shows: in ASCII where characters do not print."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return text if text.isprintable() else json.dumps(value, allow_nan=False)


class Names:
    """Names, each given only once.

    The frames of a video NAME have NAME_1, NAME_2, ..., which are not given to others either.
    """

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}  # the last one behind a name
        self._videos: set[str] = set()
        self._like_frames: set[str] = set()  # NAME of those taken that are called NAME_1 and so on

    def take(self, name: str, is_video: bool = False) -> str:
        """Return the name; NAME-2, NAME-3, ... if it is taken, for itself or for a frame."""
        found = name
        while self._is_taken(found, is_video):
            self._numbers[name] = self._numbers.get(name, 1) + 1
            found = f"{name}-{self._numbers[name]}"
        self._taken.add(found)
        if is_video:
            self._videos.add(found)
        else:
            self._like_frames.add(_video_of_frame(found))
        return found

    def _is_taken(self, name: str, is_video: bool) -> bool:
        is_frame = name in self._like_frames if is_video else _video_of_frame(name) in self._videos
        return name in self._taken or is_frame


def _video_of_frame(stem: str) -> str:
    """Return NAME of NAME_12; "" for a stem that is not like a frame's."""
    name, _, number = stem.rpartition("_")
    return name if number.isdecimal() else ""


def name_of_source(source: Path | str) -> tuple[str, str]:
    """Return stem and suffix (".jpg", or "") for a file, camera, stream or image.

    Of a URL the stem has host, port and path: neither user, password nor query.
    """
    if isinstance(source, str) and "://" in source:
        # All before the last "@" may be a password, which may hold any other mark too.
        address = source.partition("://")[2].rpartition("@")[2]
        place = re.split(r"[?#]", address)[0].strip("/").replace("/", "_")
        return safe_name(place, otherwise="stream"), ""
    name = source.name if isinstance(source, Path) else safe_name(source, otherwise="image")
    suffix = Path(name).suffix
    return cut(name.removesuffix(suffix)), cut(suffix)


def safe_name(text: str, otherwise: str) -> str:
    """Return a text as the name of one folder or file.

    Letters of all languages stay. What does not show, or has a meaning in paths, becomes "_".

    Args:
        otherwise: the name if no character of the text is left.
    """
    shown = "".join(x if x.isprintable() and x not in _SEPARATORS else "_" for x in text)
    return cut(shown).strip(" .") or otherwise


def cut(text: str) -> str:
    """Return as many characters as fit into `MAX_BYTES`."""
    text = text[:MAX_BYTES]
    while len(text.encode("utf-8", "surrogateescape")) > MAX_BYTES:
        text = text[:-1]
    return text
