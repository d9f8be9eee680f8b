"""From a folder or an annotation file to the dataset that it holds.

Source of the layouts of YOLO's label files: the pages of CVAT's format "YOLO 1.1", of labelImg, of
Label Studio's YOLO export and of Darknet (pjreddie.com/darknet/yolo).
"""

import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

from duet.utils.data.sources.annotations import format_names, format_of, formats
from duet.utils.data.sources.class_folders import ClassFolders, find_class_folders, folder_names
from duet.utils.data.sources.dataset_yaml import SPLITS, DatasetSpec, Entry, read_dataset_yaml
from duet.utils.data.sources.formats.format import AnnotatedFolder
from duet.utils.data.sources.formats.names import SPLIT_NAMES, split_folders, split_of
from duet.utils.data.sources.image_sources import has_images, start_of
from duet.utils.errors import DatasetError, UserError, brief
from duet.utils.files.regular import encoding_fault, read_text
from duet.utils.files.yaml_files import read_yaml
from duet.utils.text import printable

YAML_NAMES = ("data.yaml", "dataset.yaml", "data.yml", "dataset.yml")
OF_CLASSES = "folders of classes"
MOST_YAMLS = 100  # read per folder
ANNOTATION_SUFFIXES = (".csv", ".json", ".xml")
CLASS_FILES = ("classes.txt", "obj.names", "_darknet.labels")  # labelImg's, CVAT's, Roboflow's
DARKNET_FILE = "obj.data"
MAX_NAMES_BYTES = 1 << 22
DRAWN_PART = 0.8  # fraction for training if a dataset has no splits
MAX_PATH_LENGTH = 1000  # characters
_SETTING = re.compile(r"\s*(\w+)\s*=\s*(.*?)\s*")

# One way to read a folder: its name, and what reads the splits that are needed.
_Way = tuple[str, Callable[[Sequence[str]], DatasetSpec]]
# The folders or lists of images of each split, "" if not divided, and what the classes are called.
_Yolo = tuple[Mapping[str, Sequence[Path]], tuple[str, ...]]

log = logging.getLogger("data")


def recognise(path: Path, splits: Sequence[str]) -> DatasetSpec | None:
    """Return the dataset in a folder, or of an annotation file; None if none is recognised.

    Its class names are empty if its annotations have them. DatasetError: it is recognised and
    cannot be used, or lacks a split.
    """
    try:
        way = _way_to_read(path)
    except OSError as error:  # a folder that may not be read
        raise DatasetError(f"--data {path}: {error.strerror}: {brief(error.filename)}") from error
    if way is None:
        if path.is_file() and path.suffix.lower() in ANNOTATION_SUFFIXES:
            format_of(path)  # an error
        return None
    name, read = way
    if splits:  # else it is only looked at, and is loaded again
        log.info("--data %s: is read as %s", printable(str(path)), printable(name))
    return read(splits)


def unrecognised_text(folder: Path) -> str:
    return (
        f"--data {folder}: no dataset is recognised in this folder; write a dataset YAML, or "
        "name a folder that has\n"
        f"a dataset YAML: {YAML_NAMES[0]}, {YAML_NAMES[1]}, or one with the key train;\n"
        f"annotations: {format_names()};\n"
        f"YOLO label files, and class names in {', '.join(CLASS_FILES)} or {DARKNET_FILE};\n"
        "or, to classify, images in folders named for their classes, as train/cat and val/cat"
    )


def _way_to_read(path: Path) -> _Way | None:
    """Return the first way to read a path.

    Tried are a dataset YAML, the formats in their order, folders named in a list of classes, YOLO
    label files, and finally any folders as classes.
    """
    is_folder = path.is_dir()
    if is_folder and (yaml := _yaml_in(path)):
        return f"the dataset YAML {yaml.name}", partial(read_dataset_yaml, yaml)
    if is_folder or path.suffix.lower() in ANNOTATION_SUFFIXES:
        for kind in formats():
            if found := kind.find(path):
                return kind.name, partial(_of_splits, path, found, ())
    if not is_folder:
        return None
    classes, yolo = find_class_folders(path), _find_yolo(path)
    if yolo is None:
        return (OF_CLASSES, partial(_of_splits, path, classes, ())) if classes else None
    places, class_names = yolo
    if classes and folder_names(chain.from_iterable(classes.values())) <= {*class_names}:
        return OF_CLASSES, partial(_of_splits, path, classes, class_names)
    return "YOLO label files", partial(_of_splits, path, places, class_names)


def _yaml_in(folder: Path) -> Path | None:
    """Return the dataset YAML in a folder: one with a usual name, or the only one with images."""
    known = {"names", *chain.from_iterable(SPLIT_NAMES.values())}
    for name in YAML_NAMES:
        if (folder / name).is_file():
            keys = _keys_of(folder / name)
            if keys is None or not known.isdisjoint(keys):  # a broken one may be meant too
                return folder / name
    files = sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])[:MOST_YAMLS]
    found = [file for file in files if not {"train", "val"}.isdisjoint(_keys_of(file) or ())]
    if len(found) > 1:
        some = ", ".join(map(str, found[:5])) + (", ..." if len(found) > 5 else "")
        raise DatasetError(f"--data {folder}: several dataset YAMLs; give one: {some}")
    return found[0] if found else None


def _keys_of(file: Path) -> Collection[object] | None:
    """Return the keys of a YAML file; None if it cannot be read."""
    try:
        return read_yaml("--data", file, "").keys()
    except UserError:
        return None


def _of_splits(
    path: Path,
    found: Mapping[str, Sequence[Entry]],
    class_names: tuple[str, ...],
    splits: Sequence[str],
) -> DatasetSpec:
    """Return a dataset of the entries of each split; undivided entries are for training.

    If nothing has a split and `val` is needed, the split is drawn as by --split.
    """
    entries = {split: tuple(found.get(split, ())) for split in SPLITS}
    undivided = tuple(found.get("", ()))
    for entry in undivided if entries["train"] else ():
        log.info("%s belongs to no split and is ignored", printable(_described(entry)))
    is_drawn = "val" in splits and bool(undivided) and not any(entries.values())
    if is_drawn:
        text = "--data %s: has no splits; one is drawn: %g %% for training, the rest to validate"
        log.info(text, printable(str(path)), 100 * DRAWN_PART)
    entries["train"] = entries["train"] or undivided
    for split in splits:
        if not entries[split] and not (is_drawn and split == "val"):
            raise DatasetError(
                f"--data {path}: has no images for '{split}'; name a folder of images for it, or "
                "draw a split: --split 0.8 takes 80 % for training and the rest for validation"
            )
    name, root = (path.resolve().name, path) if path.is_dir() else (path.stem, path.parent)
    part = DRAWN_PART if is_drawn else None
    train, val, test = (entries[split] for split in SPLITS)
    return DatasetSpec(name, root, train, val, test, class_names, train_part=part)


def _described(entry: Entry) -> str:
    if isinstance(entry, AnnotatedFolder):
        return str(entry.annotations) + (f": {entry.subset!r:.200}" if entry.subset else "")
    return str(entry.folder if isinstance(entry, ClassFolders) else entry)


def _find_yolo(folder: Path) -> _Yolo | None:
    """Return the images of a folder in which a file names the classes; None without one.

    DatasetError: such a file cannot be used, or two files disagree.
    """
    for place in (folder, folder / "data"):
        if (place / DARKNET_FILE).is_file():
            return _of_darknet(place / DARKNET_FILE)
    if class_names := _common_names(list(_class_files(folder))):
        return _split_places(folder), class_names
    return None


def _of_darknet(file: Path) -> _Yolo:
    lines = map(_SETTING.fullmatch, _lines(file))
    settings = {match[1]: match[2] for match in lines if match}
    if "names" not in settings:
        raise DatasetError(f"{file}: no class names; add a line such as 'names = obj.names'")
    named = {split_of(name): value for name, value in settings.items()}
    splits = {split: [_place_of(file, value)] for split, value in named.items() if split}
    names = _place_of(file, settings["names"])
    if not (class_names := _class_names(names)):
        raise DatasetError(f"{names}: no class names; write one per line")
    return splits, class_names


def _place_of(file: Path, value: str) -> Path:
    if len(value) > MAX_PATH_LENGTH:
        raise DatasetError(f"{file}: {brief(value)} is not a path; correct the line")
    return start_of(file, [value]).path(value)


def _class_files(folder: Path) -> Iterator[Path]:
    """Yield the files of class names, in the folder or beside the labels or images."""
    inner = [folder / name for name in ("labels", "images")]
    parts = [part for place in (folder, *inner) if place.is_dir() for part in split_folders(place)]
    for place in (folder, *inner, *parts, *(part / "labels" for part in parts)):
        yield from (place / name for name in CLASS_FILES if (place / name).is_file())


def _common_names(files: Sequence[Path]) -> tuple[str, ...]:
    """Return the class names of files of which each has the first of the longest.

    labelImg writes one beside each folder of labels, with the classes that it knew then.
    """
    lists = {file: _class_names(file) for file in files}
    longest = max(files, key=lambda file: len(lists[file]), default=None)
    for file, names in lists.items():
        if longest and names != lists[longest][: len(names)]:
            raise DatasetError(
                f"{file} and {longest} name other classes, or in another order; find out which of "
                "them the label files were written with, and make them equal"
            )
    return lists[longest] if longest else ()


def _class_names(file: Path) -> tuple[str, ...]:
    names = [line.strip() for line in _lines(file)]
    while names and not names[-1]:
        names.pop()
    if not all(names):
        number = names.index("") + 1
        raise DatasetError(f"{file}: line {number} is blank; write one class name per line")
    if repeated := [name for name, times in Counter(names).items() if times > 1]:
        raise DatasetError(f"{file}: duplicate name {brief(repeated)}")
    return tuple(names)


def _lines(file: Path) -> list[str]:
    try:
        return read_text(file, MAX_NAMES_BYTES).splitlines()
    except UnicodeDecodeError as error:
        raise DatasetError(f"{file}: {encoding_fault(error)}") from error
    except OSError as error:
        raise DatasetError(f"{file}: {error.strerror}") from error


def _split_places(folder: Path) -> Mapping[str, Sequence[Path]]:
    """Return the folders of images of each split; of all images where they are not divided."""
    splits: dict[str, list[Path]] = {}
    for place in (folder, folder / "images"):
        for part in split_folders(place) if place.is_dir() else ():
            inner = part / "images"
            if has_images(part):
                splits.setdefault(split_of(part.name), []).append(inner if inner.is_dir() else part)
    whole = folder / "images"
    return splits or {"": [whole if whole.is_dir() and has_images(whole) else folder]}
