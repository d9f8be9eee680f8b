"""Formats with one annotation file per image: their folders, and which file is of which image."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from operator import attrgetter
from pathlib import Path
from typing import Any

from duet.utils.data.sources.formats.format import (
    AnnotatedFolder,
    FileNotes,
    ImageLabels,
    Splits,
)
from duet.utils.data.sources.formats.names import (
    FileNames,
    listed_images,
    parts_of,
    split_folders,
    split_in,
    split_of,
)
from duet.utils.data.sources.scan import scan
from duet.utils.image_limits import IMAGE_SUFFIXES

# Lower case, most likely first.
IMAGE_FOLDERS = ("jpegimages", "images", "imgs", "img")
ANNOTATION_FOLDERS = (
    "annotations", "annotation", "annots", "annot", "xmls", "xml", "jsons", "json", "labels", "ann"
)  # fmt: skip
_LOOKED_INTO = 1000  # files, to recognise the format of a folder
# They overlap waits for a slow disk. More would not help: parsing takes one core and several times
# the size of a file in memory.
_THREADS = 4

# The image name in a file, possibly with another machine's folders, and the image's labels.
Parsed = tuple[str, ImageLabels]


@dataclass(frozen=True)
class FilePerImage:
    name: str
    suffix: str  # suffix of annotation files, such as ".xml"
    is_one: Callable[[Path], bool]
    """Whether a file is in the format; may read its beginning."""
    parse: Callable[[Path], Parsed | None]
    """Read a file; None if it is not in the format, OSError or ValueError if it is broken."""

    def accepts(self, path: Path) -> bool:
        return path.is_dir() and self._is_any(FileNames(path, (self.suffix,)).paths)

    def _is_any(self, files: Sequence[Path]) -> bool:
        return any(map(self.is_one, islice(files, _LOOKED_INTO)))

    def find(self, path: Path) -> Splits:
        """Return the splits of a folder; "" if it is not divided, {} if it has none.

        Annotations lie beside the images, or in a folder beside theirs. Either lies in
        folders of the splits, or holds them, or neither.
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
        if annotations is None or not self.accepts(annotations):
            return {}
        splits: dict[str, list[AnnotatedFolder]] = {}
        for folder in split_folders(annotations):
            of_split = images / folder.name if (images / folder.name).is_dir() else images
            if self.accepts(folder):
                part = AnnotatedFolder(self.name, folder, of_split)
                splits.setdefault(split_of(folder.name), []).append(part)
        return splits or {"": [AnnotatedFolder(self.name, annotations, images)]}

    def _beside_images(self, root: Path) -> Splits:
        images = _child(root, IMAGE_FOLDERS) or root
        files = sorted(path for path in root.iterdir() if path.name.endswith(self.suffix))
        return {"": [AnnotatedFolder(self.name, root, images)]} if self._is_any(files) else {}

    def read(self, folder: AnnotatedFolder, notes: FileNotes) -> Iterator[ImageLabels]:
        """Read the annotation files of a folder, or of the images in its list, in its order.

        An annotation's image has its name; else it is the one that the file names, in the same
        folder or in the only one that has it. An image without a file is a background, unless it
        may belong to another split. DatasetError: the list cannot be read.
        """
        images = FileNames(folder.images)
        key: Callable[[ImageLabels], Any]
        if folder.image_list is not None:
            listed = dict.fromkeys(listed_images(folder.image_list, images))
            order = {path: number for number, path in enumerate(listed)}

            def place(labels: ImageLabels) -> int:  # an absent image is listed without its suffix
                path = labels.path
                return order.get(path, order.get(path.with_suffix(""), -1))

            read = [labels for labels in self._read(folder, images, order) if place(labels) >= 0]
            places, key = set(map(place, read)), place
            absent = [path for path in listed if order[path] not in places]
        else:
            read = list(self._read(folder, images, images.paths))
            key = attrgetter("path.parts")  # as images with label files are sorted
            # The folder may also contain images of other splits.
            is_of_split = split_in(folder.annotations.name) and not split_in(folder.images.name)
            known = {labels.path for labels in read}
            absent = [] if folder.is_shared or is_of_split else [*{*images.paths} - known]
        read += (ImageLabels(path, is_labelled=False) for path in absent)
        yield from sorted(read, key=key)

    def _read(
        self, folder: AnnotatedFolder, images: FileNames, wanted: Iterable[Path]
    ) -> Iterator[ImageLabels]:
        """Read the annotation files of wanted or unknown images in a folder."""
        files = FileNames(folder.annotations, (self.suffix,)).by_stem
        own = {name: images.fitting(name) for name in files}
        taken, wanted = {*chain.from_iterable(own.values())}, {*wanted}
        names = [name for name in files if not own[name] or not wanted.isdisjoint(own[name])]
        chosen = [files[name] for name in names]
        parts = scan("reading the annotations", chosen, self._parse, list, _THREADS)
        for name, found in zip(names, chain.from_iterable(parts), strict=True):
            if found is None and not own[name]:
                continue  # not an annotation, such as a package.json
            reason = f"{files[name].name} is not in the format {self.name}"
            named, labels = found or ("", ImageLabels(Path(), broken=reason))
            labels.path = _image_of(name, own[name], named, taken, images)
            labels.called = name + self.suffix
            yield labels

    def _parse(self, file: Path) -> Parsed | None:
        try:
            return self.parse(file)
        except OSError as error:
            reason = error.strerror
        except ValueError as error:
            reason = str(error)
        return "", ImageLabels(Path(), broken=f"{file.name}: {reason}")


def _child(folder: Path, names: Sequence[str]) -> Path | None:
    found = [path for path in folder.iterdir() if path.name.lower() in names and path.is_dir()]
    return min(found, key=lambda path: (names.index(path.name.lower()), path.name), default=None)


def _image_of(
    name: str, own: Sequence[Path], named: str, taken: Collection[Path], images: FileNames
) -> Path:
    """Return the path of the image of an annotation file, existing or expected.

    Args:
        name: of the annotation file, in its folder and without suffix.
        own: images of this name.
        named: the image that the file names.
        taken: images of the names of all annotation files.
    """
    base = parts_of(named)[-1:]
    if len(own) > 1:
        own = [path for path in own if path.name in base]
    elif not own and base:
        beside = os.path.join(os.path.dirname(name), *base)
        own = [path for path in images.fitting(beside) if path not in taken]
    if len(own) == 1:
        return own[0]
    suffix = os.path.splitext(named)[1]
    return images.folder / (name + (suffix if suffix.lower() in IMAGE_SUFFIXES else ".jpg"))
