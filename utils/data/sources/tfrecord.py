"""TFRecord files, which are not read: what they are recognised by, and what to do instead.

Before: `recognised.py`, `image_files.py`. After: nothing.
"""

from __future__ import annotations

import re
from itertools import chain, islice
from pathlib import Path

from utils.errors import DatasetError

_NAME = re.compile(r".*\.(tfrecords?|tfrec|record)(-\d+-of-\d+)?", re.IGNORECASE)
_MOST_FILES = 10_000  # of a folder that are looked at


def refuse_tfrecords(path: Path) -> None:
    """Raise DatasetError if a path is a TFRecord file, or a folder that holds some."""
    places = chain(path.glob("*"), path.glob("*/*")) if path.is_dir() else [path]
    for file in islice(places, _MOST_FILES):
        if _NAME.fullmatch(file.name) and file.is_file():
            raise DatasetError(
                f"{file}: TFRecord files are not read, because their labels have no common form; "
                "export the dataset from where it comes as COCO JSON, Pascal VOC or YOLO (Roboflow "
                "and CVAT offer these too), or write its images and labels as files"
            )
