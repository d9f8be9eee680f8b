"""Whether a run goes on with the images and labels with which it began.

Before: `utils/data/sources/splits.py` reads them, `resume.py` finds the state. After: `train.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from backend.words import count
from utils.data.sources.labels import Sample
from utils.errors import UserError
from utils.state.checkpoint import Header


def describe_samples(samples: Sequence[Sample]) -> dict[str, Any]:
    """Count and hash samples: names, sizes and labels in order, but not their folders.

    Polygons have a hash of their own, "" without any: that of the boxes is what it always was.
    """
    digest, outlines = hashlib.sha256(), hashlib.sha256()
    for number, sample in enumerate(samples):
        line = f"{sample.image_path.name} {sample.height} {sample.width}\n"
        digest.update(line.encode("utf-8", "surrogateescape"))  # a name may be no UTF-8
        digest.update(sample.class_index.tobytes() + sample.boxes_cxcywh_norm.tobytes())
        if (polygons := sample.polygons_norm) is not None:
            outlines.update(f"{number}\n".encode())
            outlines.update(polygons.starts.tobytes() + polygons.points_xy.tobytes())
    has_polygons = any(sample.polygons_norm is not None for sample in samples)
    return {
        "images": len(samples),
        "sha256": digest.hexdigest(),
        "polygons": outlines.hexdigest() if has_polygons else "",
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
                "with the boxes around them alone; start a new run from its weights"
            )
        raise UserError(
            f"--resume: images or labels of --data, split {split}, are not those that the run "
            f"began with ({count(found['images'], 'image')} now, "
            f"{stored['images']} then); restore them, or start a new run from its weights"
        )
