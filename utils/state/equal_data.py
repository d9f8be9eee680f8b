"""Whether a run goes on with the images and labels with which it began."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from backend.words import count
from utils.data.sources.samples import Sample, table_of
from utils.errors import UserError
from utils.state.checkpoint import Header


def describe_samples(samples: Sequence[Sample]) -> dict[str, Any]:
    """Count and hash samples: names, sizes and labels in order, but not their folders.

    Polygons have a hash of their own, "" without any: that of the boxes is what it always was.
    """
    table = table_of(samples)
    digest, outlines = hashlib.sha256(), hashlib.sha256()
    # Of numbers and slices alone: a sample of its own for each image would take ten times as long.
    classes = table.class_index.view(np.uint8).data
    boxes = table.boxes_cxcywh_norm.reshape(-1).view(np.uint8).data
    bounds = pairwise(table.starts.tolist())
    for number, (size, name, (first, end)) in enumerate(
        zip(table.sizes.tolist(), table.paths.names, bounds, strict=True)
    ):
        line = f"{name} {size[0]} {size[1]}\n"
        digest.update(line.encode("utf-8", "surrogateescape"))  # a name may be no UTF-8
        digest.update(classes[8 * first : 8 * end])  # int64
        digest.update(boxes[16 * first : 16 * end])  # four float32
        if table.polygons_norm is None:
            continue
        if (polygons := table.polygons_norm.range(first, end)) is not None:
            outlines.update(f"{number}\n".encode())
            outlines.update(polygons.starts.tobytes() + polygons.points_xy.tobytes())
    return {
        "images": len(table),
        "sha256": digest.hexdigest(),
        "polygons": "" if table.polygons_norm is None else outlines.hexdigest(),
    }


def require_equal_data(header: Header, class_names: Sequence[str], data: Mapping[str, Any]) -> None:
    """Raise UserError unless classes, images and labels are those with which the run began."""
    if tuple(class_names) != header.class_names:
        raise UserError("--resume: --data has other classes than the run began with")
    for split, stored in header.progress["data"].items():
        found = data[split]
        if found == stored:
            continue
        if not stored["polygons"] and found == {**stored, "polygons": found["polygons"]}:
            raise UserError(
                f"--resume: the labels of --data, split {split}, are polygons, and the run began "
                "with only the boxes around them; start a new run from its weights"
            )
        raise UserError(
            f"--resume: images or labels of --data, split {split}, are not those that the run "
            f"began with ({count(found['images'], 'image')} now, "
            f"{stored['images']} then); restore them, or start a new run from its weights"
        )
