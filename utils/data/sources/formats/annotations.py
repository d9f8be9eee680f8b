"""Images and objects of annotation files, in one form for all formats.

Before: the reader of a format. After: `sources/annotated_images.py`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from utils.polygons import Polygons, starts_of

NORMALISED = (1, 1)  # the size to which coordinates from 0 to 1 are relative
UNKNOWN = (0, 0)  # coordinates are pixels of an image whose size the annotation does not say
_UNPLACED = np.zeros((0, 2))


@dataclass(frozen=True, eq=False)  # arrays have no single truth value to compare by
class Annotations:
    """N images and their T objects, as a labelling tool left them; nothing is clipped or dropped.

    Coordinates are in pixels of the size that the annotation gives, (0, 0) at the left and top
    edge of the image; or from 0 to 1 where the size is `NORMALISED`.
    """

    class_names: tuple[str, ...]  # in the format's order: that of its numbers, or sorted
    paths: tuple[str, ...]  # of the image files
    sizes: np.ndarray  # (N, 2) int64, height and width; or `NORMALISED`, or `UNKNOWN`
    starts: np.ndarray  # (N + 1,) int64: image i has the objects starts[i] up to starts[i + 1]
    class_index: np.ndarray  # (T,) int64, into class_names
    boxes_xyxy: np.ndarray  # (T, 4) float64
    polygons: Polygons  # of the T objects, float64; no points: the object has only a box
    broken: Mapping[int, str]  # why an image cannot be used, by its index
    left_out: Mapping[str, int]  # objects that are not trained on, by kind: "crowds"

    def __len__(self) -> int:
        return len(self.paths)


class AnnotationsBuilder:
    """Collects annotations image by image, each with its objects after it.

    Args:
        class_names: known beforehand, in their order; others are added sorted behind them.
    """

    def __init__(self, class_names: tuple[str, ...] = ()):
        self._known = class_names
        self._paths: list[str] = []
        self._called: list[str] = []
        self._sizes: list[tuple[int, int]] = []
        self._counts: list[int] = []
        self._names: list[str] = []
        self._boxes: list[tuple[float, float, float, float]] = []
        self._outlines: list[np.ndarray] = []
        self._broken: dict[int, str] = {}
        self._unplaced: set[int] = set()
        self._left_out: Counter[str] = Counter()

    def image(
        self, path: Path, size: tuple[int, int] = UNKNOWN, called: str = "", trouble: str = ""
    ) -> None:
        """Begin an image.

        Args:
            size: (height, width) of the image on which it was labelled.
            called: its name in messages, if two images are one file.
            trouble: why it is not known which file it is; `path` is then one of the candidates.
        """
        if trouble:
            self._unplaced.add(len(self._paths))
            self._broken[len(self._paths)] = trouble
        self._called.append(called or f"image {len(self._paths) + 1} of the annotations")
        self._paths.append(str(path))
        self._sizes.append(size)
        self._counts.append(0)

    def object(
        self,
        class_name: str,
        box_xyxy: tuple[float, float, float, float],
        outline_xy: np.ndarray = _UNPLACED,
    ) -> None:
        """Add an object to the last image.

        Args:
            outline_xy: (K, 2) the polygon; K is 0 for an object that has only a box.
        """
        self._names.append(class_name)
        self._boxes.append(box_xyxy)
        self._outlines.append(outline_xy)
        self._counts[-1] += 1

    def outline(self, class_name: str, outline_xy: np.ndarray) -> None:
        """Add an object to the last image; its box is the smallest around its outline (K, 2)."""
        (left, top), (right, bottom) = outline_xy.min(0).tolist(), outline_xy.max(0).tolist()
        self.object(class_name, (left, top, right, bottom), outline_xy)

    def leave_out(self, kind: str) -> None:
        """Count an object that is not trained on, under a plural: "crowds"."""
        self._left_out[kind] += 1

    def refuse(self, reason: str) -> None:
        """Note why the last image cannot be used; the first reason is kept."""
        self._broken.setdefault(len(self._paths) - 1, reason)

    def build(self) -> Annotations:
        """Return what was added; images of one file cannot be used."""
        of_files = {
            index: path for index, path in enumerate(self._paths) if index not in self._unplaced
        }
        added = sorted(set(self._names) - set(self._known))
        class_names = (*self._known, *added)
        index_of = {name: index for index, name in enumerate(class_names)}
        points = [outline for outline in self._outlines if len(outline)]
        return Annotations(
            class_names,
            tuple(self._paths),
            np.array(self._sizes, np.int64).reshape(-1, 2),
            starts_of(np.array(self._counts, np.int64)),
            np.fromiter((index_of[name] for name in self._names), np.int64),
            np.fromiter(chain.from_iterable(self._boxes), np.float64).reshape(-1, 4),
            Polygons(
                np.concatenate([_UNPLACED, *points]).astype(np.float64),
                starts_of(np.array([len(outline) for outline in self._outlines], np.int64)),
            ),
            repeated(of_files, self._called.__getitem__) | self._broken,
            dict(self._left_out),
        )


def repeated(paths: Mapping[int, str], called: Callable[[int], str]) -> dict[int, str]:
    """Return why images that are one file cannot be used: whose labels are right is not known.

    Args:
        paths: of the images, by their index.
        called: returns how messages call an image.
    """
    images_of: defaultdict[str, list[int]] = defaultdict(list)
    for index, path in paths.items():
        images_of[path].append(index)
    return {
        index: f"{called(images[0])} and {called(images[1])} are both this file; remove one, or "
        "put the files into folders as the labelling tool has them"
        for images in images_of.values()
        if len(images) > 1
        for index in images
    }
