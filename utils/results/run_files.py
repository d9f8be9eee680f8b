"""The folder of a detection's results: what the flags of detect.py ask for, result by result.

Before: `models/inference/job.py`. After: a person, or another program. In the folder lie

    NAME.jpg                    the image, drawn on, in the kind of its source; a video is NAME.mp4
    labels/NAME.txt             YOLO labels; labels/NAME_1.txt those of a video's first frame
    crops/CLASS/NAME.jpg        a part of the image; of one name NAME2.jpg, NAME3.jpg, ... follow
    predictions.csv             one line per object: image, class name, score
    detections.json             all of it, in pixels

NAME is that of the source. The second source of a name, from another folder or of another kind,
has NAME-2 everywhere.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from utils.cli.detect_config import DetectConfig
from utils.files.atomic import atomic_file
from utils.files.growing import GrowingFile, growing_file
from utils.media.frame import Frame
from utils.results.detections_file import DetectionsFile, json_line, open_detections_file
from utils.results.drawn_videos import DrawnVideos
from utils.results.image_file import encode_image, save_image, suffix_that_holds
from utils.results.image_result import ImageResult
from utils.results.names import Names, safe_name
from utils.results.places import Place, Places, require_another_file

CROP_SUFFIX = ".jpg"


class Crop(NamedTuple):
    """What a box shows, as a file of a class's folder."""

    folder: str
    suffix: str
    content: bytes


class Share(NamedTuple):
    """The lines that a result adds to files of all results; they may have to wait."""

    place: Place
    table: str
    record: str
    crops: Sequence[Crop]


class RunFiles:
    """Writes results into the folder of a run; once closed, all its files are whole.

    Threads may add images at once. The frames of a video file come in order, and none of another
    file in between; those of several cameras may alternate.
    """

    def __init__(self, folder: Path, config: DetectConfig, class_names: Sequence[str]) -> None:
        """Begin the files that hold all results; OSError if one cannot be written."""
        self.folder = folder
        self._config = config
        self._places = Places(folder)
        self._crop_folders = _folder_names(class_names)
        self._lock = threading.Lock()
        self._waiting: dict[int, Share] = {}  # for the turns before theirs
        self._next_turn = 0
        self._table: GrowingFile | None = None
        self._records: DetectionsFile | None = None
        self._videos = DrawnVideos()
        with ExitStack() as stack:
            self._begin(stack, class_names)
            self._open = stack.pop_all()

    def _begin(self, stack: ExitStack, class_names: Sequence[str]) -> None:
        stack.callback(self._videos.close)
        if self._config.save_txt:
            (self.folder / "labels").mkdir(exist_ok=True)
        if self._config.save_csv:
            self._table = stack.enter_context(growing_file(self.folder / "predictions.csv"))
        if self._config.save_json:
            path = self.folder / "detections.json"
            self._records = stack.enter_context(open_detections_file(path, class_names))

    def __enter__(self) -> RunFiles:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            self.close()
        except Exception:
            if kind is None or not issubclass(kind, Exception):
                raise  # else the first failure says more; an interrupt is none

    def close(self) -> None:
        """Finish all files; what waits for turns that never came is written too."""
        with self._open, self._lock:
            for turn in sorted(self._waiting):
                self._append(self._waiting.pop(turn))

    def reserve(self, frame: Frame, rate: Fraction | None = None) -> Place:
        """Fix the names of a frame's files and its turn; called in the order that files keep.

        Args:
            rate: frames per second of the frame's video, where known.

        Raises:
            UserError: the frame's own file would be written over.
        """
        with self._lock:
            place = self._places.reserve(frame, rate)
        if not self._config.nosave:
            require_another_file(place.files.drawing, frame.source)
        return place

    def add(self, result: ImageResult, place: Place | None = None) -> None:
        """Write what the flags ask for; a box that is not finite, as float16 may give, is left out.

        Args:
            place: what `reserve` gave for the frame; None takes the next.

        Raises:
            OSError: a file cannot be written; the error names it.
        """
        place = place or self.reserve(result.frame)
        result = result.finite()
        if not self._config.nosave:
            self._draw(result, place)
        if self._config.save_txt:
            self._save_labels(result, self.folder / "labels" / f"{place.name}.txt")
        share = self._share(result, place)
        with self._lock:
            self._waiting[place.turn] = share
            while self._next_turn in self._waiting:
                self._next_turn += 1
                self._append(self._waiting.pop(self._next_turn - 1))

    def _draw(self, result: ImageResult, place: Place) -> None:
        config = self._config
        drawn = result.plot(
            config.line_thickness, labels=not config.hide_labels, scores=not config.hide_conf
        )
        if result.frame.number is None:
            save_image(place.files.drawing, drawn)
        else:
            self._videos.write(result.frame, drawn, place.files)

    def _save_labels(self, result: ImageResult, path: Path) -> None:
        """Write the labels of an image; one without has no file, nor keeps an earlier run's."""
        if len(result):
            result.save_txt(path, self._config.save_conf)
        else:
            path.unlink(missing_ok=True)

    def _share(self, result: ImageResult, place: Place) -> Share:
        table = record = ""
        if self._config.save_csv:
            table = result.table_lines(place.files.table_name)
        if self._config.save_json:
            record = json_line({"name": place.name, **result.to_dict()})
        return Share(place, table, record, self._crops(result) if self._config.save_crop else ())

    def _crops(self, result: ImageResult) -> list[Crop]:
        crops = []
        for index, image in zip(result.class_index.tolist(), result.crop(), strict=True):
            suffix = suffix_that_holds(CROP_SUFFIX, image)
            crops.append(Crop(self._crop_folders[index], suffix, encode_image(suffix, image)))
        return crops

    def _append(self, share: Share) -> None:
        if self._table is not None:
            self._table.add(share.table.encode())
        if self._records is not None:
            self._records.add(share.record)
        for crop in share.crops:
            with atomic_file(self._path_of(crop, share.place)) as file:
                file.write(crop.content)

    def _path_of(self, crop: Crop, place: Place) -> Path:
        """Return the path of the next crop: NAME.jpg, NAME2.jpg, ..., the first that is free."""
        folder = self.folder / "crops" / crop.folder
        folder.mkdir(parents=True, exist_ok=True)
        numbers, stem = place.files.num_crops, place.files.stem
        while True:
            numbers[crop.folder] += 1
            number = numbers[crop.folder]
            path = folder / f"{stem}{number if number > 1 else ''}{crop.suffix}"
            if not path.exists():
                return path


def _folder_names(class_names: Sequence[str]) -> list[str]:
    """Return a separate folder for each class, named after it."""
    names = Names()
    return [names.take(safe_name(name, otherwise="class")) for name in class_names]
