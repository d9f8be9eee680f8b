"""The split `val` of a dataset, as the flags of a benchmark say: which images, in which batches.

Before: the flags. After: `val.py`, `val_host.py` and others that run a model over it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from backend.words import count
from utils.cli.flags import from_one
from utils.data.loading.loader import ValLoader
from utils.data.sources.dataset import load_dataset
from utils.data.sources.samples import Sample
from utils.data.sources.splits import load_split


def add_batch_flags(parser: argparse.ArgumentParser, img: int, batch: int) -> None:
    """Add --img, --batch and --workers, with these defaults."""
    add = parser.add_argument
    add("--img", type=from_one, default=img, metavar="PX")
    add("--batch", type=from_one, default=batch, metavar="N")
    add("--workers", type=int, default=2, metavar="N")


def add_val_flags(parser: argparse.ArgumentParser, img: int) -> None:
    """Add those of `add_batch_flags`, and --images."""
    add_batch_flags(parser, img, batch=32)
    parser.add_argument("--images", type=from_one, metavar="N", help="only the first N")


def read_val_split(flags: argparse.Namespace) -> tuple[Sequence[Sample], tuple[str, ...]]:
    """Return the first --images samples of the split `val` of --data, and its class names."""
    dataset = load_dataset(flags.data, splits=("val",))
    return load_split(dataset, "val")[: flags.images], dataset.class_names


def batches_of(samples: Sequence[Sample], flags: argparse.Namespace, stride: int) -> ValLoader:
    """Return the batches that val.py would show a model of this stride."""
    return ValLoader(samples, flags.img, flags.batch, flags.workers, stride)


def case_of(images: int, flags: argparse.Namespace) -> str:
    return f"{count(images, 'image')}, {flags.img} px, batch {flags.batch}"
