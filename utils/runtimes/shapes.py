"""Whether a file takes and returns what its metadata says, by what its runtime knows of both."""

from __future__ import annotations

from collections.abc import Sequence, Sized

import numpy as np

from backend.words import count
from utils.errors import UserError
from utils.runtimes.metadata import DETECTIONS, FLOATS, Metadata

Shape = Sequence[int | None]  # None: free, or not known
HEAD = "Detect"  # the rows of other heads have other columns


def require_one_of_each(inputs: Sized, outputs: Sized) -> None:
    """Raise UserError unless a file has one input and one output, as those of export.py have."""
    if (len(inputs), len(outputs)) != (1, 1):
        raise UserError(
            f"it has {count(len(inputs), 'input')} and {count(len(outputs), 'output')}, where a "
            "detector has one of each; export it with export.py"
        )


def require_types(metadata: Metadata, taken: np.dtype, returned: np.dtype) -> None:
    """Raise UserError if images would lose values as the type that a file takes, or rows do."""
    whole = metadata.image != FLOATS
    if taken != np.uint8 if whole else taken.kind != "f":
        expected = "uint8" if whole else "float32 in 0 to 1"
        raise UserError(
            f"it takes images of type {taken}, and its metadata says {expected}; export it with "
            "export.py"
        )
    if returned.kind != "f":
        raise UserError(
            f"it returns numbers of type {returned}, where float32 is needed; export it with "
            "export.py"
        )


def require_shapes(metadata: Metadata, taken: Shape, returned: Shape) -> None:
    """Raise UserError if what a file takes or returns is not what its metadata says."""
    for verb, found, expected in (
        ("takes", taken, shape_taken(metadata)),
        ("returns", returned, shape_returned(metadata)),
    ):
        if not _agree(found, expected):
            raise UserError(
                f"it {verb} {_text(found)}, and its metadata says {_text(expected)}: they belong "
                "to two models; export it with export.py"
            )


def shape_taken(metadata: Metadata) -> Shape:
    if metadata.image != FLOATS:
        return None, None, 3
    if metadata.dynamic:
        return None, 3, None, None
    return metadata.batch_size, 3, *metadata.image_size


def shape_returned(metadata: Metadata) -> Shape:
    batch = None if metadata.dynamic else metadata.batch_size
    if metadata.output == DETECTIONS:
        return batch, None, 6
    return batch, None, 5 + len(metadata.class_names) if metadata.head == HEAD else None


def _agree(found: Shape, expected: Shape) -> bool:
    return len(found) == len(expected) and all(
        None in pair or pair[0] == pair[1] for pair in zip(found, expected, strict=True)
    )


def _text(shape: Shape) -> str:
    return "(" + ", ".join("any" if size is None else str(size) for size in shape) + ")"
