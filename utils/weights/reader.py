"""A path -> the contents of the foreign weights file there, told apart by its bytes.

Before: `utils/weights/load.py::load_weights`. After: `yolov5.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from utils.errors import UserError
from utils.files.regular import open_regular, read_bytes
from utils.state.checkpoint import MAX_WEIGHTS_BYTES
from utils.weights.contents import Contents
from utils.weights.members import FolderMembers, Members, open_zip
from utils.weights.oneflow_folder import PICKLE_NAME, read_oneflow
from utils.weights.torch_archive import read_torch_legacy, read_torch_zip

ZIP_START = b"PK\x03\x04"
PICKLE_START = b"\x80"


@contextmanager
def open_foreign(path: Path) -> Iterator[Contents]:
    """Yield the records of a file or directory; arrays can be read inside the with block only.

    Raises:
        UserError: of no known format, damaged, or asking for what is not accepted.
    """
    if path.is_dir():
        yield read_oneflow(FolderMembers(path))
        return
    with open_regular(path, MAX_WEIGHTS_BYTES) as file:
        start = file.read(len(ZIP_START))
    if start == ZIP_START:
        with open_zip(path) as members:
            yield _read_zip(members)
    elif start.startswith(PICKLE_START):
        yield read_torch_legacy(read_bytes(path, MAX_WEIGHTS_BYTES))
    else:
        raise UserError(
            "no known format; accepted: .safetensors of a training run, .pt of the public "
            "YOLOv5, a directory of oneflow.save or a zip of one"
        )


def _read_zip(members: Members) -> Contents:
    if any(name.split("/")[-1] == PICKLE_NAME for name in members.names()):
        return read_oneflow(members)
    return read_torch_zip(members)
