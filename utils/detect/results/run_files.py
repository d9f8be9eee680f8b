"""Write the results of detect.py into the run's folder, according to its flags.

    NAME.jpg                    the drawn image, in the source's file type; for a video NAME.mp4
    labels/NAME.txt             YOLO labels; labels/NAME_1.txt for a video's first frame
    heatmaps/NAME.jpg           where the network looks, with --visualize
    crops/CLASS/NAME.jpg        an object; further ones are NAME2.jpg, NAME3.jpg, ...
    predictions.csv             one line per object: image, class name, score
    detections.json             everything, in pixels

NAME is the source's name. The second source of a name is NAME-2 everywhere.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from duet.utils.data.image.image_file import save_image, suffix_that_holds
from duet.utils.detect.config import DetectConfig
from duet.utils.detect.media.source import Frame
from duet.utils.detect.media.video import VideoWriter
from duet.utils.detect.results.image_result import ImageResult, as_utf8, json_line
from duet.utils.errors import UserError
from duet.utils.files.atomic import atomic_file, naming
from duet.utils.files.run_folder import Names

TABLE, RECORDS, HEATMAPS = "predictions.csv", "detections.json", "heatmaps"
CROP_SUFFIX, VIDEO_SUFFIX = ".jpg", ".mp4"
# File systems allow 255 bytes, including a number, a suffix and 22 bytes of a temporary name.
MAX_BYTES = 180
_SEPARATORS = frozenset('/\\:*?"<>|')  # of paths or patterns on some system
_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)  # no files on Windows


@dataclass
class SourceFiles:
    stem: str
    table_name: str  # in the table of all results
    drawing: Path  # the image or video with boxes
    rate: Fraction | None  # frames a second; None: unknown, or an image
    num_crops: Counter[str] = field(default_factory=Counter)  # in each folder


class Place(NamedTuple):
    files: SourceFiles
    name: str  # base name of the image's files


class RunFiles:
    """Writes results into the folder of a run; its files are complete once it is closed.

    Call `reserve` and `append` in frame order, and `write` between them in any thread and order.
    Frames of a video, however, come in order and uninterrupted by other files; frames of several
    cameras may alternate. After an OSError the shared files are removed, as they may be cut short.
    """

    def __init__(self, folder: Path, config: DetectConfig, class_names: Sequence[str]) -> None:
        self.folder = folder
        self._config = config
        self._names, of_classes = Names(), Names()
        self._crop_folders = [
            of_classes.take(safe_name(name, otherwise="class")) for name in class_names
        ]
        self._shared: dict[str, BinaryIO] = {}  # files of all results, by name
        self._separator = "\n"
        self._sources: dict[Path | str, SourceFiles] = {}  # videos and live ones
        self._videos: dict[Path, VideoWriter] = {}  # those that are being written
        with ExitStack() as stack:
            stack.callback(self._close_videos)
            if config.save_txt:
                (folder / "labels").mkdir(exist_ok=True)
            if config.visualize is not None:
                (folder / HEATMAPS).mkdir(exist_ok=True)
            for name in [TABLE] * config.save_csv + [RECORDS] * config.save_json:
                self._shared[name] = stack.enter_context(atomic_file(folder / name))
            if config.save_json:
                names_line = json_line(list(map(as_utf8, class_names)))
                self._add(RECORDS, f'{{"class_names": {names_line}, "images": [')
                stack.callback(self._add, RECORDS, "\n]}\n")
            self._open = stack.pop_all()

    def __enter__(self) -> RunFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, *trace: object
    ) -> None:
        try:
            with self._open:
                if isinstance(error, OSError):  # a file may be cut short
                    raise error
        except Exception:
            if kind is None or not issubclass(kind, Exception):
                raise  # otherwise report the first failure; an interrupt is none

    def reserve(self, frame: Frame, rate: Fraction | None = None) -> Place:
        """Choose the names of a frame's files; UserError if they would replace its source."""
        source, number = frame.source, frame.number
        if number is None:
            files = self._new_files(frame, rate)
            place = Place(files, files.stem)
        else:
            if source not in self._sources:
                self._sources[source] = self._new_files(frame, rate)
            files = self._sources[source]
            place = Place(files, f"{files.stem}_{number + 1}")
        is_file = isinstance(source, Path) and source.exists() and files.drawing.exists()
        if is_file and not self._config.nosave and files.drawing.samefile(source):
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

    def write(self, result: ImageResult, place: Place) -> None:
        """Write the image and the labels of a result; OSError names the file."""
        config, frame = self._config, result.frame
        if not config.nosave:
            drawn = result.plot(*config.drawing)
            if frame.number is None:
                save_image(place.files.drawing, drawn)
            else:
                self._add_to_video(frame, drawn, place.files)
        if result.heatmap is not None:
            suffix = suffix_that_holds(".jpg", frame.image)
            save_image(self.folder / HEATMAPS / f"{place.name}{suffix}", result.plot_heatmap())
        if config.save_txt:
            path = self.folder / "labels" / f"{place.name}.txt"
            if len(result):
                result.save_txt(path, config.save_conf)
            else:  # remove one of an earlier run
                path.unlink(missing_ok=True)

    def _add_to_video(self, frame: Frame, drawn: np.ndarray, files: SourceFiles) -> None:
        assert frame.seconds is not None, f"frame {frame.number} of {frame.source} has no time"
        path = files.drawing
        if path not in self._videos:
            if isinstance(frame.source, Path):  # the previous file is finished
                self._close_videos()
            self._videos[path] = VideoWriter(path, frame.image.shape[:2], files.rate)
        self._videos[path].write(drawn, frame.seconds)

    def _close_videos(self) -> None:
        with ExitStack() as stack:
            while self._videos:
                stack.callback(self._videos.popitem()[1].close)

    def append(self, result: ImageResult, place: Place) -> None:
        """Append a result to the shared files, and write its crops; OSError names the file."""
        if self._config.save_csv:
            self._add(TABLE, result.table_lines(place.files.table_name))
        if self._config.save_json:
            record = json_line({"name": as_utf8(place.name), **result.to_dict()})
            self._add(RECORDS, f"{self._separator}{record}")
            self._separator = ",\n"
        if self._config.save_crop:
            for index, image in zip(result.class_index.tolist(), result.crop(), strict=True):
                suffix = suffix_that_holds(CROP_SUFFIX, image)
                save_image(self._crop_path(self._crop_folders[index], suffix, place.files), image)

    def _add(self, name: str, text: str) -> None:
        with naming(self.folder / name):
            self._shared[name].write(text.encode())

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
        place = self.reserve(result.frame)
        self.write(result, place)
        self.append(result, place)


def name_of_source(source: Path | str) -> tuple[str, str]:
    """Return stem and suffix (".jpg", or ""); a URL's stem is host, port and path."""
    if isinstance(source, str) and "://" in source:
        # A password, up to the last "@", may contain any character.
        address = source.partition("://")[2].rpartition("@")[2]
        place = re.split(r"[?#]", address)[0].strip("/").replace("/", "_")
        return safe_name(place, otherwise="stream"), ""
    name = source.name if isinstance(source, Path) else safe_name(source, otherwise="image")
    suffix = Path(name).suffix
    return cut(name.removesuffix(suffix)), cut(suffix)


def safe_name(text: str, otherwise: str) -> str:
    """Return a text as a file name: "_" for invisible characters and separators, and before what
    Windows takes for a device, such as "con"."""
    shown = "".join(x if x.isprintable() and x not in _SEPARATORS else "_" for x in text)
    name = cut(shown).strip(" .") or otherwise
    return f"_{name}" if _DEVICES.match(name) else name


def cut(text: str) -> str:
    text = text[:MAX_BYTES]
    while len(text.encode("utf-8", "surrogateescape")) > MAX_BYTES:
        text = text[:-1]
    return text
