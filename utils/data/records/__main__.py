"""`duet records`: pack a dataset into record files, or unpack it."""

import argparse
import logging
from pathlib import Path

from duet.utils.cli.flags import from_one, new_parser
from duet.utils.data.records.layout import MAX_RECORD_BYTES, read_record
from duet.utils.data.records.packing import pack_samples
from duet.utils.data.records.record_images import RecordImage
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.dataset_yaml import SPLITS, DatasetSpec, dataset_yaml_text
from duet.utils.data.sources.image_sources import ImageFile, ImageSource
from duet.utils.data.sources.label_file import label_path
from duet.utils.data.sources.splits import images_of, scan_samples
from duet.utils.errors import DatasetError
from duet.utils.files.atomic import new_folder, refuse_existing
from duet.utils.files.regular import read_bytes
from duet.utils.image_limits import MAX_PIXELS
from duet.utils.processes.command import run_command
from duet.utils.progress import Progress
from duet.utils.text import count, printable, say

MIB = 1 << 20

log = logging.getLogger("records")


def main() -> None:
    parser = new_parser("duet records", "Datasets packed into FFRecord files.")
    commands = parser.add_subparsers(required=True, metavar="pack | unpack")
    for run, about in (
        (pack, "write a dataset's images and labels into record files"),
        (unpack, "write record files out as images and labels"),
    ):
        command = commands.add_parser(
            run.__name__, help=about, description=about, allow_abbrev=False,
            formatter_class=parser.formatter_class,
        )  # fmt: skip
        command.set_defaults(run=run)
        add = command.add_argument
        add("--data", required=True, metavar="D", help="dataset, as for train.py")
        add("--out", required=True, type=Path, metavar="DIR", help="a new folder")
        add("--splits", nargs="+", choices=SPLITS, help="default: all splits of it")
        if run is pack:
            add("--file-mib", type=from_one, default=1024, metavar="MIB",
                help="size at which a new file begins")  # fmt: skip
            add("--max-pixels", type=from_one, default=MAX_PIXELS, metavar="N",
                help="leave out images with more pixels than this")  # fmt: skip
    flags = parser.parse_args()
    flags.run(flags)


def load_images(flags: argparse.Namespace) -> tuple[DatasetSpec, dict[str, list[ImageSource]]]:
    """Return a dataset and the images of the splits of --splits, by default all that it names."""
    refuse_existing(flags.out)
    named = load_dataset(flags.data, splits=())
    splits = flags.splits or [split for split in SPLITS if getattr(named, split)]
    if not splits:
        raise DatasetError(f"--data {flags.data}: names no images; give it a key such as 'train'")
    try:
        dataset = load_dataset(flags.data, splits=splits)
    except DatasetError as error:
        raise DatasetError(f"{error}; or name the splits that are there: --splits") from error
    return dataset, {split: images_of(dataset, split) for split in splits}


def pack(flags: argparse.Namespace) -> None:
    dataset, images = load_images(flags)
    samples, annotated = {}, set()
    for split, listed in images.items():
        if any(isinstance(image, RecordImage) for image in listed):
            raise DatasetError(
                f"'{split}' of {dataset.name} is packed already; copy its files, or unpack it first"
            )
        names, limit = dataset.names_in_labels, flags.max_pixels
        report = scan_samples(listed, len(names), max_pixels=limit, needs_objects=False)
        for problem in report.problems:
            log.warning("%s", printable(problem))
        if left_out := len(listed) - len(report.samples):
            log.warning("%s: %d of %s left out", split, left_out, count(len(listed), "image"))
        samples[split] = report.samples
        annotated |= {x.path for x in listed if not isinstance(x, ImageFile)}
    path = flags.out / f"{dataset.name}.yaml"
    pack_samples(samples, names, path, flags.file_mib * MIB, annotated, dataset.merge)
    for split, packed in samples.items():
        say(f"{split}: {count(len(packed), 'image')} packed")
    say(f"train with --data {path}")


def unpack(flags: argparse.Namespace) -> None:
    """Write images and labels byte for byte into a new folder, with list files and a YAML.

    Lists keep the order of each split: training reads the same batches.
    """
    dataset, images = load_images(flags)
    name = f"{dataset.name}.yaml"
    with new_folder(flags.out) as folder:
        for split, listed in images.items():
            with Progress(len(listed), f"unpacking {split}", "images") as progress:
                lines = []
                for image in listed:
                    if not isinstance(image, RecordImage) or image.place is None:
                        raise DatasetError(
                            f"'{split}' of {dataset.name} names images that are not packed; leave "
                            "it out: --splits"
                        )
                    _write(folder, image.entry.name, read_record(image.place).tobytes())
                    if image.entry.labels is not None:
                        labels = str(label_path(Path(image.entry.name)))
                        _write(folder, labels, image.entry.labels)
                    lines.append(f"./{image.entry.name}\n")
                    progress.update()
            _write(folder, f"{split}.txt", "".join(lines).encode())
        entries = {split: f"{split}.txt" for split in images}
        text = dataset_yaml_text(entries, dataset.names_in_labels, dataset.merge)
        _write(folder, name, text.encode())
    for split, listed in images.items():
        say(f"{split}: {count(len(listed), 'image')} unpacked")
    say(f"train with --data {flags.out / name}")


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


if __name__ == "__main__":
    run_command(main)
