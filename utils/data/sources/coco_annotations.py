"""The objects of images from COCO's instances JSON, with crowds and areas that labels lack.

Before: the samples of `labels.py`. After: a validation.
Format: https://cocodataset.org/#format-data, "Object Detection".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from utils.data.sources.samples import Sample
from utils.detections import GroundTruth
from utils.errors import UserError, brief
from utils.files.json import read_json

MAX_BYTES = 1 << 31
LARGEST_NUMBER = 1e10  # pixels or square pixels; also refuses infinity and NaN
SECTIONS = ("images", "annotations", "categories")


@dataclass(frozen=True, eq=False)
class CocoAnnotations:
    """What an instances JSON says of some images and classes, each in the order given."""

    objects: list[GroundTruth]  # of each image, pixels of the image
    image_ids: list[int]
    category_ids: list[int]  # of each class


def read_coco_annotations(
    path: Path, samples: Sequence[Sample], class_names: Sequence[str]
) -> CocoAnnotations:
    """Read the objects of the samples' images, found by file name; skip all other images.

    Crowds become regions in which no detection counts. The area, the outline's in COCO, decides
    how large an object is.

    Raises:
        UserError: no such file, no instances JSON, an image or class that it lacks, an image of
            another size, an entry that is not what COCO's format says.
    """
    return _InstancesFile(path, _read_sections(path)).annotations(samples, class_names)


def _read_sections(path: Path) -> Mapping[str, list[Any]]:
    try:
        document = read_json(path, MAX_BYTES)
    except OSError as error:
        raise UserError(f"--annotations {path}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"--annotations {path} is not valid JSON: {error}") from error
    for section in SECTIONS:
        if not isinstance(document, Mapping) or not isinstance(document.get(section), list):
            raise UserError(
                f"--annotations {path}: '{section}' is not a list in it; a COCO instances file "
                f"has the lists {', '.join(SECTIONS)}"
            )
    return document


@dataclass(frozen=True)
class _InstancesFile:
    """A parsed file, with what its error texts need."""

    path: Path
    sections: Mapping[str, list[Any]]

    def annotations(self, samples: Sequence[Sample], class_names: Sequence[str]) -> CocoAnnotations:
        image_ids = self._image_ids(samples)
        category_ids = self._category_ids(class_names)
        class_of = {category: index for index, category in enumerate(category_ids)}
        place_of = {image: place for place, image in enumerate(image_ids)}
        rows: list[list[tuple[float, ...]]] = [[] for _ in samples]
        for entry in self._entries("annotations", ("image_id", "category_id", "bbox")):
            if (place := place_of.get(entry["image_id"])) is not None:
                rows[place].append(self._object(entry, class_of))
        return CocoAnnotations([_ground_truth(image) for image in rows], image_ids, category_ids)

    def _error(self, text: str) -> UserError:
        return UserError(f"--annotations {self.path}: {text}")

    def _entries(self, section: str, keys: Iterable[str]) -> Iterable[Mapping[str, Any]]:
        for number, entry in enumerate(self.sections[section]):
            for key in keys:
                if not isinstance(entry, Mapping) or key not in entry:
                    raise self._error(f"entry {number} of '{section}' has no '{key}'")
                if key in ("id", "image_id", "category_id") and not _is_integer(entry[key]):
                    raise self._error(
                        f"entry {number} of '{section}': {key} {brief(entry[key])} "
                        "is no whole number"
                    )
            yield entry

    def _image_ids(self, samples: Sequence[Sample]) -> list[int]:
        by_name: dict[str, Mapping[str, Any]] = {}
        for entry in self._entries("images", ("id", "file_name")):
            name = PurePosixPath(str(entry["file_name"])).name
            if name in by_name:
                raise self._error(f"two images are called {brief(name)}; each name must differ")
            by_name[name] = entry
        for sample in samples:
            self._check_image(sample, by_name.get(sample.image_path.name))
        image_ids = [by_name[sample.image_path.name]["id"] for sample in samples]
        if len(set(image_ids)) < len(image_ids):
            raise self._error("two images of the dataset have one name or one id there")
        return image_ids

    def _check_image(self, sample: Sample, entry: Mapping[str, Any] | None) -> None:
        if entry is None:
            raise self._error(
                f"no image is called {sample.image_path.name}; give the file of this split"
            )
        for key, side in (("height", sample.height), ("width", sample.width)):
            if entry.get(key, side) != side:
                raise self._error(
                    f"{sample.image_path.name} has {key} {brief(entry[key])} there, "
                    f"but {side} as it is decoded"
                )

    def _category_ids(self, class_names: Sequence[str]) -> list[int]:
        entries = list(self._entries("categories", ("id", "name")))
        by_name = {str(entry["name"]): entry["id"] for entry in entries}
        for name in class_names:
            if name not in by_name:
                raise self._error(
                    f"no category is called {brief(name)}; its categories: {brief(list(by_name))}"
                )
        if len(set(by_name.values())) < len(entries):
            raise self._error("two categories have one name or one id")
        return [by_name[name] for name in class_names]

    def _object(self, entry: Mapping[str, Any], class_of: Mapping[int, int]) -> tuple[float, ...]:
        """Return class, left, top, width, height, whether a crowd, area."""
        described = f"annotation {brief(entry.get('id'))}"
        if entry["category_id"] not in class_of:
            raise self._error(
                f"{described} has the category {entry['category_id']!s:.80}, "
                "no class of the dataset"
            )
        box = entry["bbox"]
        if not isinstance(box, list) or len(box) != 4 or not all(map(_is_number, box)):
            raise self._error(
                f"{described}: bbox {brief(box)}; left, top, width, height are needed"
            )
        area, is_crowd = entry.get("area", box[2] * box[3]), entry.get("iscrowd", 0)
        if box[2] < 0 or box[3] < 0 or not _is_number(area) or area < 0:
            raise self._error(
                f"{described}: sides {box[2:]} and area {brief(area)} must be 0 or more"
            )
        if is_crowd not in (0, 1):
            raise self._error(f"{described}: iscrowd {brief(is_crowd)}; 0 or 1 is needed")
        return class_of[entry["category_id"]], *box, is_crowd, area


def _ground_truth(rows: list[tuple[float, ...]]) -> GroundTruth:
    columns = np.array(rows, np.float64).reshape(-1, 7)
    boxes_xyxy = columns[:, 1:5].copy()
    boxes_xyxy[:, 2:] += boxes_xyxy[:, :2]
    return GroundTruth(
        class_index=columns[:, 0].astype(np.int64),
        boxes_xyxy=boxes_xyxy,
        is_crowd=columns[:, 5].astype(bool),
        area=columns[:, 6],
    )


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return (_is_integer(value) or isinstance(value, float)) and abs(value) <= LARGEST_NUMBER
