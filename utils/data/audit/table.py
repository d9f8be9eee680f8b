"""audit.csv: every finding as a line, which labelling tools and pandas read.

Before: `findings.py`. After: whoever corrects the labels.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from utils.data.audit.findings import KINDS, NOTHING, Findings
from utils.data.loading.reading import pixel_boxes
from utils.data.sources.samples import Sample
from utils.files.atomic import atomic_text_file
from utils.screen.text import printable

BOX = ("xmin", "ymin", "xmax", "ymax")
COLUMNS = (
    "image", "width", "height", "kind", "score", "label", "class", *BOX,
    "suggested_class", "confidence", *(f"suggested_{side}" for side in BOX),
)  # fmt: skip
NO_BOX = ("",) * len(BOX)


def write_table(
    path: Path, findings: Findings, samples: Sequence[Sample], class_names: Sequence[str]
) -> None:
    """Write findings in their order; OSError names the file.

    A cell is empty if there is none: an overlooked object has no label, an unseen label no
    suggestion. Boxes are in pixels of the image.
    """
    with atomic_text_file(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(_rows(findings, samples, class_names))


def _rows(
    findings: Findings, samples: Sequence[Sample], class_names: Sequence[str]
) -> Iterator[tuple[object, ...]]:
    columns = (column.tolist() for column in findings)
    for image_index, kind, score, label, seen_class, confidence, seen in zip(*columns, strict=True):
        sample = samples[image_index]
        labelled: tuple[object, ...] = ("", "", *NO_BOX)
        if label != NOTHING:
            name = printable(class_names[sample.class_index[label]])
            labelled = (label, name, *_pixels(pixel_boxes(sample)[label].tolist()))
        suggested: tuple[object, ...] = ("", "", *NO_BOX)
        if seen_class != NOTHING:
            suggested = (printable(class_names[seen_class]), f"{confidence:.4f}", *_pixels(seen))
        image = printable(str(sample.image_path))
        size = sample.width, sample.height
        yield image, *size, KINDS[kind], f"{score:.4f}", *labelled, *suggested


def _pixels(box_xyxy: Sequence[float]) -> tuple[str, ...]:
    return tuple(f"{side:.2f}" for side in box_xyxy)
