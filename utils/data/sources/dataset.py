"""From the `--data` argument to a dataset."""

import dataclasses
import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

from duet.utils.data.shapes.dataset import ShapesConfig, draw_class_dataset, draw_dataset
from duet.utils.data.sources.annotations import read_annotations
from duet.utils.data.sources.class_folders import ClassFolders, class_names_of
from duet.utils.data.sources.dataset_yaml import DatasetSpec, read_dataset_yaml
from duet.utils.data.sources.formats.format import AnnotatedFolder, Annotations
from duet.utils.data.sources.recognised import recognise, unrecognised_text
from duet.utils.errors import DatasetError
from duet.utils.project import PROJECT, how_to_fetch
from duet.utils.text import printable

BUILT_IN = "shapes"
BUILT_INS: dict[str, Callable[[Path], Path]] = {
    BUILT_IN: draw_dataset,
    "shapes-cls": draw_class_dataset,
    "shapes-seg": partial(draw_dataset, config=ShapesConfig(outlines=True)),
}
YAML_FOLDER = PROJECT / "data"
YAML_SUFFIXES = (".yaml", ".yml")

log = logging.getLogger("data")


def load_dataset(
    argument: str | Path,
    splits: Sequence[str] = ("train", "val"),
    single_class: bool = False,
    train_part: float | str | None = None,
) -> DatasetSpec:
    """Read the dataset that `--data` names.

    Args:
        argument: a YAML file, the name of one in data/, a folder or an annotation file that
            `recognised.py` knows, or one of `BUILT_INS`, drawn into datasets/ on first use.
        splits: the splits whose images must exist.
        single_class: treat all objects as one class.
        train_part: fraction of the images for training, the rest for validation, if the dataset
            has no split for validation; or "K/N", to validate on fold K of N. None: drawn as
            `recognised.py` does if there is no split at all.

    DatasetError: names the file, the key, its value and the places searched.
    """
    name = str(argument)
    if name in BUILT_INS:
        if os.path.exists(name):
            log.info("%s: the built-in dataset; for the folder of that name give ./%s", name, name)
        argument = BUILT_INS[name](Path("datasets") / name)
    if train_part is None:
        dataset = _read(Path(argument), splits)
    else:  # val is drawn from train
        others = (split for split in splits if split != "val")
        dataset = _read(Path(argument), list(dict.fromkeys(["train", *others])))
        if dataset.val:
            raise DatasetError(
                f"--split {train_part}: {dataset.name} has a split for validation; --split and "
                "folds need a dataset without one"
            )
        dataset = dataclasses.replace(dataset, train_part=train_part)
    if not dataset.class_names:
        dataset = dataclasses.replace(dataset, class_names=_found_names(dataset, splits))
    dataset = dataset.merged() if dataset.merge else dataset
    return dataset.as_single_class() if single_class else dataset


def _read(path: Path, splits: Sequence[str]) -> DatasetSpec:
    is_yaml = path.suffix in YAML_SUFFIXES and not os.path.isdir(path)
    found = None if is_yaml else recognise(path, splits)
    return found or read_dataset_yaml(_find_yaml(path), splits)


def _found_names(dataset: DatasetSpec, splits: Sequence[str]) -> tuple[str, ...]:
    """Return the class names of the folders or annotations of all splits, not only those read.

    Of annotations, the longest list if it has them all, else sorted. The dataset keeps those of
    `splits` until their images are listed.
    """
    entries = dataset.entries
    if folders := [entry for entry in entries if isinstance(entry, ClassFolders)]:
        return class_names_of(folders, dataset.name)
    found = {x: read_annotations(x) for x in entries if isinstance(x, AnnotatedFolder)}
    wanted = chain.from_iterable(getattr(dataset, split) for split in splits)
    dataset.annotations.update({x: found[x] for x in wanted if isinstance(x, AnnotatedFolder)})
    lists = [annotations.class_names for annotations in found.values()]
    longest, names = max(lists, key=len), set(chain.from_iterable(lists))
    if not names:
        reason = _why_no_class(next(iter(found.values())))
        raise DatasetError(
            f"{dataset.name}: its annotations name no class: {reason}; "
            "correct that, or give 'names' in a dataset YAML"
        )
    return tuple(longest if set(longest) == names else sorted(names))


def _why_no_class(annotations: Annotations) -> str:
    for path, reason in zip(annotations.paths, annotations.broken, strict=True):
        if reason:
            return f"{Path(path).name:.100}: {reason:.200}"
    if annotations.left_out:
        kinds = [f"{kind:.50} ({number:,})" for kind, number in annotations.left_out.items()]
        return f"left out: {', '.join(kinds[:5])}"
    return "no image has an object"


def _find_yaml(argument: Path) -> Path:
    name = argument.name if argument.suffix in YAML_SUFFIXES else argument.name + ".yaml"
    candidates = (argument, YAML_FOLDER / name)
    for path in candidates:
        if os.path.exists(path) and not os.path.isdir(path):
            if path is not argument and os.path.isdir(argument):
                text = "--data %s: no dataset is recognised in this folder; %s is used"
                log.info(text, printable(str(argument)), path)
            return path  # its reader reports anything that is not a file
    if os.path.isdir(argument):
        raise DatasetError(unrecognised_text(argument))
    known = ", ".join([*BUILT_INS, *sorted(path.name for path in YAML_FOLDER.glob("*.yaml"))])
    looked_at = " and ".join(map(os.path.realpath, candidates))  # takes a loop of links too
    beside = [*filter(os.path.isfile, map(argument.with_suffix, YAML_SUFFIXES))]
    fetched = f"{found}; or " if (found := how_to_fetch(argument)) else ""
    fetched = f"{beside[0]} is there; " if beside else fetched
    raise DatasetError(
        f"--data {argument}: no dataset YAML at {looked_at}; {fetched}"
        f"give the path of one, or a known name: {known}"
    )
