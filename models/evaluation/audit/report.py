"""audit.csv with all findings, and audit.html with the surest of each kind as crops."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from models.evaluation.audit.findings import (
    KINDS,
    MISPLACED,
    NOTHING,
    OVERLOOKED,
    SWAPPED,
    UNSEEN,
    Finding,
)
from utils.atomic_files import atomic_text_file
from utils.colours import RGB
from utils.data.image.crops import Crop, crop_grid
from utils.data.loading.reading import decode, pixel_boxes
from utils.data.sources.samples import Sample
from utils.errors import DatasetError
from utils.html import html_page, paragraph, section
from utils.text import count, printable

BOX = ("xmin", "ymin", "xmax", "ymax")
COLUMNS = (
    "image", "width", "height", "kind", "score", "label", "class", *BOX,
    "suggested_class", "confidence", *(f"suggested_{side}" for side in BOX),
)  # fmt: skip
NO_BOX = ("",) * (2 + len(BOX))
LABEL, MODEL = (230, 159, 0), (86, 180, 233)  # orange and sky blue: Okabe and Ito 2008


WORDS = {  # title, advice, and the question below a crop
    OVERLOOKED: ("Objects that nobody labelled",
        "The model sees an object, and no label explains it. If it is there, add the box; if a "
        "whole group is not labelled, label it, or agree that such objects are left out.",
        "{seen}: add it?"),
    UNSEEN: ("Labels that the model does not see",
        "The model sees almost nothing there, although it sees other objects of that size and "
        "class. If nothing is there, remove the label. If something rare is there, keep it.",
        "{labelled}: is it there?"),
    SWAPPED: ("Classes that look swapped",
        "The model sees an object of another class. If it is right, change the class; if people "
        "differ about it, write down the rule.",
        "{labelled}, or {seen}?"),
    MISPLACED: ("Boxes that are off",
        "The model sees an object of that class, but the box does not fit it. Move the box to the "
        "edges of the object; give each of several objects its own box.",
        "{labelled}: move its box?"),
}  # fmt: skip


class Audit(NamedTuple):
    """Everything that the reports show."""

    data: str
    split: str
    weights: Sequence[str]
    figures: Mapping[str, float]  # how well the model finds the labels, by name
    samples: Sequence[Sample]
    class_names: Sequence[str]
    findings: Sequence[Finding]

    def of_kind(self, kind: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.kind == kind]


def summary(audit: Audit) -> str:
    """Return how many findings there are, in a sentence."""
    num_labels = sum(len(sample.class_index) for sample in audit.samples)
    of_labels = f"Of {count(num_labels, 'label')} on {count(len(audit.samples), 'image')}"
    if not audit.findings:
        return f"{of_labels} the model doubts none: nothing is worth looking at."
    images = count(len({finding.image for finding in audit.findings}), "image")
    verb = "is" if len(audit.findings) == 1 else "are"
    return f"{of_labels}, {count(len(audit.findings), 'finding')} on {images} {verb} worth a look."


def write_table(path: Path, audit: Audit) -> None:
    """Write the findings as CSV; OSError names the file.

    A cell is empty if there is none: an overlooked object has no label, an unseen label no
    suggestion. Boxes are in pixels of the image.
    """
    with atomic_text_file(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for found in audit.findings:
            sample = audit.samples[found.image]
            labelled, seen = NO_BOX, NO_BOX
            if found.label != NOTHING:
                name = audit.class_names[sample.class_index[found.label]]
                labelled = str(found.label), printable(name), *_cells(_label_box(audit, found))
            if found.seen_class != NOTHING:
                name = printable(audit.class_names[found.seen_class])
                seen = name, f"{found.confidence:.4f}", *_cells(found.seen_xyxy)
            image = printable(str(sample.image_path)), sample.width, sample.height
            writer.writerow([*image, found.kind, f"{found.score:.4f}", *labelled, *seen])


def _cells(box_xyxy: Sequence[float]) -> tuple[str, ...]:
    return tuple(f"{side:.2f}" for side in box_xyxy)


def _label_box(audit: Audit, found: Finding) -> list[float]:
    box: list[float] = pixel_boxes(audit.samples[found.image])[found.label].tolist()
    return box


def audit_page(audit: Audit, top: int) -> str:
    """Return the page, with crops of the first `top` findings of each kind."""
    figures = ", ".join(f"{name} {value:.3f}" for name, value in audit.figures.items())
    learned = "It may have learned the mistakes of its own training set. "
    blocks = [
        paragraph(
            f"{summary(audit)} Orange is the label, blue what {' and '.join(audit.weights)} sees. "
            f"It finds these labels with {figures}: the higher, the more its findings can be "
            f"trusted. {learned if audit.split == 'train' else ''}A model makes mistakes too: look "
            "before you correct. audit.csv has all findings."
        )
    ]
    for kind in KINDS:
        if found := audit.of_kind(kind):
            title, advice, _ = WORDS[kind]
            crops = crop_grid(_crops(audit, found[:top]))
            blocks.append(section(f"{title}: {len(found):,}", paragraph(advice), crops))
    return html_page(f"Audit of {audit.data}, {audit.split}", blocks)


def _crops(audit: Audit, findings: Sequence[Finding]) -> Iterator[Crop]:
    for found in findings:
        sample = audit.samples[found.image]
        boxes: list[tuple[Sequence[float], RGB]] = []
        names = {"seen": "", "labelled": ""}
        if found.seen_class != NOTHING:
            names["seen"] = f"{audit.class_names[found.seen_class]} ({found.confidence:.2f})"
            boxes.append((found.seen_xyxy, MODEL))
        if found.label != NOTHING:
            names["labelled"] = audit.class_names[sample.class_index[found.label]]
            boxes.append((_label_box(audit, found), LABEL))
        corners = np.array([box for box, _ in boxes])
        focus = [*corners[:, :2].min(axis=0).tolist(), *corners[:, 2:].max(axis=0).tolist()]
        detail = f"score {found.score:.2f}; {WORDS[found.kind][2].format(**names)}"
        try:
            image = decode(sample)[..., ::-1]
        except DatasetError:  # it has changed since it was looked at
            image = None
        yield Crop(image, sample.image_path.name, detail, boxes, focus)
