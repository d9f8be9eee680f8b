"""check.html: what was found, with crops, and the figures of the dataset.

Before: `checking.py`, `figures.py`, `advice.py`. After: a reader's browser.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from backend.words import count
from utils.data.check.advice import Step
from utils.data.check.checking import Check
from utils.data.check.examples import class_crops, finding_crops
from utils.data.check.figures import Figures
from utils.data.check.kinds import KINDS, Finding
from utils.data.check.tables import (
    Table,
    anchor_text,
    class_table,
    shortened,
    size_steps,
    small_text,
    split_table,
    spread_table,
)
from utils.page.blocks import (
    Bar,
    Card,
    Html,
    bars,
    bullets,
    cards,
    folded,
    joined,
    links,
    paragraph,
    remedy,
    section,
    soft,
    subsection,
    table,
)
from utils.page.crops import CropSheet, crop_grid
from utils.page.document import html_page

FEW_CLASSES = 12  # each begins a row of crops
MOST_CLASSES = 2000  # in the table: a page of more is slow
UNFOLDED = 8  # lines of a list that are shown at once
LISTED = 200  # findings of a kind on the page; findings.csv has all


def check_page(check: Check, figures: Figures, steps: Sequence[Step]) -> str:
    """Return the page; crops are made up to a bound, those of problems first."""
    sheet = CropSheet()
    problems = list(_kinds(check, sheet, problems=True))
    notes = list(_kinds(check, sheet, problems=False))
    classes = list(_classes(check, figures, sheet))
    blocks = [
        soft(_facts(check, figures)),
        cards(_cards(check, figures)),
        links([("first", "What to do first"), ("problems", "Problems"), ("notes", "Worth knowing"),
               ("sizes", "Sizes"), ("classes", "Classes")]),
        section("What to do first", *_steps(steps), anchor="first"),
        section("Problems", *(problems or [paragraph("None was found.")]), anchor="problems"),
        section("Worth knowing", *(notes or [paragraph("Nothing.")]), anchor="notes"),
        section("Sizes", *_sizes(check, figures), anchor="sizes"),
        section("Classes", *classes, anchor="classes"),
    ]  # fmt: skip
    if sheet.left_out:
        blocks.append(soft(f"{count(sheet.left_out, 'crop')} did not fit on this page."))
    return html_page(f"Check of {check.dataset.name}", blocks)


def _facts(check: Check, figures: Figures) -> str:
    images = ", ".join(
        f"{count(number, 'image')} in {split}"
        for split, number in zip(figures.splits, figures.num_images, strict=True)
    )
    classes = count(len(figures.classes), "class", "classes")
    return f"{images}; {classes}; sizes are those at --img {figures.image_size}"


def _cards(check: Check, figures: Figures) -> Iterator[Card]:
    found = [finding for finding in check.findings if KINDS[finding.kind].is_problem]
    kinds = count(len({finding.kind for finding in found}), "kind")
    of_kinds = f"of {kinds}" if found else "nothing to correct"
    yield Card(f"{len(found):,}", "problem" if len(found) == 1 else "problems", of_kinds)
    left_out = f"{len(check.left_out):,}"
    yield Card(left_out, "left out of training", f"of {count(len(check.images), 'image')}")
    if check.has_boxes:
        small = small_text(figures).partition(": ")[2]
        yield Card(f"{sum(figures.num_objects):,}", "objects", small)


def _steps(steps: Sequence[Step]) -> Iterator[Html]:
    if not steps:
        yield paragraph("Nothing: the dataset can be trained on as it is.")
    for number, step in enumerate(steps, start=1):
        yield subsection(f"{number}. {step.title}", paragraph(step.reason), remedy(step.how))


def _kinds(check: Check, sheet: CropSheet, problems: bool) -> Iterator[Html]:
    for name, kind in KINDS.items():
        found = check.of_kind(name)
        if found and kind.is_problem == problems:
            crops = [crop for crop in finding_crops(check, found, sheet) if crop]
            shown = len(crops) // 2 if found[0].other >= 0 else len(crops)
            yield subsection(
                f"{kind.title}: {len(found):,}",
                paragraph(f"{kind.meaning} {kind.remedy}"),
                crop_grid(crops, in_pairs=found[0].other >= 0),
                _listed(check, found) if shown < len(found) else Html(""),
            )


def _listed(check: Check, found: Sequence[Finding]) -> Html:
    lines = bullets(shortened(f"{x.where}: {x.text}", check) for x in found[:LISTED])
    more = f", the first {LISTED} here, all in findings.csv" if len(found) > LISTED else ""
    if len(found) <= UNFOLDED:
        return lines
    return folded(f"list of {len(found):,}{more}", lines)


def _sizes(check: Check, figures: Figures) -> Iterator[Html]:
    if check.has_boxes and figures.object_spreads:
        yield paragraph(f"{small_text(figures)}.")
        yield bars(Bar(name, part, f"{100 * part:.1f} %") for name, part in size_steps(figures))
        yield subsection("Objects, in pixels", _table(spread_table(figures.object_spreads)))
    if figures.image_spreads:
        yield subsection("Images, in pixels", _table(spread_table(figures.image_spreads)))
    if check.has_boxes:
        yield subsection("Anchors", paragraph(f"{anchor_text(figures)}."))


def _classes(check: Check, figures: Figures, sheet: CropSheet) -> Iterator[Html]:
    yield _table(split_table(check, figures), "splits")
    classes = class_table(check, figures)
    more = f", the first {MOST_CLASSES:,}" if len(classes.rows) > MOST_CLASSES else ""
    shown = Table(classes.heading, classes.rows[:MOST_CLASSES])
    figures_of_classes = _table(shown, "classes")
    if len(classes.rows) <= FEW_CLASSES:
        yield figures_of_classes
    else:
        yield folded(f"classes in figures{more}", figures_of_classes)
    rows = [joined(crop for crop in crops if crop) for crops in class_crops(check, sheet)]
    if len(rows) > FEW_CLASSES:
        yield crop_grid(rows)
    else:
        yield from map(crop_grid, ([row] for row in rows))


def _table(shown: Table, name: str = "") -> Html:
    return table(shown.heading, shown.rows, name)
