"""compare.html as a browser shows it: the figures, the bars that stand for them, any screen."""

import dataclasses
import html.parser
import io
import json

import pytest

from tests.browser.accessibility import violations
from tests.browser.chromium import chromium
from utils.comparison.document import build_document
from utils.comparison.page_charts import NUM_SIDE_COLOURS, NUM_STAGE_COLOURS
from utils.comparison.plan import Cell
from utils.comparison.report import build_report, outcomes
from utils.comparison.report_files import write_reports
from utils.comparison.report_html import html_page
from utils.comparison.report_markdown import markdown
from utils.comparison.settings import External, Settings
from utils.comparison.terminal import Terminal
from utils.comparison.words import NONE

SETTINGS = Settings(
    data="shapes", cfg="models/yolov5n.yaml", weights="", hyp="", image_size=320, batches=(8, 16),
    epochs=2, warm_up_epochs=1, rounds=2, backends=("torch", "oneflow"), variants=("plain",),
    device="", nproc=2, workers=2, seed=0, timeout_minutes=60, pythons={}, allow_unequal=True,
    externals=(External("<b>mine|", ("tool",)),),
)  # fmt: skip
MACHINE = {
    "processor": "A <i>processor</i>", "cores": 2, "memory_gib": 8.0, "system": "Linux",
    "gpus": [], "variables": {},
}  # fmt: skip
STAGES = {"data_wait": 0.5, "forward": 2.0, "loss": 0.5, "backward": 4.0, "validation": 1.0}
SECONDS = {("torch", 8): 10.0, ("oneflow", 8): 40.0, ("torch", 16): 8.0, ("oneflow", 16): 30.0}
MAPS = ["mAP_0.5", "mAP_0.5:0.95"]
ROWS = "[...document.querySelectorAll('[data-table=times] tbody tr')]"


def make_run(cell, number):
    seconds = SECONDS.get((cell.side, cell.batch), 5.0)
    epochs = [
        {
            "epoch": epoch,
            "counted": epoch > 0,
            "seconds": seconds * (1 + 0.02 * epoch),
            "stages": {name: part * seconds / 10 for name, part in STAGES.items()},
            "train": {"box_loss": 0.1, "obj_loss": 0.02, "cls_loss": 0.03},
            "val": {},
            "metrics": {"mAP_0.5": 0.25, "mAP_0.5:0.95": 0.125},
        }
        for epoch in range(3)
    ]
    drift = 0.5 if (cell.side, cell.batch) == ("oneflow", 16) else 0.0
    losses = [[0.2 / (1 + step), 0.1, 0.05 + drift * step] for step in range(12)]
    run = {
        "cell": cell.name, "round": number, "command": ["python", "train.py", "<script>"],
        "failure": None, "log_tail": [], "process_seconds": 4 * seconds, "epochs": epochs,
        "peak_host_mib": 100.0 * cell.batch, "peak_device_mib": None, "work": None,
    }  # fmt: skip
    if cell.external:
        return {**run, "epochs": []}
    work = {"precision": "float32", "train_images": 400, "tf32": cell.batch == 16 and drift > 0}
    return {**run, "work": work, "losses": losses, "framework": f"{cell.side} 1.0", "device": "cpu"}


@pytest.fixture(scope="module")
def document():
    cells = [
        Cell(side, variant, batch, external)
        for batch in SETTINGS.batches
        for side, variant, external in (
            ("torch", "plain", False),
            ("oneflow", "plain", False),
            ("<b>mine|", "external", True),
        )
    ]
    records = {cell: [make_run(cell, number) for number in (1, 2)] for cell in cells}
    return build_document(SETTINGS, records, MACHINE, "complete", "2030-01-02")


@pytest.fixture(scope="module")
def page_file(document, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "compare.html"
    path.write_text(html_page(document, build_report(document)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def page():
    with chromium() as page:
        yield page


def test_text_from_outside_is_spelt_out_in_every_report(tmp_path):
    hostile = "a\x1b[2J\r\n<script>\u202eb\udce9"
    settings = dataclasses.replace(SETTINGS, data=hostile, cfg=hostile)
    cell = Cell("torch", "plain", 8, False)
    run = {
        **make_run(cell, 1), "failure": hostile, "log_tail": [hostile], "notes": [hostile],
        "command": [hostile], "framework": hostile,
    }  # fmt: skip
    machine = {**MACHINE, "processor": hostile, "gpus": [hostile]}
    for runs in ([run], [{**run, "failure": None}]):
        document = build_document(settings, {cell: runs}, machine, "complete", "2030-01-02")
        report = write_reports(document, tmp_path)
        Terminal(stream := io.StringIO()).conclude(report, tmp_path)
        texts = [(tmp_path / name).read_text("utf-8") for name in ("compare.md", "compare.html")]
        for text in (*texts, stream.getvalue()):
            assert all(line.isprintable() for line in text.split("\n"))
        assert all(r"a\x1b[2J" in text for text in texts)
        assert json.loads((tmp_path / "compare.json").read_text("utf-8")) == json.loads(
            json.dumps(document)
        )


def width(page, cell, chart="epochs"):
    """Return the width of the coloured rectangles of a cell's bar, in pixels."""
    return page.evaluate(
        f"[...document.querySelectorAll('[data-chart={chart}] [data-cell=\"{cell}\"] rect')]"
        ".reduce((sum, rect) => sum + rect.getBoundingClientRect().width, 0)"
    )


def test_the_figures_on_the_page_are_those_of_the_document(page, page_file, document):
    page.open(page_file, 1100)
    shown = page.evaluate(ROWS + ".map(row => [...row.cells].map(cell => cell.innerText))")
    assert [row[:3] for row in shown[:2]] == [
        ["torch plain batch 8", "10.3", "10.2 to 10.4"],
        ["oneflow plain batch 8", "41.2", "40.8 to 41.6"],
    ]
    assert shown[2][0].startswith("<b>mine|") and shown[2][-1] == "not checked for equal work"
    ratios = page.evaluate("[...document.querySelectorAll('.ratio')].map(e => e.innerText)")
    assert ratios == ["4.00 ×", "3.75 ×"]
    backends = [pair for pair in document["pairs"] if pair["checked"]]
    assert [pair["ratio"]["median"] for pair in backends] == pytest.approx(
        [float(ratio.removesuffix(" ×")) for ratio in ratios]
    )
    assert page.evaluate("document.querySelectorAll('b, i, script').length") == 0


def test_bars_are_as_long_as_what_they_stand_for(page, page_file):
    page.open(page_file, 1100)
    longest = width(page, "oneflow-plain-b8")
    assert longest > 300
    for cell, fraction in (("torch-plain-b8", 10 / 40), ("oneflow-plain-b16", 30 / 40)):
        assert width(page, cell) / longest == pytest.approx(fraction, rel=0.01)
    stages = width(page, "torch-plain-b8", "stages") / width(page, "oneflow-plain-b8", "stages")
    assert stages == pytest.approx(10 / 40, rel=0.01)
    lines = page.evaluate(
        "[...document.querySelectorAll('polyline')].map(e => [e.dataset.cell, e.points.length])"
    )
    assert sorted(lines) == sorted(
        [f"{side}-plain-b{batch}", 12] for side in ("torch", "oneflow") for batch in (8, 16)
    )


def test_divergence_and_unequal_work_come_first_and_in_red(page, page_file):
    page.open(page_file, 1100)
    first, second = page.evaluate(
        "[...document.querySelectorAll('[role=alert]')].map(e => [e.innerText, "
        "getComputedStyle(e).color, e.getBoundingClientRect().top])"
    )
    assert first[0].startswith("LOSSES DIVERGE: oneflow-plain-b16")
    assert second[0].startswith("UNEQUAL WORK: oneflow-plain-b16") and "tf32" in second[0]
    assert first[1] == "rgb(179, 22, 27)"
    labels = page.evaluate("[...document.querySelectorAll('.bars .label')].map(e => e.innerText)")
    assert labels.count("oneflow plain unequal work") == 2  # epochs, stages
    assert first[2] < page.evaluate("document.querySelector('h2').getBoundingClientRect().top")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("pixels", [390, 1100])
def test_the_page_fits_its_screen_in_light_and_dark(page, page_file, pixels, dark):
    page.open(page_file, pixels, dark=dark)
    assert page.evaluate("document.scrollingElement.scrollWidth") == pixels
    beyond = page.evaluate(
        "[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll table') && "
        "e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"
    )
    assert beyond == []
    colours = "['color', 'backgroundColor'].map(name => getComputedStyle(document.body)[name])"
    ink, paper = page.evaluate(colours)
    bright = {"ink": sum_of(ink), "paper": sum_of(paper)}
    assert (bright["ink"] > bright["paper"]) is dark
    assert abs(bright["ink"] - bright["paper"]) > 400  # of 765
    size = page.evaluate("parseFloat(getComputedStyle(document.querySelector('td')).fontSize)")
    assert size >= 14


def sum_of(colour):
    return sum(int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(","))


def test_what_was_found_and_how_sure_it_is_comes_first(page, page_file):
    page.open(page_file, 1100)
    first, *others = page.evaluate("[...document.querySelectorAll('h1 ~ p')].map(e => e.innerText)")
    assert first == "This is no result for 1 of 4 comparisons: the work or the losses differ."
    assert others[:2] == [
        "OneFlow took 4.00 times as long as PyTorch.",  # in the one comparison that is sound
        "<b>mine| compared with PyTorch plain: too few pairs to tell.",
    ]
    assert others[2].endswith("in 2 rounds. How busy the machine was is not known.")


def test_too_few_pairs_have_no_figure_above_them(page, page_file):
    page.open(page_file, 1100)
    rows = page.evaluate("[...document.querySelectorAll('.finding')].map(e => [e.innerText, "
                         "!!e.querySelector('.ratio')])")  # fmt: skip
    few = [text for text, has_figure in rows if not has_figure]
    assert len(few) == 2 and all("too few pairs to tell" in text for text in few)
    assert "0.500 to 0.500 in 2 pairs" in few[0]
    large = page.evaluate(
        "[...document.querySelectorAll('.ratio')].filter(e => "
        "parseFloat(getComputedStyle(e).fontSize) > 16).map(e => e.innerText)"
    )
    assert large == ["4.00 ×"]  # that of unequal work is not


def test_backends_options_and_other_trainers_are_apart(page, page_file):
    page.open(page_file, 1100)
    titles = page.evaluate("[...document.querySelectorAll('.finding')].map(e => "
                           "e.closest('section').querySelector('h2').innerText)")  # fmt: skip
    assert titles == ["Backends", "Backends", "Other trainers", "Other trainers"]
    cells = [Cell("torch", variant, 8) for variant in ("plain", "fused", "cache")]
    settings = dataclasses.replace(
        SETTINGS, backends=("torch",), variants=("plain", "fused", "cache"), externals=()
    )
    records = {cell: [make_run(cell, number) for number in (1, 2)] for cell in cells}
    report = build_report(build_document(settings, records, MACHINE, "complete", "2030-01-02"))
    found = {section.name: len(section.findings) for section in report.sections}
    assert (found["backends"], found["options"], found["trainers"]) == (0, 2, 0)
    assert report.summary[0] == (
        "PyTorch with fused and PyTorch with cache compared with plain: no difference beyond noise."
    )


def test_no_colour_means_a_backend_and_a_stage(page, page_file):
    for dark in (False, True):
        page.open(page_file, 1100, dark=dark)
        sides, stages = (
            page.evaluate(
                f"[...Array({size}).keys()].map(i => getComputedStyle(document.documentElement)"
                f".getPropertyValue('--{kind}' + i))"
            )
            for kind, size in (("side", NUM_SIDE_COLOURS), ("stage", NUM_STAGE_COLOURS))
        )
        assert len({*sides, *stages}) == NUM_SIDE_COLOURS + NUM_STAGE_COLOURS
        nearest = min(distance(side, stage) for side in sides for stage in stages)
        assert nearest > 60  # of 441, between red, green and blue


def distance(left, right):
    return sum((a - b) ** 2 for a, b in zip(rgb(left), rgb(right), strict=True)) ** 0.5


def rgb(colour):
    return bytes.fromhex(colour.strip().removeprefix("#"))


def test_columns_without_a_value_are_left_out(document):
    times = next(part for part in build_report(document).sections if part.name == "times").table
    assert "device MiB" not in times.heading and "host MiB" in times.heading
    assert all(len(row) == len(times.heading) for row in times.rows)


@pytest.mark.parametrize("name", ["times", "split"])
def test_on_a_phone_rows_stay_rows_below_one_heading(page, page_file, name):
    page.open(page_file, 390)
    page.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
    table = f"document.querySelector('[data-table={name}]')"
    rows = page.evaluate(f"[...{table}.rows].map(row => [...row.cells].map("
                         "cell => Math.round(cell.getBoundingClientRect().left)))")  # fmt: skip
    assert len({tuple(row) for row in rows}) == 1 and len(set(rows[0])) == len(rows[0]) > 3
    # Moved to its end, the trainers are still in sight.
    page.evaluate(f"{table}.parentElement.scrollLeft = 9999")
    assert page.evaluate(f"{table}.parentElement.scrollLeft") > 0
    heading = f"{table}.tBodies[0].rows[0].cells[0].getBoundingClientRect().left"
    assert page.evaluate(heading) == rows[0][0]


def test_nothing_serious_is_held_against_the_page(page, page_file):
    for pixels, dark in ((390, False), (1100, True)):
        page.open(page_file, pixels, dark=dark)
        assert violations(page) == []


def test_the_page_asks_the_network_for_nothing(page, page_file):
    page.open(page_file, 1100)
    assert page.requested() == [page_file.resolve().as_uri()]
    assert page.complaints() == []


class Checker(html.parser.HTMLParser):
    """Collects the tags that are open at the end, addresses, and the texts between tags."""

    def __init__(self):
        super().__init__()
        self.open, self.addresses, self.texts = [], [], []

    def handle_starttag(self, tag, attributes):
        self.addresses += [value for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_data(self, data):
        self.texts.append(data)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_page_and_tables_are_well_formed_with_names_of_any_kind(document):
    checker = Checker()
    checker.feed(html_page(document, build_report(document)))
    assert checker.open == [] and checker.addresses == []
    rows = [
        line
        for line in markdown(build_report(document)).splitlines()
        if line.startswith("| &lt;b>mine")
    ]
    assert rows and all("mine\\|" in row for row in rows)
    json.dumps(document, allow_nan=False)


def test_text_and_page_show_the_same_rows(document):
    report = build_report(document)
    checker = Checker()
    checker.feed(html_page(document, report))
    text = markdown(report).replace("\\|", "|").replace("&lt;", "<")
    rows = [[cell.strip() for cell in line[1:-1].split(" | ")] for line in text.splitlines()]
    for section in report.sections:
        said = [word for finding in section.findings for word in (*finding.alarms, finding.names)]
        shown = any((section.findings, section.table.rows, section.items, section.code))
        assert (section.title in checker.texts) == (f"## {section.title}\n" in text) == shown
        assert all(word in checker.texts and word in text for word in (*said, *section.code))
        for row in section.table.rows:
            assert rows.count([*row]) == 1 and all(cell in checker.texts for cell in row if cell)


def test_losses_and_figures_are_shown_by_the_names_that_the_task_has(document):
    """Those of detection, then of a classifier that failed to compute one in its last epoch."""
    assert list(outcomes(document).heading)[3:] == ["box loss", "obj loss", "cls loss", *MAPS]
    assert outcomes(document).rows[0][3:] == ("0.10000", "0.02000", "0.03000", "0.25000", "0.12500")
    last = {"train": {"cls_loss": 1.5}, "val": {}, "metrics": {"accuracy_top1": None}}
    cells = [{**document["cells"][0], "last_epoch": last}]
    table = outcomes({**document, "cells": cells})
    assert list(table.heading)[3:] == ["cls loss", "accuracy_top1"]
    assert table.rows[0][3:] == ("1.50000", NONE)
