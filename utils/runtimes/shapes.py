"""Whether a file takes and returns what its metadata says, by what its runtime knows of both."""

from __future__ import annotations

from collections.abc import Sequence, Sized

import numpy as np

from backend.words import count
from utils.errors import UserError
from utils.runtimes.metadata import MASK_ROWS, MASKS, PIXELS, Metadata
from utils.runtimes.outputs import BOX_COLUMNS, KINDS, Shape, shapes_returned


def require_numbers(metadata: Metadata, inputs: Sized, outputs: Sized) -> None:
    """Raise UserError unless a file has one input, and the outputs that its metadata names."""
    needed = len(KINDS[metadata.output].outputs)
    if (len(inputs), len(outputs)) != (1, needed):
        raise UserError(
            f"it has {count(len(inputs), 'input')} and {count(len(outputs), 'output')}, but its "
            f"metadata says one and {needed}; export it with export.py"
        )


def require_types(metadata: Metadata, taken: np.dtype, *returned: np.dtype) -> None:
    """Raise UserError if images or results would lose precision in the types of a file."""
    whole = metadata.image == PIXELS
    if taken != np.uint8 if whole else taken.kind != "f":
        expected = "uint8" if whole else "float32 in 0 to 1"
        raise UserError(
            f"it takes images of type {taken}, and its metadata says {expected}; export it with "
            "export.py"
        )
    for kind in returned:
        if kind.kind != "f":
            raise UserError(
                f"it returns numbers of type {kind}, but float32 is needed; export it with "
                "export.py"
            )


def require_shapes(metadata: Metadata, taken: Shape, *returned: Shape) -> None:
    """Raise UserError if what a file takes or returns is not what its metadata says."""
    expected = shape_taken(metadata)
    fault = fault_of_returned(metadata, returned)
    if not _agree(taken, expected):
        fault = f"it takes {_text(taken)}, and its metadata says {_text(expected)}"
    if fault:
        raise UserError(f"{fault}: they belong to two models; export it with export.py")


def fault_of_returned(
    metadata: Metadata, returned: Sequence[Shape], batch_size: int | None = None
) -> str:
    """Return what is wrong with the shapes that a file returns; "" if nothing is.

    batch_size: of a call; None: as the metadata says.
    """
    expected = shapes_returned(metadata)
    if len(returned) != len(expected):
        return f"it returns {count(len(returned), 'output')}, and its metadata says {len(expected)}"
    for found, (batch, *sides) in zip(returned, expected, strict=True):
        wanted = (batch if batch_size is None else batch_size, *sides)
        if not _agree(found, wanted):
            return f"it returns {_text(found)}, and its metadata says {_text(wanted)}"
    if metadata.output in (MASK_ROWS, MASKS) and 0 in returned[1][-2:]:
        return f"it returns {_text(returned[1])}, which has no room for a mask"
    if metadata.output == MASK_ROWS:
        return _fault_of_coefficients(len(metadata.class_names), *returned)
    if metadata.output == MASKS and not _agree(returned[0][1:2], returned[1][1:2]):
        return f"it returns {_text(returned[0])} with masks {_text(returned[1])}"
    return ""


def _fault_of_coefficients(classes: int, rows: Shape, prototypes: Shape) -> str:
    """Return what is wrong unless rows have a coefficient for each prototype."""
    columns, number = rows[2], prototypes[1]
    if number == 0:
        return f"it returns {_text(prototypes)}, and no mask can be made of 0 prototypes"
    if columns is None or number is None or columns == BOX_COLUMNS + classes + number:
        return ""
    return (
        f"it returns rows of {columns} numbers, but {count(classes, 'class', 'classes')} and "
        f"{count(number, 'prototype')} need {BOX_COLUMNS + classes + number}"
    )


def shape_taken(metadata: Metadata) -> Shape:
    if metadata.image == PIXELS:
        return None, None, 3
    if metadata.dynamic:
        return None, 3, None, None
    return metadata.batch_size, 3, *metadata.image_size


def _agree(found: Shape, expected: Shape) -> bool:
    return len(found) == len(expected) and all(
        None in pair or pair[0] == pair[1] for pair in zip(found, expected, strict=True)
    )


def _text(shape: Shape) -> str:
    return "(" + ", ".join("any" if size is None else str(size) for size in shape) + ")"
