"""From the `--data` argument to a dataset.

Before: the command line. After: `splits.py`, then `labels.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

from utils.data.shapes.dataset import draw_dataset
from utils.data.sources.dataset_yaml import SPLITS, DatasetSpec, read_dataset_yaml
from utils.data.sources.formats.format import AnnotatedFolder
from utils.data.sources.formats.table import find_annotated, read_annotations
from utils.errors import DatasetError
from utils.files.project import PROJECT

BUILT_IN = "shapes"
YAML_FOLDER = PROJECT / "data"


def load_dataset(
    argument: str | Path,
    image_root: str | Path = "datasets",
    splits: Sequence[str] = ("train", "val"),
    single_class: bool = False,
    train_part: float | None = None,
) -> DatasetSpec:
    """Read the dataset that `--data` names.

    Args:
        argument: a YAML file, the name of one in data/, a folder or an annotation file in one of
            the formats of `formats/table.py`, or "shapes": the built-in dataset, drawn into
            `image_root` on first use.
        image_root: the folder of the built-in dataset.
        splits: those of train, val and test that the caller needs; their images must exist.
        single_class: take all objects for one class.
        train_part: of the images of a dataset that has no split for validation; the rest is that.

    Raises:
        DatasetError: names the file, the key, its value and the places looked at.
    """
    if str(argument) == BUILT_IN:
        argument = draw_dataset(Path(image_root) / BUILT_IN)
    drawn_from = [split for split in splits if split != "val"]
    needed = splits if train_part is None else dict.fromkeys(["train", *drawn_from])
    dataset = _read(Path(argument), list(needed))
    if train_part is not None:
        dataset = _drawn(dataset, train_part)
    if not dataset.class_names:
        dataset = dataclasses.replace(dataset, class_names=_annotated_names(dataset))
    return dataset.as_single_class() if single_class else dataset


def _read(argument: Path, splits: Sequence[str]) -> DatasetSpec:
    """Return the dataset; without class names where they are in its annotations."""
    if found := find_annotated(argument):
        return _of_splits(argument, found, splits)
    return read_dataset_yaml(_find_yaml(argument), splits)


def _of_splits(
    path: Path, found: Mapping[str, Sequence[AnnotatedFolder]], splits: Sequence[str]
) -> DatasetSpec:
    """Return a dataset of annotated folders, those of "" to draw from."""
    entries = {split: tuple(found.get(split, ())) for split in SPLITS}
    entries["train"] = entries["train"] or tuple(found.get("", ()))
    for split in splits:
        if not entries[split]:
            raise DatasetError(
                f"--data {path}: has no images for '{split}'; name the folder of some, or let a "
                "part of all images be for training and the rest for validation: --split 0.8"
            )
    root = path if path.is_dir() else path.parent
    name = path.resolve().stem
    return DatasetSpec(name, root, entries["train"], entries["val"], entries["test"], ())


def _drawn(dataset: DatasetSpec, train_part: float) -> DatasetSpec:
    if dataset.val:
        raise DatasetError(
            f"--split {train_part:g}: {dataset.name} has a split for validation; leave --split out"
        )
    return dataclasses.replace(dataset, train_part=train_part)


def _annotated_names(dataset: DatasetSpec) -> tuple[str, ...]:
    """Return the class names of all annotations: the longest list if it has them all, else sorted.

    All splits count, so that the numbers of the classes are the same whichever of them is read.
    """
    entries = [*dataset.train, *dataset.val, *dataset.test]
    folders = [entry for entry in entries if isinstance(entry, AnnotatedFolder)]
    lists = [read_annotations(folder).class_names for folder in folders]
    longest, names = max(lists, key=len), set(chain.from_iterable(lists))
    if not names:
        raise DatasetError(f"{dataset.name}: its annotations name no class")
    return longest if set(longest) == names else tuple(sorted(names))


def _find_yaml(argument: Path) -> Path:
    name = argument.name if argument.suffix in (".yaml", ".yml") else argument.name + ".yaml"
    candidates = (argument, YAML_FOLDER / name)
    for path in candidates:
        if path.exists() and not path.is_dir():  # what is no file is told by its reader
            return path
    known = ", ".join([BUILT_IN, *sorted(path.name for path in YAML_FOLDER.glob("*.yaml"))])
    looked_at = " and ".join(str(path.resolve()) for path in candidates)
    raise DatasetError(
        f"--data {argument}: no dataset YAML at {looked_at}; "
        f"give the path of one, or a known name: {known}"
    )
