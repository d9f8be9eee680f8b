"""What is worth doing first, of all that was found.

Before: `checking.py`, `figures.py`. After: the reports end with it.

Each possible step has a cost: the fraction of the data that it concerns, from 0 to 1, times a
weight for how much that data is worth. A validation that cannot be trusted comes before data that
is lost, and that before data that is learned badly.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from backend.words import count
from utils.data.check.checking import Check
from utils.data.check.figures import SMALL_SIDES, Figures
from utils.data.check.kinds import KINDS, Finding
from utils.errors import brief

NUM_STEPS = 3
GOOD_RECALL = 0.98  # of anchors; below it train.py fits new ones
MANY_SMALL = 0.1  # part of the objects; --img is chosen so that fewer are
MAX_IMAGE_SIZE = 1536  # pixels; beyond it tiles cost less
MULTIPLE = 32  # of --img, the coarsest stride
RARE = 100  # times fewer images than the most frequent class
FEW_IMAGES, RARER = 10, 4  # of a class that has so many times fewer
UNLABELLED = 0.2  # part of the images without a label file
TOO_GOOD, LOST, BADLY_LEARNED, WORTH_A_LOOK = 100.0, 10.0, 2.0, 0.5


class Step(NamedTuple):
    """Something worth doing."""

    cost: float
    title: str
    reason: str
    how: str  # a command, or where


def first_steps(check: Check, figures: Figures, command: str) -> list[Step]:
    """Return the steps that are worth most, the first one first; none if all is well.

    Args:
        command: the flags that name the dataset and its images, "--data D".
    """
    makers = (_leaks, _contradictions, _left_out, _missing, _lost_labels, _names, _small, _anchors,
              _classes, _val, _unlabelled, _repeated, _labels)  # fmt: skip
    steps = [step for make in makers for step in make(check, figures, command)]
    return sorted(steps, key=lambda step: -step.cost)[:NUM_STEPS]


def _leaks(check: Check, figures: Figures, command: str) -> Iterator[Step]:
    if same := check.of_kind("same_images"):
        yield Step(
            TOO_GOOD,
            "Give validation images of its own",
            f"{same[0].text}: a model that has only memorized them looks perfect.",
            "name other images, or take `val` out of the dataset's YAML and add --split 0.8",
        )
    found = check.of_kind("leak") + check.of_kind("near_leak")
    if found:
        later = max(sum(figures.num_images[1:]), 1)
        yield Step(
            TOO_GOOD * (0.1 + len(found) / later),
            "Take training images out of validation",
            f"{count(len(found), 'image')} of {later:,} are in an earlier split too, or look like "
            "one there: the figures are too good.",
            f"findings.csv, kinds leak and near_leak: {_removal(check, found, 'one of each two')}; "
            "or put all images into train and add --split 0.8, which keeps copies on one side",
        )


def _contradictions(check: Check, figures: Figures, command: str) -> Iterator[Step]:
    if found := check.of_kind("two_classes"):
        yield Step(
            LOST * (0.1 + len(found) / len(check.images)),
            "Decide of which class an image is",
            f"{count(len(found), 'image')} {'is' if len(found) == 1 else 'are'} in the folder of "
            "another class too, or look like one there.",
            "findings.csv, kind two_classes: delete the one in the wrong folder",
        )


def _removal(check: Check, found: Sequence[Finding], copies: str) -> str:
    """Return how to remove copies; a file that is named twice may be the only one."""
    paths = [
        [os.path.realpath(check.images[number].source.path) for number in (x.image, x.other)]
        for x in found
    ]
    is_one_file = [path == other for path, other in paths]
    if all(is_one_file):
        return "they are files that are named twice; take each out of one list, and delete none"
    exception = "; where both are one file, take it out of one list instead"
    return f"delete {copies}" + (exception if any(is_one_file) else "")


def _left_out(check: Check, figures: Figures, command: str) -> Iterator[Step]:
    missing = len(check.of_kind("missing_image"))
    if number := len(check.left_out) - missing:
        part = number / len(check.images)
        yield Step(
            LOST * part + WORTH_A_LOOK,
            "Repair the images that are left out",
            f"{count(number, 'image')}, {percent(part)} of all, cannot be used"
            f"{', with all objects on them' if check.has_boxes else ''}.",
            f"`python -m utils.data.check {command} --fix FOLDER` corrects labels; findings.csv "
            "has the rest"
            if check.has_boxes
            else "findings.csv says which, and why",
        )


def _missing(check: Check, figures: Figures, command: str) -> Iterator[Step]:
    if number := len(check.of_kind("missing_image")):
        yield Step(
            LOST * number / len(check.images) + WORTH_A_LOOK,
            "Find the missing images",
            f"{count(number, 'image')} of {len(check.images):,} that are named are not there.",
            "findings.csv, kind missing_image",
        )


def _lost_labels(check: Check, figures: Figures, command: str) -> Iterator[Step]:
    if number := len(check.of_kind("lost_labels")):
        yield Step(
            LOST * number / (len(check.images) + number),
            "Find the images of label files",
            f"{count(number, 'label file')} {'has' if number == 1 else 'have'} no image.",
            "findings.csv, kind lost_labels: are the images elsewhere, or do their names differ?",
        )


def _names(check: Check, figures: Figures, command: str) -> Iterator[Step]:
    if found := check.of_kind("similar_names"):
        yield Step(
            LOST * len(found) / len(figures.classes),
            "Join classes that are one",
            f"{found[0].where}: nearly equal names.",
            "give them one number in the labels, and one name in `names`"
            if check.has_boxes
            else "move their images into one folder",
        )


def _small(check: Check, figures: Figures, command: str) -> Iterator[Step]:
    small = figures.small[-1]
    if small < MANY_SMALL or not check.has_boxes:
        return
    wanted = figures.image_size * SMALL_SIDES[-1] / max(figures.tenth_side, 0.1)
    larger = min(MULTIPLE * math.ceil(wanted / MULTIPLE), 2 * figures.image_size, MAX_IMAGE_SIZE)
    tile = "detect.py and val.py find small objects in tiles: --tile"
    how = f"train with --img {larger}; " if larger > figures.image_size else ""
    yield Step(
        BADLY_LEARNED * small,
        "Show small objects larger",
        f"{percent(small)} of the objects have a side below {SMALL_SIDES[-1]} px at --img "
        f"{figures.image_size}, less than a cell of the finest grid.",
        f"{how}{tile} {figures.image_size}",
    )


def _anchors(check: Check, figures: Figures, command: str) -> Iterator[Step]:
    fit = figures.anchors
    if fit is None or not check.has_boxes or fit.best_possible_recall >= GOOD_RECALL:
        return
    yield Step(
        BADLY_LEARNED * (1 - fit.best_possible_recall),
        "Fit anchors",
        f"the anchors reach {percent(fit.best_possible_recall)} of the objects of train at --img "
        f"{figures.image_size}.",
        "train.py fits them itself, without --noautoanchor; to see them: `python -m "
        f"utils.data.anchors {command} --img {figures.image_size}`",
    )


def _classes(check: Check, figures: Figures, command: str) -> Iterator[Step]:
    shown = {found.name: found.num_images[0] for found in figures.classes if found.num_images[0]}
    if not shown:
        return
    rarest, most = min(shown, key=shown.__getitem__), max(shown.values())
    rare = [
        name
        for name, number in shown.items()
        if number * RARE <= most or (number < FEW_IMAGES and number * RARER <= most)
    ]
    if not rare:
        return
    threshold = max(most / RARE, FEW_IMAGES) / max(figures.num_images[0], 1)
    yield Step(
        BADLY_LEARNED * len(rare) / len(figures.classes) / 2,
        "Show rare classes more often",
        f"{count(len(rare), 'class', 'classes')} of {len(shown)} "
        f"{'is' if len(rare) == 1 else 'are'} shown by few images: {brief(rarest)} by "
        f"{count(shown[rarest], 'image')}, another class by {most:,}.",
        f"train with --repeat-factor {min(threshold, 1.0):.2g}, or --image-weights; more images "
        "of them help more",
    )


def _val(check: Check, figures: Figures, command: str) -> Iterator[Step]:
    if len(figures.splits) == 1 and not check.of_kind("same_images"):
        yield Step(
            LOST,
            "Set images apart for validation",
            "the dataset has images for training only.",
            "add --split 0.8",
        )
    if absent := check.of_kind("not_in_val"):
        labelled = "object" if check.has_boxes else "image"
        yield Step(
            BADLY_LEARNED * len(absent) / len(figures.classes) / 4,
            "Let validation show every class",
            f"{count(len(absent), 'class', 'classes')} of {len(figures.classes)} "
            f"{'has' if len(absent) == 1 else 'have'} no {labelled} in val.",
            "move images of them from train to val",
        )


def _unlabelled(check: Check, figures: Figures, command: str) -> Iterator[Step]:
    part = len(check.of_kind("no_label_file")) / max(len(check.images), 1)
    if part > UNLABELLED:
        yield Step(
            LOST * part / 2,
            "Make sure that images without labels show no object",
            f"{percent(part)} of the images have no label file.",
            "labels belong in the folder `labels` beside `images`; findings.csv, kind "
            "no_label_file",
        )


def _repeated(check: Check, figures: Figures, command: str) -> Iterator[Step]:
    found = check.of_kind("repeated_image")
    if number := len(found):
        yield Step(
            WORTH_A_LOOK * number / len(check.images),
            "Remove copies of images",
            f"{count(number, 'image')} {'repeats' if number == 1 else 'repeat'} an earlier one.",
            f"findings.csv, kind repeated_image: {_removal(check, found, 'the copies')}",
        )


def _labels(check: Check, figures: Figures, command: str) -> Iterator[Step]:
    """Yield the step for labels that are dropped or clipped, on images that are used."""
    used = {number for number, image in enumerate(check.images) if image.is_used}
    kinds = {name for name, kind in KINDS.items() if kind.is_problem and kind.is_mended}
    found = [x for x in check.findings if x.kind in kinds and x.image in used]
    if found:
        yield Step(
            WORTH_A_LOOK * len(found) / max(sum(figures.num_objects), 1),
            "Correct labels that are dropped or clipped",
            f"{count(len(found), 'label')} on images that are used, in the lists of problems.",
            f"`python -m utils.data.check {command} --fix FOLDER` does it in a copy",
        )


def percent(part: float) -> str:
    """Return a fraction in percent: "0.4 %", "12 %"; only all is "100 %", only none is "0 %"."""
    value = 100 * part
    if 0 < value < 0.1:
        return "below 0.1 %"
    if 99.9 < value < 100:
        return "over 99.9 %"
    return f"{value:.1f} %" if value < 10 or 99 < value < 100 else f"{value:.0f} %"
