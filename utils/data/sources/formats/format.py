"""The interface of a label format: how it is recognised, and how it is read.

Before: `table.py` asks each format in turn. After: `sources/annotated_images.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from utils.data.sources.formats.annotations import Annotations


class AnnotatedFolder(NamedTuple):
    """Images, and the file or folder with their annotations."""

    format: str  # its name in `table.py`; "" for annotations that are absent and not needed
    annotations: Path  # a file, or a folder of one file an image
    images: Path  # the folder to which the names of images are relative
    image_list: Path | None = None  # a file that names those of a split; None for all
    subset: str | None = None  # the images that are meant, by the name of their part in the file
    is_shared: bool = False  # images that the annotations leave out may belong to other ones


def _nothing_else(folder: AnnotatedFolder) -> Iterable[Path]:
    return ()


class Format(NamedTuple):
    """One label format."""

    name: str  # as its makers call it: "COCO JSON"
    accepts: Callable[[Path], bool]
    """Whether a file or folder is in this format; it may read the beginning of a file."""
    find: Callable[[Path], Mapping[str, list[AnnotatedFolder]]]
    """The splits of a folder, or of a file with its images beside it: "train", "val", "test", or
    "" where nothing says which images are for what. Empty where there is none of this format."""
    read: Callable[[AnnotatedFolder], Annotations]
    """What is said of the images; DatasetError when the file itself is broken."""
    also_reads: Callable[[AnnotatedFolder], Iterable[Path]] = _nothing_else
    """What `read` opens beside the annotations and the list; a change there is a change of them."""
