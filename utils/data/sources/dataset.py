"""From the `--data` argument to a dataset.

Before: the command line. After: `image_files.py`, then `labels.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from utils.data.shapes.dataset import draw_dataset
from utils.data.sources.dataset_yaml import DatasetSpec, read_dataset_yaml
from utils.errors import DatasetError
from utils.files.project import PROJECT

BUILT_IN = "shapes"
YAML_FOLDER = PROJECT / "data"


def load_dataset(
    argument: str | Path,
    image_root: str | Path = "datasets",
    splits: Sequence[str] = ("train", "val"),
    single_class: bool = False,
) -> DatasetSpec:
    """Read the dataset that `--data` names.

    Args:
        argument: a YAML file, the name of one in data/, or "shapes": the built-in dataset, drawn
            into `image_root` on first use.
        image_root: the folder of the built-in dataset.
        splits: those of train, val and test that the caller needs; their images must exist.
        single_class: take all objects for one class.

    Raises:
        DatasetError: names the file, the key, its value and the places looked at.
    """
    if str(argument) == BUILT_IN:
        path = draw_dataset(Path(image_root) / BUILT_IN)
    else:
        path = _find_yaml(Path(argument))
    dataset = read_dataset_yaml(path, splits)
    return dataset.as_single_class() if single_class else dataset


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
