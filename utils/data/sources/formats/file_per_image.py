"""Formats with one annotation file per image: their folders, and which file is of which image."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from duet.utils.data.sources.formats.format import (
    AnnotatedFolder,
    FileNotes,
    Format,
    ImageLabels,
    Splits,
)
from duet.utils.data.sources.formats.names import (
    FileNames,
    base_name,
    read_names,
    split_folders,
    split_in,
    split_of,
    without_image_suffix,
)
from duet.utils.image_limits import IMAGE_SUFFIXES
from duet.utils.progress import Progress

# Lower case, most likely first.
IMAGE_FOLDERS = ("jpegimages", "images", "imgs", "img")
ANNOTATION_FOLDERS = (
    "annotations", "annotation", "annots", "annot", "xmls", "xml", "jsons", "json", "labels", "ann"
)  # fmt: skip
_LOOKED_INTO = 100  # files, to recognise the format of a folder
_THREADS = 4

# The image name in a file, possibly with another machine's folders, and the image's labels.
Parsed = tuple[str, ImageLabels]


@dataclass(frozen=True)
class FilePerImage:
    """A format with one annotation file per image."""

    name: str
    suffix: str  # suffix of annotation files, such as ".xml"
    is_one: Callable[[Path], bool]
    """Whether a file is in the format; may read its beginning."""
    parse: Callable[[Path], Parsed | None]
    """Read a file; None if it is not in the format, OSError or ValueError if it is broken."""

    def as_format(self, find: Callable[[Path], Splits] | None = None) -> Format:
        """Return the entry of `annotations.py`, with another way to find splits if given."""
        return Format(self.name, self.accepts, find or self.find, self.read)

    def accepts(self, path: Path) -> bool:
        """Return whether a folder, or one in it, holds annotation files of the format."""
        return path.is_dir() and self._holds(path, path)

    def _holds(self, folder: Path, images: Path) -> bool:
        return self._is_any(FileNames(folder, (self.suffix,)).paths, images)

    def _is_any(self, files: Sequence[Path], images: Path) -> bool:
        """Return whether one of the files is of the format; those with an image come first."""
        if len(files) > _LOOKED_INTO:
            named = {path.stem for path in FileNames(images).paths}
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
            if found := parts.get(""):
                splits.setdefault(split_of(folder.name), []).extend(found)
        return splits or self._beside_images(path)

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
        files = sorted(path for path in root.iterdir() if path.name.endswith(self.suffix))
        is_one = self._is_any(files, images)
        return {"": [AnnotatedFolder(self.name, root, images)]} if is_one else {}

    def read(self, folder: AnnotatedFolder, notes: FileNotes) -> Iterator[ImageLabels]:
        """Read the annotation files of a folder, or of the images in its list.

        The image of a file is that of the same name; else the one that the file names, in the same
        folder or in the only one that has it. An image without a file is a background, unless it
        may belong to another split.

        Raises:
            DatasetError: the list cannot be read.
        """
        images = FileNames(folder.images)
        files = FileNames(folder.annotations, (self.suffix,))
        named: Mapping[str, Path | None] = files.by_stem
        if folder.image_list is not None:
            names = read_names(folder.image_list, images)
            named = {name: _file_of(name, files, images) for name in names}
        found: dict[str, Parsed] = {}
        for name, parsed in zip(named, self._parse_all(list(named.values())), strict=True):
            if parsed is not None:
                found[name] = parsed
            elif images.has(name):  # otherwise not an annotation, such as a package.json
                reason = f"{base_name(str(named[name]))} is not in the format {self.name}"
                found[name] = "", ImageLabels(Path(), broken=reason)
        places = _places({name: image for name, (image, _) in found.items()}, images)
        read = []
        for name, (_, labels) in found.items():
            labels.path = places[name]
            read.append(labels)
        if folder.image_list is None:
            # The folder may also contain images of other splits.
            is_of_split = split_in(folder.annotations.name) and not split_in(folder.images.name)
            if not (folder.is_shared or is_of_split):
                read += map(ImageLabels, {*images.paths} - {*places.values()})
            read.sort(key=lambda labels: labels.path.parts)  # the order of images with label files
        yield from read

    def _parse_all(self, files: Sequence[Path | None]) -> Iterator[Parsed | None]:
        """Yield the content of each file; no objects for a missing file."""
        with Progress(len(files), "reading the annotations", "files") as shown:

            def parse(file: Path | None) -> Parsed | None:
                shown.update()
                try:
                    return ("", ImageLabels(Path())) if file is None else self.parse(file)
                except OSError as error:
                    reason = error.strerror
                except ValueError as error:
                    reason = str(error)
                return "", ImageLabels(Path(), broken=f"{base_name(str(file))}: {reason}")

            # Threads overlap waits for a slow disk. More would not help: parsing takes one core and
            # several times the size of a file in memory.
            with ThreadPoolExecutor(_THREADS) as pool:
                yield from pool.map(parse, files)


def _file_of(name: str, files: FileNames, images: FileNames) -> Path | None:
    """Return the annotation file of an image, unless it fits another image better."""
    stem = without_image_suffix(name)
    near = None if (file := files.at(stem)) else files.near(stem)
    if near is None:
        return file
    own = os.path.splitext(near.relative_to(files.folder).as_posix())[0]
    image, other = (images.at(each) or images.near(each) for each in (name, own))
    return near if image and other and image.with_suffix("") == other.with_suffix("") else None


def _child(folder: Path, names: Sequence[str]) -> Path | None:
    """Return the subfolder with the first of these names, ignoring case."""
    found = [path for path in folder.iterdir() if path.name.lower() in names and path.is_dir()]
    return min(found, key=lambda path: (names.index(path.name.lower()), path.name), default=None)


def _places(named: Mapping[str, str], images: FileNames) -> Mapping[str, Path]:
    """Return the path of the image of each annotation, existing or expected; all differ.

    Args:
        named: the image named in each annotation file, by name of the file.
    """

    def suffix(name: str) -> str:
        found = os.path.splitext(named[name])[1]
        return found if found.lower() in IMAGE_SUFFIXES else ""

    def named_image(name: str) -> Path | None:
        beside = os.path.join(os.path.dirname(name), base_name(named[name]))
        return images.at(beside) or images.near(beside)

    ways: tuple[Callable[[str], Path | None], ...] = (
        lambda name: images.at(name, suffix(name)),
        lambda name: images.near(name, suffix(name)),
        named_image,
    )
    places: dict[str, Path] = {}
    taken: set[Path] = set()
    for way in ways:
        for name in named:
            if name not in places and (path := way(name)) and path not in taken:
                places[name] = path
                taken.add(path)
    for name in named.keys() - places.keys():  # the expected path, to report it as missing
        stem = without_image_suffix(base_name(name))
        places[name] = images.folder / (stem + (suffix(name) or ".jpg"))
    return places
