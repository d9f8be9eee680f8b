"""audit.csv with all findings, and audit.html with crops of the top findings of each kind."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from duet.models.evaluation.audit.findings import (
    KINDS,
    MISPLACED,
    NOTHING,
    OVERLOOKED,
    SWAPPED,
    UNSEEN,
    Finding,
)
from duet.utils.colours import RGB
from duet.utils.data.crops import Crop, crop_grid, shown_image
from duet.utils.data.sources.samples import Sample, pixel_boxes
from duet.utils.files.atomic import atomic_text_file
from duet.utils.files.html import html_page, paragraph, section
from duet.utils.text import count, csv_cell

BOX = ("xmin", "ymin", "xmax", "ymax")
SUGGESTED_BOX = tuple(f"suggested_{side}" for side in BOX)
COLUMNS = (
    "image", "width", "height", "kind", "score", "label", "class", *BOX,
    "suggested_class", "confidence", *SUGGESTED_BOX,
)  # fmt: skip
LABEL, MODEL = (230, 159, 0), (86, 180, 233)  # orange and sky blue: Okabe and Ito 2008


WORDS = {  # title, advice, and the question below a crop
    OVERLOOKED: ("Objects that nobody labelled",
        "If it is there, add the box; label all such objects, or none.", "{seen}: add it?"),
    UNSEEN: ("Labels that the model does not see",
        "If nothing is there, remove the label; if something rare is there, keep it.",
        "{labelled}: is it there?"),
    SWAPPED: ("Classes that look swapped",
        "If the model is right, change the class; if people differ, write down the rule.",
        "{labelled}, or {seen}?"),
    MISPLACED: ("Boxes that are off",
        "Move the box to the edges of the object; give each of several objects its own box.",
        "{labelled}: move its box?"),
}  # fmt: skip


class Audit(NamedTuple):
    """Content of the reports."""

    data: str
    split: str
    weights: Sequence[str]
    metrics: Mapping[str, float]  # the model's metrics on the labels, by name
    samples: Sequence[Sample]
    class_names: Sequence[str]
    findings: Sequence[Finding]

    def of_kind(self, kind: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.kind == kind]

    def labelled(self, found: Finding) -> tuple[str, list[float]] | None:
        """Return class and box of a finding's label; None if there is none."""
        if found.label == NOTHING:
            return None
        sample = self.samples[found.image]
        box: list[float] = pixel_boxes(sample)[found.label].tolist()
        return self.class_names[sample.class_index[found.label]], box


def summary(audit: Audit) -> str:
    """Return the number of findings as a sentence."""
    num_labels = sum(len(sample.class_index) for sample in audit.samples)
    checked = f"Checked {count(num_labels, 'label')} on {count(len(audit.samples), 'image')}"
    if not audit.findings:
        return f"{checked}: no findings."
    images = count(len({finding.image for finding in audit.findings}), "image")
    verb = "is" if len(audit.findings) == 1 else "are"
    return f"{checked}: {count(len(audit.findings), 'finding')} on {images} {verb} worth a look."


def write_table(path: Path, audit: Audit) -> None:
    """Write the findings as CSV.

    Cells are empty where a value does not exist: overlooked objects have no label, unseen labels no
    suggestion. Boxes are in image pixels.
    """
    with atomic_text_file(path) as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        for found in audit.findings:
            sample = audit.samples[found.image]
            row = {"image": csv_cell(str(sample.image_path)), "kind": found.kind,
                   "width": sample.width, "height": sample.height,
                   "score": f"{found.score:.4f}"}  # fmt: skip
            if labelled := audit.labelled(found):
                row |= {"label": found.label, "class": csv_cell(labelled[0])}
                row |= {side: f"{value:.2f}" for side, value in zip(BOX, labelled[1], strict=True)}
            if found.seen_class != NOTHING:
                seen = zip(SUGGESTED_BOX, found.seen_xyxy, strict=True)
                row |= {side: f"{value:.2f}" for side, value in seen}
                row["suggested_class"] = csv_cell(audit.class_names[found.seen_class])
                row["confidence"] = f"{found.confidence:.4f}"
            writer.writerow(row)


def audit_page(audit: Audit, top: int) -> str:
    """Return the page with crops of the first `top` findings of each kind."""
    metrics = ", ".join(f"{name} {value:.3f}" for name, value in audit.metrics.items())
    blocks = [
        paragraph(
            f"{summary(audit)} Orange: the label. Blue: the detection by "
            f"{' and '.join(audit.weights)} ({metrics} on these labels). Models make mistakes too, "
            "and learn those of their training set: look before you correct. audit.csv lists all "
            "findings."
        )
    ]
    for kind in KINDS:
        if found := audit.of_kind(kind):
            title, advice, _ = WORDS[kind]
            crops = crop_grid(_crop(audit, one) for one in found[:top])
            blocks.append(section(f"{title}: {len(found):,}", paragraph(advice), crops))
    return html_page(f"Audit of {audit.data}, {audit.split}", blocks)


def _crop(audit: Audit, found: Finding) -> Crop:
    sample = audit.samples[found.image]
    boxes: list[tuple[Sequence[float], RGB]] = []
    names = {"seen": "", "labelled": ""}
    if found.seen_class != NOTHING:
        names["seen"] = f"{audit.class_names[found.seen_class]} ({found.confidence:.2f})"
        boxes.append((found.seen_xyxy, MODEL))
    if labelled := audit.labelled(found):
        names["labelled"] = labelled[0]
        boxes.append((labelled[1], LABEL))
    corners = np.array([box for box, _ in boxes])
    focus = [*corners[:, :2].min(axis=0).tolist(), *corners[:, 2:].max(axis=0).tolist()]
    detail = f"score {found.score:.2f}; {WORDS[found.kind][2].format(**names)}"
    return Crop(shown_image(sample), sample.image_path.name, detail, boxes, focus)
