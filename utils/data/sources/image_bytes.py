"""The bytes of a sample's image, from a file of its own or out of a record file.

Before: `labels.py`. After: `utils/data/loading/reading.py`, which decodes them.
"""

from __future__ import annotations

import numpy as np

from utils.data.records.reading import read_record
from utils.data.sources.labels import Sample
from utils.errors import DatasetError


def read_image_bytes(sample: Sample) -> np.ndarray:
    """Return the image's bytes, (num_bytes,) uint8, encoded as on disk.

    Raises:
        DatasetError: the file cannot be read, or the record is damaged.
    """
    if sample.record is not None:
        return read_record(sample.record)
    try:
        # Through NumPy: OpenCV ends the process for a file name that is not UTF-8.
        return np.fromfile(sample.image_path, np.uint8)
    except OSError as error:
        raise DatasetError(f"{sample.image_path}: cannot be read: {error.strerror}") from error
