"""audit.html: the surest findings of each kind as crops, with what to do about them.

Before: `findings.py`. After: a reader's browser; the labels are corrected where they were made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from backend.words import count
from utils.data.audit.findings import (
    KINDS,
    MISPLACED,
    NOTHING,
    OVERLOOKED,
    SWAPPED,
    UNSEEN,
    Findings,
)
from utils.data.loading.reading import decode, pixel_boxes
from utils.data.sources.samples import Sample
from utils.errors import DatasetError
from utils.page.blocks import Card, Html, bullets, cards, links, paragraph, section, soft
from utils.page.crops import MAX_BYTES, Box, CropSheet, around, crop_grid
from utils.page.document import html_page

LEARNED = (
    "If the model was trained on these labels, it has learned some of their mistakes and doubts "
    "those less."
)
MOST_PAIRS = 8  # of classes, in a line
LABEL, MODEL = (230, 159, 0), (86, 180, 233)  # orange and sky blue: Okabe and Ito 2008


class Words(NamedTuple):
    """The texts of a kind of finding."""

    title: str
    meaning: str
    advice: str


WORDS: Mapping[str, Words] = {
    OVERLOOKED: Words(
        "Objects that nobody labelled",
        "The model sees an object with confidence, and no label explains it. The score is its "
        "confidence.",
        "If the object is there, add the box. If a whole group is not labelled, label it, or agree "
        "that such objects are left out everywhere.",
    ),
    UNSEEN: Words(
        "Labels that the model does not see",
        "The model sees almost nothing inside the label, although it sees other objects of that "
        "size and class. The score says how far its evidence is below the usual.",
        "If nothing is there, remove the label. If something rare is there, keep it: more such "
        "images would help the model.",
    ),
    SWAPPED: Words(
        "Classes that look swapped",
        "The model sees the object of the label, but of another class. The score is the lead of "
        "that class.",
        "If the model is right, change the class. If people differ about it, write down the rule.",
    ),
    MISPLACED: Words(
        "Boxes that are off",
        "The model sees an object of that class, but the box does not fit it. The score is the "
        "lead of the model's box over what fits the label.",
        "Move the box to the edges of the object. If one box is around several objects, give each "
        "object its own box.",
    ),
}  # fmt: skip

QUESTIONS: Mapping[str, str] = {  # below a crop
    OVERLOOKED: "{seen}: add it?",
    UNSEEN: "{labelled}: is it there?",
    SWAPPED: "{labelled}, or {seen}?",
    MISPLACED: "{labelled}: move its box?",
}


class Audit(NamedTuple):
    """Everything that the page shows."""

    data: str
    split: str
    weights: Sequence[str]
    figures: Mapping[str, float]  # how well the model finds the labels, by name
    samples: Sequence[Sample]
    class_names: Sequence[str]
    findings: Findings


def audit_page(audit: Audit, top: int) -> str:
    """Return the page, with crops of the first `top` findings of each kind."""
    by_kind = {kind: audit.findings.of_kind(kind) for kind in KINDS}
    sections = [_section(audit, kind, found, top) for kind, found in by_kind.items()]
    shown = [(kind, WORDS[kind].title) for kind in KINDS if len(by_kind[kind].kind)]
    blocks = [
        *_introduction(audit),
        cards(_card(kind, found) for kind, found in by_kind.items()),
        links(shown),
        *sections,
        section("How many are worth looking at", *_ending(audit, by_kind), anchor="ending"),
    ]
    return html_page(f"Audit of {audit.data}, {audit.split}", blocks)


def _introduction(audit: Audit) -> list[Html]:
    num_labels = sum(len(sample.class_index) for sample in audit.samples)
    figures = ", ".join(f"{name} {value:.3f}" for name, value in audit.figures.items())
    return [
        paragraph(
            f"What {' and '.join(audit.weights)} says about {count(num_labels, 'label')} on "
            f"{count(len(audit.samples), 'image')}, the surest first. Dashed orange is the label, "
            "solid blue what the model sees. A model makes mistakes too: look before you correct."
        ),
        soft(
            f"It finds these labels with {figures}: the higher these figures, the more its "
            "findings can be trusted."
        ),
        soft(LEARNED) if audit.split == "train" else Html(""),
    ]


def _card(kind: str, found: Findings) -> Card:
    images = len(np.unique(found.image_index))
    return Card(
        f"{len(found.kind):,}", WORDS[kind].title, f"on {count(images, 'image')}" if images else ""
    )


def _section(audit: Audit, kind: str, found: Findings, top: int) -> Html:
    number = len(found.kind)
    if not number:
        return Html("")
    words, sheet = WORDS[kind], CropSheet(MAX_BYTES // len(KINDS))
    rows = (found.take(np.array([row])) for row in range(min(number, top)))
    all_crops = (_crop(audit, kind, finding, sheet) for finding in rows)
    crops = list(takewhile(bool, all_crops))  # none is read once the page is full
    rest = number - len(crops)
    return section(
        words.title,
        paragraph(words.meaning),
        paragraph(f"What to do: {words.advice}"),
        _frequent_pairs(audit, found) if kind == SWAPPED else Html(""),
        crop_grid(crops),
        soft(f"{rest:,} more of this kind: see audit.csv.") if rest else Html(""),
        anchor=kind,
    )


def _frequent_pairs(audit: Audit, swapped: Findings) -> Html:
    """Return which class is most often seen as which other one; "" if no two are alike."""
    places = zip(swapped.image_index.tolist(), swapped.label_index.tolist(), strict=True)
    labelled = [audit.samples[image].class_index[label] for image, label in places]
    pairs = Counter(zip(labelled, swapped.class_index.tolist(), strict=True)).most_common(
        MOST_PAIRS
    )
    names = audit.class_names
    told = [f"{names[a]} as {names[b]} ({times})" for (a, b), times in pairs if times > 1]
    return soft(f"Seen most often: {', '.join(told)}.") if told else Html("")


def _crop(audit: Audit, kind: str, finding: Findings, sheet: CropSheet) -> Html:
    """Return the crop of a single finding; "" when the page is full."""
    (image,), (label,), (seen_class,) = (
        column.tolist()
        for column in (finding.image_index, finding.label_index, finding.class_index)
    )
    sample = audit.samples[image]
    boxes, seen, labelled = [], "", ""
    if seen_class != NOTHING:
        seen = audit.class_names[seen_class]
        name = f"{seen} {finding.confidence[0]:.2f}"
        boxes.append(Box(finding.boxes_xyxy[0].tolist(), MODEL, name))
    if label != NOTHING:
        labelled = audit.class_names[sample.class_index[label]]
        name = "" if boxes else labelled  # of two names on one object neither can be read
        # First, so that it lies on the other box: both are seen where they are one.
        boxes.insert(0, Box(pixel_boxes(sample)[label].tolist(), LABEL, name, is_dashed=True))
    question = QUESTIONS[kind].format(seen=seen, labelled=labelled)
    title, details = sample.image_path.name, (f"score {finding.scores[0]:.2f}", question)
    try:
        pixels = decode(sample)[..., ::-1]
    except DatasetError:  # it has changed since it was looked at
        return sheet.without_image(title, details)
    view = around(_hull(boxes), (sample.height, sample.width))
    return sheet.crop(pixels, boxes, title, details, view)


def _hull(boxes: Sequence[Box]) -> list[float]:
    corners = np.array([box.box_xyxy for box in boxes])
    return [*corners[:, :2].min(axis=0).tolist(), *corners[:, 2:].max(axis=0).tolist()]


def _ending(audit: Audit, by_kind: Mapping[str, Findings]) -> list[Html]:
    return [
        paragraph(summary(audit.findings, audit.samples)),
        bullets(
            f"{WORDS[kind].title}: {len(found.kind):,}, from score {found.scores[-1]:.2f} up."
            for kind, found in by_kind.items()
            if len(found.kind)
        ),
        paragraph(
            "audit.csv beside this page has them all, with boxes in pixels and what the model "
            "suggests. Correct the labels, train again, and audit again: a model that learns from "
            "better labels finds more."
        ),
    ]


def summary(findings: Findings, samples: Sequence[Sample]) -> str:
    """Return how many findings there are, in a sentence."""
    num_labels = sum(len(sample.class_index) for sample in samples)
    of_labels = f"{count(num_labels, 'label')} on {count(len(samples), 'image')}"
    number = len(findings.kind)
    if not number:
        return f"Of {of_labels} the model doubts none: nothing is worth looking at."
    images = count(len(np.unique(findings.image_index)), "image")
    verb = "is" if number == 1 else "are"
    return f"Of {of_labels}, {count(number, 'finding')} on {images} {verb} worth looking at."
