"""COCO's instances JSON as a dataset: as COCO publishes it, as Roboflow and CVAT export it.

Before: `coco_file.py` reads a file. After: `sources/annotated_images.py`.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from utils.data.sources.formats.annotations import Annotations
from utils.data.sources.formats.coco_file import (
    SECTIONS,
    BrokenInstancesError,
    Instances,
    read_file_names,
    read_instances,
)
from utils.data.sources.formats.format import AnnotatedFolder, Format
from utils.errors import DatasetError, brief
from utils.files.regular import open_regular
from utils.polygons import starts_of
from utils.screen.text import printable

NAME = "COCO JSON"
ROBOFLOW = "_annotations.coco.json"
_SPLITS = {"train": "train", "valid": "val", "validation": "val", "val": "val", "test": "test"}
_FILE_NAME = re.compile(
    r"(?:instances_)?((train|val|valid|validation|test|default)\d*)\.json", re.I
)
_SECTION = re.compile(rb'"(?:%s)"\s*:\s*\[' % "|".join(SECTIONS).encode())
_START_BYTES = 1 << 16
_MOST_PROBED = 16  # images of a file, to find their folder
_MOST_FOLDERS = 16  # in a file name

log = logging.getLogger("data")


def accepts(path: Path) -> bool:
    """Whether a file begins as an instances JSON does."""
    if path.suffix.lower() != ".json" or not path.is_file():
        return False
    try:
        with open_regular(path) as file:
            start = file.read(_START_BYTES)
    except OSError:
        return False
    is_object = start.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")
    return is_object and _SECTION.search(start) is not None


def find(path: Path) -> Mapping[str, list[AnnotatedFolder]]:
    """Return the splits of a file, or of a folder as Roboflow, COCO or CVAT lay it out."""
    if not path.is_dir():
        return {"": [_beside(path)]} if accepts(path) else {}
    found = {
        split: [AnnotatedFolder(NAME, file, file.parent)]
        for folder, split in {**_SPLITS, ".": ""}.items()
        if accepts(file := path / folder / ROBOFLOW)
    }
    return found or _public_layout(path)


def _beside(file: Path) -> AnnotatedFolder:
    """Return a file with the folder of its images: beside it, or where its names lead."""
    above = file.parent.parent if file.parent.name == "annotations" else file.parent
    tag = file.stem.removeprefix("instances_")
    folders = [file.parent, file.parent / "images", *_folders_of(above, tag)]
    return AnnotatedFolder(NAME, file, _image_folder(file, folders) or file.parent)


def _public_layout(root: Path) -> dict[str, list[AnnotatedFolder]]:
    """Return the splits whose files are called as COCO's are, and whose images are there."""
    found: dict[str, list[AnnotatedFolder]] = {}
    for file in sorted([*root.glob("annotations/*.json"), *root.glob("*.json")]):
        named = _FILE_NAME.fullmatch(file.name)
        if not named or not accepts(file):
            continue
        folder = _image_folder(file, _folders_of(root, named[1]))
        if folder is not None:
            split = _SPLITS.get(named[2].lower(), "")
            found.setdefault(split, []).append(AnnotatedFolder(NAME, file, folder))
    return found


def _folders_of(root: Path, tag: str) -> list[Path]:
    """Return where the images of a file "instances_TAG.json" may lie, the likeliest first."""
    name = tag.rstrip("0123456789")
    names = dict.fromkeys([tag, name, *(key for key in _SPLITS if _SPLITS[key] == name)])
    places = [place for each in names for place in (root / each, root / "images" / each)]
    return [*places, *(place / "images" for place in places), root / "images", root]


def _image_folder(file: Path, folders: Sequence[Path]) -> Path | None:
    """Return the first folder in which most of a file's first images are; None without any."""
    try:
        names = [_parts_of(name) for name in read_file_names(file, _MOST_PROBED)]
    except (OSError, BrokenInstancesError) as error:
        raise _error(file, error) from error
    counts = [_count_found(folder, names, _best_skip(folder, names)) for folder in folders]
    return folders[counts.index(max(counts))] if any(counts) else None


def _parts_of(file_name: str) -> tuple[str, ...]:
    r"""Return the folders and the name in a file name, below whatever folder has the images.

    A root, a drive, `.` and `..` are left out: nothing leads out of that folder. `\` separates
    folders too, as programs on Windows write it.
    """
    path = PurePosixPath(re.sub(r"^[A-Za-z]:", "", file_name.replace("\\", "/")))
    return tuple(part for part in path.parts if part not in ("/", "//", ".."))


def _best_skip(folder: Path, names: Sequence[tuple[str, ...]]) -> int:
    """Return how many leading folders of the names to leave out, so that the files are found."""
    deepest = min(max((len(parts) for parts in names), default=1), _MOST_FOLDERS)
    counts = [_count_found(folder, names, skip) for skip in range(deepest)]
    return counts.index(max(counts)) if counts else 0


def _count_found(folder: Path, names: Sequence[tuple[str, ...]], skip: int) -> int:
    return sum(_place(folder, parts, skip).exists() for parts in names)


def _place(folder: Path, parts: tuple[str, ...], skip: int) -> Path:
    return folder.joinpath(*parts[min(skip, len(parts) - 1) :])


def read(folder: AnnotatedFolder) -> Annotations:
    """Read the annotations of a folder; DatasetError when the file is broken."""
    try:
        instances = read_instances(folder.annotations)
        paths = tuple(_paths_of(folder.images, instances.file_names))
    except (OSError, BrokenInstancesError) as error:
        raise _error(folder.annotations, error) from error
    class_names, class_of = _classes(instances, folder.annotations)
    image = instances.image
    broken: dict[int, str] = {}
    for row, reason in sorted(instances.faults.items()):
        if image[row] >= 0:
            broken.setdefault(int(image[row]), reason)
    rows = np.flatnonzero((image >= 0) & (instances.category >= 0) & ~instances.is_crowd)
    rows = rows[np.argsort(image[rows], kind="stable")]
    boxes = instances.boxes_ltwh[rows]
    boxes[:, 2:] += boxes[:, :2]
    left_out = {
        "crowds": int(instances.is_crowd.sum()),
        "objects of images that are not listed": int((image < 0).sum()),
    }
    return Annotations(
        class_names,
        paths,
        instances.sizes,
        starts_of(np.bincount(image[rows], minlength=len(paths))),
        class_of[instances.category[rows]],
        boxes,
        instances.polygons.select(rows),
        broken,
        {kind: number for kind, number in left_out.items() if number},
    )


def _error(file: Path, error: OSError | ValueError) -> DatasetError:
    reason = error.strerror if isinstance(error, OSError) else error
    return DatasetError(f"{file}: {reason}")


def _paths_of(folder: Path, file_names: Sequence[str]) -> Iterator[str]:
    """Yield the path of each image; raise BrokenInstancesError where two have one."""
    names = [_parts_of(name) for name in file_names]
    step = max(1, len(names) // _MOST_PROBED)
    skip = _best_skip(folder, names[::step][:_MOST_PROBED])
    seen: set[str] = set()
    for name, parts in zip(file_names, names, strict=True):
        if not parts:
            raise BrokenInstancesError(f"an image is called {brief(name)}; no file can be")
        path = str(_place(folder, parts, skip))
        if path in seen:
            raise BrokenInstancesError(f"two images are called {brief(name)}; each must differ")
        seen.add(path)
        yield path


def _classes(instances: Instances, file: Path) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the class names in the order of the ids, and the class of each category, (C,)."""
    order = np.argsort(np.array(instances.category_ids, np.int64), kind="stable").tolist()
    if _has_dummy(instances, order):
        del order[0]
    names = [instances.category_names[index] for index in order]
    class_names = tuple(dict.fromkeys(names))
    if len(class_names) < len(names):
        repeated = [name for name, number in Counter(names).items() if number > 1]
        text = printable(", ".join(repeated))
        log.warning("%s: categories of one name are taken for one class: %s", file, text)
    index_of = {name: index for index, name in enumerate(class_names)}
    class_of = np.zeros(len(instances.category_ids), np.int64)
    class_of[order] = [index_of[name] for name in names]
    return class_names, class_of


def _has_dummy(instances: Instances, order: Sequence[int]) -> bool:
    """Whether category 0 is no class: Roboflow writes the supercategory of all others there."""
    first, *others = order or [-1]
    if not others or instances.category_ids[first] != 0 or (instances.category == first).any():
        return False
    name = instances.category_names[first]
    return all(instances.supercategories[other] == name for other in others)


COCO = Format(NAME, accepts, find, read)
