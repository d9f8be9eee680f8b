"""The report: lines of text, findings.csv, and a page with a grid of crops per kind."""

import csv
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from duet.utils.colours import RGB, class_colour
from duet.utils.data.check.checking import Check
from duet.utils.data.check.inspection import KINDS, CheckedImage, Finding, count_objects
from duet.utils.data.crops import Crop, crop_grid, shown_image
from duet.utils.data.sources.formats.format import AnnotatedFolder
from duet.utils.data.sources.samples import Sample, pixel_boxes
from duet.utils.files.atomic import atomic_text_file
from duet.utils.files.html import Html, bullets, html_page, paragraph, section, table
from duet.utils.strengths import FEW_IMAGES
from duet.utils.text import count, csv_cell, printable

SMALL_SIDES = (3, 8)  # pixels at --img: hardly to be seen, and hard to find at a stride of 8
LONGEST_NAME = 60  # characters of a class
EXAMPLES = 3  # findings of a kind in the lines
MOST_CLASSES = 20  # in the text; the page has more
CROPS, PAIRS = 10, 5  # per grid: findings, or copies with their originals
LISTED = 200  # findings of a kind on the page; findings.csv has all
COLUMNS = ("kind", "problem", "split", "where", "what")
# Advice where the labels are annotations in another format than YOLO's.
OF_ANNOTATIONS = {
    "broken_label": "Training leaves the image out: correct its annotation, or export it again",
    "out_of_range": "Training leaves the image out: correct the box, or find the image that was "
    "labelled; --fix clips what overlaps the image",
    "overshoot": "They are clipped",
}
FAULTY: RGB = (230, 40, 40)


Table = tuple[list[str], list[list[str]]]  # a heading, and rows of as many cells


def split_table(check: Check) -> Table:
    """Return what each split has; its objects only if they have boxes."""
    heading, rows = ["split", "images", "left out", "without objects", "objects"], []
    for split in check.splits:
        images = [image for image in check.images if image.split == split]
        num_objects = [len(image.class_index) for image in images if image.is_used]
        left_out = len(images) - len(num_objects)
        cells = len(images), left_out, num_objects.count(0), sum(num_objects)
        rows.append([split, *(f"{cell:,}" for cell in cells)])
    columns = 3 if check.dataset.is_of_folders else len(heading)
    return heading[:columns], [row[:columns] for row in rows]


def class_table(check: Check) -> Table:
    """Return the images of each class in each split, and its objects if they have boxes."""
    names = check.dataset.class_names
    shown = [x._replace(class_index=np.unique(x.class_index)) for x in check.images]
    heading = ["class"]
    columns = [[f"{number} {name[:LONGEST_NAME]}" for number, name in enumerate(names)]]
    for split in check.splits:
        for what, images in (("images", shown), ("objects", check.images)):
            if what == "images" or not check.dataset.is_of_folders:
                heading.append(f"{what} in {split}")
                columns.append([f"{n:,}" for n in count_objects(images, split, len(names))])
    return heading, list(map(list, zip(*columns, strict=True)))


def small_text(check: Check, image_size: int) -> str:
    """Return how many objects are small at --img, in words; "" without boxes."""
    shorter = [np.zeros(0)]
    for image in check.images:
        if image.size:
            sides_wh = np.array(image.size[::-1]) * (image_size / max(image.size))
            shorter.append((image.boxes_cxcywh_norm[:, 2:] * sides_wh).min(axis=1, initial=np.inf))
    sides = np.concatenate(shorter)
    if check.dataset.is_of_folders or not len(sides):
        return ""
    parts = (f"{100 * np.mean(sides < side):.1f} % below {side} px" for side in SMALL_SIDES)
    return f"Shorter side of the objects at --img {image_size}: {', '.join(parts)}"


def recipe_text(check: Check) -> str:
    """Return which recipe suits so few training images; "" for many images, or without boxes."""
    number = sum(image.split == "train" and image.is_used for image in check.images)
    if check.dataset.is_of_folders or not 0 < number <= FEW_IMAGES:
        return ""
    return f"{count(number, 'image')} for training: try --hyp small"


def summary_lines(check: Check, image_size: int) -> Iterator[str]:
    """Yield the summary; texts of files in it are not yet printable."""
    yield from _lines_of(split_table(check))
    yield ""
    heading, rows = class_table(check)
    yield from _lines_of((heading, rows[:MOST_CLASSES]))
    if len(rows) > MOST_CLASSES:
        yield f"... and {len(rows) - MOST_CLASSES:,} more, on the page"
    if small := small_text(check, image_size):
        yield from ("", small)
    if recipe := recipe_text(check):
        yield from ("", recipe)
    for title, is_problem in (("problems", True), ("worth knowing", False)):
        found = found_kinds(check, is_problem)
        yield from ("", title if found else f"{title}: none")
        for kind, findings in found.items():
            yield f"    {KINDS[kind].title}: {len(findings):,}"
            yield from (f"         {line(check, finding)}" for finding in findings[:EXAMPLES])
            if len(findings) > EXAMPLES:
                yield f"         ... and {len(findings) - EXAMPLES:,} more"
            yield f"         -> {advice(check, kind)}"


def found_kinds(check: Check, is_problem: bool) -> dict[str, list[Finding]]:
    kinds = (name for name, kind in KINDS.items() if kind.is_problem == is_problem)
    return {name: found for name in kinds if (found := check.of_kind(name))}


def advice(check: Check, kind: str) -> str:
    """Return the next step for a kind of finding, in the words of the dataset's format."""
    is_annotated = all(isinstance(entry, AnnotatedFolder) for entry in check.dataset.entries)
    return OF_ANNOTATIONS.get(kind, KINDS[kind].advice) if is_annotated else KINDS[kind].advice


def line(check: Check, finding: Finding) -> str:
    """Return a finding as a line, with the files of a dataset named from its folder on."""
    return f"{finding.where}: {finding.text}".replace(f"{check.dataset.root}{os.sep}", "")


def _lines_of(shown: Table) -> Iterator[str]:
    heading, cells = shown
    rows = [heading, *([printable(cell) for cell in row] for row in cells)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        aligned = map(str.rjust, others, widths[1:])
        yield "  ".join([first.ljust(widths[0]), *aligned]).rstrip()


def write_findings(path: Path, findings: Sequence[Finding]) -> None:
    with atomic_text_file(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for found in findings:
            problem = "yes" if KINDS[found.kind].is_problem else "no"
            row = found.kind, problem, found.split, found.where, found.text
            writer.writerow(map(csv_cell, row))


def check_page(check: Check, image_size: int) -> str:
    blocks = [table(*split_table(check)), paragraph(small_text(check, image_size))]
    for title, is_problem in (("Problems", True), ("Worth knowing", False)):
        kinds = [_kind(check, *item) for item in found_kinds(check, is_problem).items()]
        blocks.append(section(title, *(kinds or [paragraph("None was found.")])))
    blocks.append(section("Classes", table(*class_table(check))))
    return html_page(f"Check of {check.dataset.name}", blocks)


def _kind(check: Check, kind: str, found: Sequence[Finding]) -> Html:
    shown = found[: PAIRS if found[0].other >= 0 else CROPS]
    crops = []
    for one in shown:
        if one.image >= 0:
            image = check.images[one.image]
            crops.append(_crop(check, image, line(check, one), one.box_xyxy_norm))
        if one.other >= 0:  # the image that it copies
            other = check.images[one.other]
            crops.append(_crop(check, other, f"in {other.split}", ()))
    is_all_shown = crops and len(shown) == len(found)
    more = f"The first {LISTED}; findings.csv has all." if len(found) > LISTED else ""
    return section(
        f"{KINDS[kind].title}: {len(found):,}",
        paragraph(advice(check, kind)),
        crop_grid(crops),
        Html("") if is_all_shown else bullets(line(check, x) for x in found[:LISTED]),
        paragraph(more),
        level=3,
    )


def _crop(check: Check, image: CheckedImage, detail: str, faulty: Sequence[float]) -> Crop:
    title = str(image.source.path).removeprefix(f"{check.dataset.root}{os.sep}")
    detail = detail.removeprefix(f"{title}: ")
    if image.size is None:
        return Crop(None, title, detail)
    labels = image.class_index, image.boxes_cxcywh_norm
    sample = Sample(image.source.path, *image.size, *labels, image.source.place)
    pixels = shown_image(sample)
    if pixels is None:
        return Crop(None, title, detail)
    colours = [class_colour(index) for index in image.class_index.tolist()]
    shown = list(zip(pixel_boxes(sample).tolist(), colours, strict=True))
    left, top, right, bottom = faulty or (np.nan,) * 4
    focus = None
    if left < 1 and top < 1 and right > 0 and bottom > 0:  # neither empty nor NaN
        focus = (np.array(faulty) * np.tile(pixels.shape[1::-1], 2)).tolist()
        shown.append((focus, FAULTY))
    return Crop(pixels, title, detail, shown, focus)
