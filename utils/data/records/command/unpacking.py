"""Packed datasets -> files again: images, labels, list files and the YAML that names them.

Before: `sources/record_images.py`. After: `sources/dataset.py`, which reads them like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from utils.data.records.command.folders import dataset_yaml_text, new_folder
from utils.data.records.reading import MAX_RECORD_BYTES, read_record
from utils.data.sources.label_file import label_path
from utils.data.sources.record_images import RecordImage
from utils.errors import DatasetError
from utils.files.regular import read_bytes
from utils.screen.progress import Progress


def unpack_images(
    splits: Mapping[str, Sequence[RecordImage]], class_names: Sequence[str], yaml_path: Path
) -> None:
    """Write the images and labels of each split, byte for byte, into a new folder with a YAML.

    A list file names the images of each split in their order: training reads the same batches.

    Raises:
        DatasetError: a damaged record, two contents of one name, or a folder that cannot be
            written.
    """
    with new_folder(yaml_path.parent) as folder:
        for split, images in splits.items():
            with Progress(len(images), f"unpacking {split}", "images") as progress:
                for image in images:
                    _unpack_one(folder, image)
                    progress.update()
            lines = "".join(f"./{image.entry.name}\n" for image in images)
            _write(folder, f"{split}.txt", lines.encode())
        text = dataset_yaml_text({split: f"{split}.txt" for split in splits}, class_names)
        _write(folder, yaml_path.name, text.encode())


def _unpack_one(folder: Path, image: RecordImage) -> None:
    _write(folder, image.entry.name, read_record(image.place).tobytes())
    if image.entry.labels is not None:
        _write(folder, str(label_path(Path(image.entry.name))), image.entry.labels)


def _write(folder: Path, name: str, content: bytes) -> None:
    """Write a new file; an existing one, of an image that is listed twice, must be equal."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(path, "xb") as file:
            file.write(content)
    except FileExistsError as error:
        if read_bytes(path, MAX_RECORD_BYTES) != content:
            raise DatasetError(
                f"two files of different content go by the name {name}; unpack the splits one by "
                "one with --splits"
            ) from error
