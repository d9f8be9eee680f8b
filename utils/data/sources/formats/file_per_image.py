"""Formats with one annotation file per image: their folders, and which file is of which image.

Before: `voc.py`, `labelme.py`. After: `annotations.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from utils.data.image.limits import IMAGE_SUFFIXES
from utils.data.sources.formats.annotations import UNKNOWN, Annotations, AnnotationsBuilder
from utils.data.sources.formats.file_names import (
    FileIndex,
    base_name,
    read_names,
    without_image_suffix,
)
from utils.data.sources.formats.folders import split_folders, split_in, split_of
from utils.data.sources.formats.format import AnnotatedFolder, Format
from utils.screen.progress import Progress

# In lower case, the likeliest first.
IMAGE_FOLDERS = ("jpegimages", "images", "imgs", "img")
ANNOTATION_FOLDERS = ("annotations", "xmls", "xml", "jsons", "json", "labels", "ann")
_LOOKED_INTO = 100  # files, to tell whether a folder is in a format
_THREADS = 4
_NO_OUTLINE = np.zeros((0, 2))

Splits = Mapping[str, list[AnnotatedFolder]]


@dataclass
class ImageAnnotation:
    """What the annotation file of one image says."""

    image_name: str = ""  # as the tool knew it: it may have folders of another machine
    size: tuple[int, int] = UNKNOWN  # (height, width)
    objects: list[tuple[str, tuple[float, float, float, float], np.ndarray]] = field(
        default_factory=list
    )  # arguments of `AnnotationsBuilder.object`
    left_out: list[str] = field(default_factory=list)
    broken: str = ""  # why it cannot be used

    def add(
        self,
        class_name: str,
        box_xyxy: tuple[float, float, float, float],
        outline_xy: np.ndarray = _NO_OUTLINE,
    ) -> None:
        """Add an object, as `AnnotationsBuilder.object` does."""
        self.objects.append((class_name, box_xyxy, outline_xy))


@dataclass(frozen=True)
class FilePerImage:
    """A format with one annotation file per image."""

    name: str
    suffix: str  # of the annotation files: ".xml"
    is_one: Callable[[Path], bool]
    """Whether a file is in the format; it may read the beginning of it."""
    parse: Callable[[Path], ImageAnnotation | None]
    """Read a file; None if it is not in the format, OSError or ValueError if it is broken."""

    def as_format(self, find: Callable[[Path], Splits] | None = None) -> Format:
        """Return the entry of `table.py`, with another way to find splits if given."""
        return Format(self.name, self.accepts, find or self.find, self.read)

    def accepts(self, path: Path) -> bool:
        """Return whether a folder, or one in it, holds annotation files of the format."""
        return path.is_dir() and self._holds(path, path)

    def _holds(self, folder: Path, images: Path) -> bool:
        return self._is_any(FileIndex(folder, (self.suffix,)).paths, images)

    def _is_any(self, files: Collection[Path], images: Path) -> bool:
        """Return whether one of the files is of the format; those with an image come first."""
        if len(files) > _LOOKED_INTO:
            named = {base_name(name) for name in FileIndex(images, IMAGE_SUFFIXES).by_name}
            files = sorted(files, key=lambda path: path.stem not in named)
        return any(map(self.is_one, islice(files, _LOOKED_INTO)))

    def find(self, path: Path) -> Splits:
        """Return the splits of a folder; "" if it is not divided, {} if it has none.

        Annotations lie beside the images, or in a folder of their own beside that of the images.
        These lie in folders of the splits, or hold folders of the splits, or neither.
        """
        if not path.is_dir():
            return {}
        if in_own_folder := self._in_own_folder(path):
            return in_own_folder
        splits: dict[str, list[AnnotatedFolder]] = {}
        for folder in split_folders(path):
            parts = self._in_own_folder(folder) or self._beside_images(folder)
            splits.setdefault(split_of(folder.name), []).extend(parts.get("", ()))
        found = {split: parts for split, parts in splits.items() if parts}
        return found or self._beside_images(path)

    def _in_own_folder(self, root: Path) -> Splits:
        images = _child(root, IMAGE_FOLDERS) or root
        annotations = _child(root, ANNOTATION_FOLDERS)
        if annotations is None or not self._holds(annotations, images):
            return {}
        splits: dict[str, list[AnnotatedFolder]] = {}
        for folder in split_folders(annotations):
            of_split = images / folder.name if (images / folder.name).is_dir() else images
            if self._holds(folder, of_split):
                part = AnnotatedFolder(self.name, folder, of_split)
                splits.setdefault(split_of(folder.name), []).append(part)
        return splits or {"": [AnnotatedFolder(self.name, annotations, images)]}

    def _beside_images(self, root: Path) -> Splits:
        images = _child(root, IMAGE_FOLDERS) or root
        names = sorted(entry.name for entry in _entries(root) if entry.name.endswith(self.suffix))
        if not self._is_any([root / name for name in names], images):
            return {}
        return {"": [AnnotatedFolder(self.name, root, images)]}

    def read(self, folder: AnnotatedFolder) -> Annotations:
        """Read the annotation files of a folder, or of the images in its list.

        The image of a file is that of the same name; else the one that the file names, in the same
        folder or in the only one that has it. An image without a file is a background, unless it
        may belong to another split.

        Raises:
            DatasetError: the list cannot be read.
        """
        images = FileIndex(folder.images, IMAGE_SUFFIXES)
        files = FileIndex(folder.annotations, (self.suffix,))
        named: Mapping[str, Path | None] = files.by_name
        if folder.image_list is not None:
            names = read_names(folder.image_list, images)
            named = {name: _file_of(name, files, images) for name in names}
        parsed = dict(zip(named, self._parse_all(list(named.values())), strict=True))
        # A package.json beside the images is none of ours.
        found = {name: one for name, one in parsed.items() if one or images.find(name)}
        places = _places(found, images)
        rows = [
            (places[name], annotation or self._foreign(named[name]))
            for name, annotation in found.items()
        ]
        if folder.image_list is None and not _is_shared(folder):
            rows += [(path, _BACKGROUND) for path in set(images.paths) - set(places.values())]
        if folder.image_list is None:
            rows.sort(key=lambda row: row[0].parts)  # as label files' images are
        return _built(rows)

    def _foreign(self, file: Path | None) -> ImageAnnotation:
        return ImageAnnotation(broken=f"{file and file.name} is not in the format {self.name}")

    def _parse_all(self, files: Sequence[Path | None]) -> list[ImageAnnotation | None]:
        """Return what each file says; of no file, that there are no objects."""
        with Progress(len(files), "reading the annotations", "files") as shown:

            def parse(file: Path | None) -> ImageAnnotation | None:
                shown.update()
                return _BACKGROUND if file is None else self._parse(file)

            # They wait for a slow disk together. Parsing takes one core, and may take a few times
            # the size of a file, so there are no more.
            with ThreadPoolExecutor(_THREADS) as pool:
                return list(pool.map(parse, files))

    def _parse(self, file: Path) -> ImageAnnotation | None:
        try:
            return self.parse(file)
        except OSError as error:
            return ImageAnnotation(broken=f"{file.name}: {error.strerror}")
        except ValueError as error:
            return ImageAnnotation(broken=f"{file.name}: {error}")


_BACKGROUND = ImageAnnotation()


def _file_of(name: str, files: FileIndex, images: FileIndex) -> Path | None:
    """Return the annotation file of an image; none that fits another image better."""
    stem = without_image_suffix(name)
    near = None if (file := files.at(stem)) else files.near(stem)
    if near is None:
        return file
    image, other = images.find(name), images.find(_stem(near.relative_to(files.folder).as_posix()))
    return near if image and other and _stem(str(image)) == _stem(str(other)) else None


def _stem(path: str) -> str:
    return os.path.splitext(path)[0]


def _is_shared(folder: AnnotatedFolder) -> bool:
    """Return whether images of other splits may lie in the same folder."""
    is_of_split = split_in(folder.annotations.name) and not split_in(folder.images.name)
    return folder.is_shared or bool(is_of_split)


def _child(folder: Path, names: Sequence[str]) -> Path | None:
    """Return the folder in a folder that has the first of these names, in any case."""
    found = [entry.name for entry in _entries(folder) if entry.name.lower() in names]
    inner = sorted((names.index(name.lower()), name) for name in found if (folder / name).is_dir())
    return folder / inner[0][1] if inner else None


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        yield from entries


def _places(found: Mapping[str, ImageAnnotation | None], images: FileIndex) -> Mapping[str, Path]:
    """Return where the image of each annotation is, or would be; no two have one image."""
    told = {name: base_name(one.image_name) if one else "" for name, one in found.items()}

    def beside(name: str) -> str:
        return os.path.join(os.path.dirname(name), told[name])

    def suffix(name: str) -> str:
        found = os.path.splitext(told[name])[1]
        return found if found.lower() in IMAGE_SUFFIXES else ""

    ways: tuple[Callable[[str], Path | None], ...] = (
        lambda name: images.at(name, suffix(name)),
        lambda name: images.near(name, suffix(name)),
        lambda name: images.find(beside(name)),
    )
    places: dict[str, Path] = {}
    taken: set[Path] = set()
    for way in ways:
        for name in found:
            if name not in places and (path := way(name)) and path not in taken:
                places[name] = path
                taken.add(path)
    return {name: places.get(name) or _absent(images, name, suffix(name)) for name in found}


def _absent(images: FileIndex, name: str, suffix: str) -> Path:
    """Return where an image would be, for the message that it is not there."""
    return images.folder / (without_image_suffix(base_name(name)) + (suffix or ".jpg"))


def _built(rows: Iterable[tuple[Path, ImageAnnotation]]) -> Annotations:
    builder = AnnotationsBuilder()
    for path, annotation in rows:
        builder.image(path, annotation.size)
        for one in annotation.objects:
            builder.object(*one)
        for kind in annotation.left_out:
            builder.leave_out(kind)
        if annotation.broken:
            builder.refuse(annotation.broken)
    return builder.build()
