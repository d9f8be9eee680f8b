"""A dataset YAML: read, checked, its paths resolved."""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from duet.utils.data.sources.annotations import format_of
from duet.utils.data.sources.class_folders import ClassFolders, as_classes
from duet.utils.data.sources.formats.format import AnnotatedFolder, Annotations
from duet.utils.data.sources.formats.names import SPLIT_NAMES
from duet.utils.data.sources.image_sources import has_images, is_of_windows, no_images_text
from duet.utils.errors import DatasetError, brief
from duet.utils.files.json_files import Document
from duet.utils.files.yaml_files import read_yaml, yaml_text
from duet.utils.project import PROJECT, how_to_fetch
from duet.utils.text import count

SPLITS = ("train", "val", "test")
KEYS = {"path", "names", "nc", "download", *(x for names in SPLIT_NAMES.values() for x in names)}
ONE_CLASS = "item"  # the public name of all classes together


# A path is a folder of images with label files, a list file, or record files.
Entry = Path | AnnotatedFolder | ClassFolders


@dataclass(frozen=True)
class DatasetSpec:
    """The images of each split, and the class names."""

    name: str
    root: Path
    train: tuple[Entry, ...]
    val: tuple[Entry, ...]
    test: tuple[Entry, ...]  # empty where the dataset names none
    class_names: tuple[str, ...]
    single_class: bool = False  # all objects are taken for one class
    # Drawn: this part of `train` is for training, the rest is val; or "K/N", fold K of N is val.
    train_part: float | str | None = None
    merge: Mapping[str, str] = field(default_factory=dict)  # name in the labels -> the class it is
    label_names: tuple[str, ...] = ()  # names of the labels' numbers, if some are merged
    # Read for their names already; who lists their images takes them out.
    annotations: dict[AnnotatedFolder, Annotations] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def entries(self) -> tuple[Entry, ...]:
        return (*self.train, *self.val, *self.test)

    @property
    def is_of_folders(self) -> bool:
        return any(isinstance(entry, ClassFolders) for entry in self.entries)

    @property
    def names_in_labels(self) -> tuple[str, ...]:
        """Class names by the numbers of the labels, before any are merged."""
        return self.label_names or self.class_names

    def class_of(self, labels: np.ndarray) -> np.ndarray:
        """Return the classes of class numbers in labels, int64."""
        return self._merged_numbers[labels] if self.label_names else labels

    @cached_property
    def _merged_numbers(self) -> np.ndarray:
        number_of = {name: number for number, name in enumerate(self.class_names)}
        merged = [number_of[self.merge.get(name, name)] for name in self.label_names]
        return np.array(merged, np.int64)

    def merged(self) -> DatasetSpec:
        """Return the dataset with each class that `merge` names counted as another, or renamed."""
        if absent := sorted(set(self.merge) - set(self.class_names)):
            raise DatasetError(
                f"{self.name}: key 'merge' has {brief(absent)}, but the classes are "
                f"{brief(list(self.class_names))}; correct it"
            )
        names = dict.fromkeys(self.merge.get(name, name) for name in self.class_names)
        return dataclasses.replace(self, class_names=tuple(names), label_names=self.class_names)

    def as_single_class(self) -> DatasetSpec:
        """Return the dataset with a single class, its only one or "item", for --single-cls."""
        if self.is_of_folders:
            raise DatasetError(
                f"--single-cls: {self.name} is a classification dataset, where classes are the "
                "only labels; leave --single-cls out"
            )
        names = self.class_names if len(self.class_names) == 1 else (ONE_CLASS,)
        return dataclasses.replace(self, class_names=names, single_class=True)


def read_dataset_yaml(path: Path, splits: Sequence[str]) -> DatasetSpec:
    """Read a dataset YAML; only the images of `splits` must exist.

    An entry of a split is a path, or `{images: DIR, annotations: FILE or DIR, list: FILE}`, with
    annotations in another format and perhaps a list of the images. A path may hold folders named
    for classes. `names` may be absent if annotations or folders give the names. `merge: {rbc: RBC}`
    counts the objects of one name as of another.

    UserError: names the file, the key, its value and the places searched.
    """
    known = "a dataset YAML has the keys path, train, val and names"
    document = read_yaml("--data", path, known, texts_in=("names",))
    return _DatasetYaml(path, document).spec(splits)


def dataset_yaml_text(
    entries: Mapping[str, str], class_names: Sequence[str], merge: Mapping[str, str] | None = None
) -> str:
    """Return a dataset YAML with an entry, relative to its folder, for each split."""
    more = {"merge": dict(merge)} if merge else {}
    return yaml_text({"path": ".", **entries, "names": dict(enumerate(class_names)), **more})


@dataclass(frozen=True)
class _DatasetYaml:
    """A parsed dataset YAML and its path, for error messages."""

    path: Path
    document: Document

    def spec(self, splits: Sequence[str]) -> DatasetSpec:
        for key in splits:
            if not self._value(key)[1]:
                drawn = ", or draw it: --split 0.8" * (key == "val")
                raise self._missing(key, f"name the folder or the list of its images{drawn}")
        if shape := self.document.get("kpt_shape"):
            raise self._wrong(
                "kpt_shape",
                shape,
                ": the labels hold keypoints, which are not trained on; keep the first five "
                "columns of each line (class cx cy w h) in a copy of the labels, and leave the key "
                "out of its YAML",
            )
        class_names = self._class_names() if "names" in self.document else ()
        merge = self._merge()
        # Annotations and folders may have more names than numbers stand for.
        more = [name for name in merge if name not in class_names] if class_names else []
        class_names = (*class_names, *more)
        found = [self._entries(key, key in splits, class_names) for key in SPLITS]
        train, val, test = _with_shared_images(found)
        kinds = {type(entry) for entry in (*train, *val, *test)}
        if not class_names and kinds not in ({AnnotatedFolder}, {ClassFolders}):
            class_names = self._class_names()  # an error
        if more and not kinds <= {AnnotatedFolder, ClassFolders}:
            raise self._error("merge", f"has {brief(more)}, which 'names' lacks; add or correct it")
        return DatasetSpec(
            self.path.stem, self._roots[0], train, val, test, class_names, merge=merge
        )

    def _merge(self) -> dict[str, str]:
        merge = self.document.get("merge") or {}
        accepted = "; accepted: a mapping of names, such as {rbc: RBC}"
        if not isinstance(merge, Mapping):
            raise self._wrong("merge", merge, accepted)
        for name, target in merge.items():
            if not isinstance(name, str) or not isinstance(target, str) or not target:
                raise self._wrong("merge", merge, f"{accepted}; put numbers in quotes")
            if target in merge:
                raise self._wrong("merge", merge, f"; {brief(target)} is merged itself")
        return dict(merge)

    def _value(self, split: str) -> tuple[str, object]:
        """Return the key of a split, which may be another name of it, and its value or None."""
        names = (name for name in SPLIT_NAMES[split] if self.document.get(name))
        key = next(names, split)
        return key, self.document.get(key)

    def _error(self, key: str, text: str) -> DatasetError:
        return DatasetError(f"{self.path}: key '{key}' {text}")

    def _missing(self, key: str, next_step: str) -> DatasetError:
        near = difflib.get_close_matches(key, map(str, {*self.document} - KEYS), n=1)
        hint = f"did you mean {key} where it has {brief(near[0])}?" if near else next_step
        return self._error(key, f"is missing: {hint}")

    def _wrong(self, key: str, value: object, text: str) -> DatasetError:
        return self._error(key, f"has the value {brief(value)}{text}")

    @cached_property
    def _roots(self) -> list[Path]:
        """Return the roots of relative entries: `path` from the YAML's folder, then from here."""
        value = self.document.get("path") or "."
        if not isinstance(value, str):
            raise self._wrong("path", value, "; accepted: the path of a folder")
        candidates = [
            base / one for one in _spellings(value) for base in (self.path.parent, Path())
        ]
        if self.path.parent == PROJECT / "data":  # `duet fetch` writes into datasets/ from here
            candidates.append(Path(value.removeprefix("../")))
        roots = list(filter(os.path.isdir, candidates))
        if not roots:
            raise self._not_found("path", value, candidates)
        return roots

    def _not_found(self, key: str, value: str, candidates: Sequence[Path]) -> DatasetError:
        places = dict.fromkeys(f"{os.path.abspath(place):.400}" for place in candidates)
        next_step = "correct the path, or put the images there"
        if download := self.document.get("download"):
            next_step += (
                " by hand: its 'download' entry is never run; it is "
                f"{brief(download)}; "
                "duet fetch LIST downloads a list of URLs"
            )
        if is_of_windows(value):
            next_step += "; it is a path of Windows: write where the folder is here"
        if "*" in value:
            next_step += "; patterns are not expanded: list the folders"
        if fetched := how_to_fetch(self.path):
            next_step += f"; {fetched}"
        text = f", but there is no {' and no '.join(places)}; {next_step}"
        return self._wrong(key, value, text)

    def _entries(self, split: str, required: bool, class_names: Sequence[str]) -> tuple[Entry, ...]:
        key, value = self._value(split)
        found: list[Entry] = []
        try:
            for one in value if isinstance(value, list) else [value] if value else []:
                if isinstance(one, Mapping):
                    found.append(self._annotated(key, one, required))
                    continue
                path = self._path(key, one, required)
                if required and not has_images(path):
                    raise self._wrong(key, one, f", but {no_images_text(path.resolve())}")
                found.append(as_classes(path, class_names))
        except DatasetError as error:
            if required or "names" in self.document:
                raise
            text = "class names are taken from all splits; with 'names' it may be absent"
            raise DatasetError(f"{error}; {text}") from error
        return tuple(found)

    def _annotated(self, key: str, value: Document, required: bool) -> AnnotatedFolder:
        """Return an entry with annotations; of no format if it is absent and need not be there."""
        if not {"images", "annotations"} <= set(value) <= {"images", "annotations", "list"}:
            text = "images and annotations are needed, and list may be there"
            raise self._error(key, f"has the keys {brief(list(value))}; {text}")
        needed = required or "names" not in self.document
        found = {name: self._path(key, path, needed) for name, path in value.items()}
        is_there = all(map(os.path.exists, found.values()))
        kind = format_of(found["annotations"]) if is_there else ""
        return AnnotatedFolder(kind, found["annotations"], found["images"], found.get("list"))

    def _path(self, key: str, value: object, required: bool) -> Path:
        """Return the path of an entry, which must exist if it is required."""
        if not isinstance(value, str) or "\0" in value:
            raise self._wrong(key, value, "; accepted: a path or a list of paths")
        names = _spellings(value)
        if names[-1].startswith("../"):  # Roboflow writes ../train/images for train/images
            names.append(names[-1].removeprefix("../"))
        candidates = [root / name for name in names for root in self._roots]
        existing = next(filter(os.path.exists, candidates), None)
        if required and existing is None:
            raise self._not_found(key, value, candidates)
        return existing or candidates[0]

    def _class_names(self) -> tuple[str, ...]:
        if "names" not in self.document:
            raise self._missing("names", "list the names of the classes, in the labels' order")
        names = self.document["names"]
        if not names or not isinstance(names, (list, Mapping)):
            raise self._wrong("names", names, "; accepted: a list of class names")
        by_index = names if isinstance(names, Mapping) else dict(enumerate(names))
        if set(by_index) != set(range(len(by_index))):
            text = f"has the class numbers {brief(list(by_index))}; 0 to {len(by_index) - 1}"
            raise self._error("names", f"{text} are needed")
        ordered = [by_index[index] for index in range(len(by_index))]
        for name in ordered:
            # Unquoted, YAML reads `no` and `on` as booleans and `~` as nothing; an alias may stand
            # for a number.
            if not isinstance(name, str):
                text = f"holds {brief(name)}, which is not text; put it in quotes"
                raise self._error("names", text)
        counts = Counter(ordered)
        if repeated := sorted(text for text, number in counts.items() if number > 1):
            raise self._error("names", f"holds {brief(repeated)} more than once; each must differ")
        num_classes = self.document.get("nc", len(ordered))
        if isinstance(num_classes, str):
            raise self._wrong("nc", num_classes, "; accepted: a whole number, without quotes")
        if num_classes != len(ordered):
            text = f", but 'names' has {count(len(ordered), 'entry', 'entries')}"
            text += "; correct one of them, or leave 'nc' out"
            raise self._wrong("nc", num_classes, text)
        return tuple(ordered)


def _spellings(path: str) -> list[str]:
    """Return a path, and with / for Windows' \\ where it has some."""
    return list(dict.fromkeys([path, path.replace("\\", "/")]))


def _with_shared_images(splits: Sequence[tuple[Entry, ...]]) -> Iterator[tuple[Entry, ...]]:
    """Yield each split's entries; mark folders shared with other annotations."""
    folders = [x for entries in splits for x in entries if isinstance(x, AnnotatedFolder)]
    places = [(folder.annotations.resolve(), folder.images.resolve()) for folder in folders]

    def marked(entry: Entry) -> Entry:
        if not isinstance(entry, AnnotatedFolder):
            return entry
        annotations, own = entry.annotations.resolve(), entry.images.resolve()
        others = [images for other, images in places if other != annotations]
        is_shared = any(x.is_relative_to(own) or own.is_relative_to(x) for x in others)
        return entry._replace(is_shared=is_shared)

    return (tuple(map(marked, entries)) for entries in splits)
