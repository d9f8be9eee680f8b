"""The report of a comparison, as Markdown and as a page: the same rows, doubts first."""

import base64
import html.parser
import json
import re
from xml.etree import ElementTree

from duet.utils.comparison.document import build_document
from duet.utils.comparison.report import write_reports
from duet.utils.comparison.settings import Cell, Settings

MACHINE = {
    "processor": "A <i>processor</i>", "cores": 4, "memory_gib": 8.0, "system": "Linux",
    "gpus": [], "variables": {},
}  # fmt: skip
STAGES = {"data_wait": 0.5, "forward": 2.0, "loss": 0.5, "backward": 4.0, "validation": 1.0}
SECONDS = {("torch", 8): 10.0, ("oneflow", 8): 40.0, ("torch", 16): 8.0, ("oneflow", 16): 30.0}


def make_run(cell, number, **changes):
    seconds = SECONDS.get((cell.side, cell.batch), 5.0)
    epochs = [
        {
            "epoch": epoch,
            "counted": epoch > 0,
            "seconds": seconds * (1 + 0.02 * epoch),
            "stages": {name: part * seconds / 10 for name, part in STAGES.items()},
            "train": {"box_loss": 0.1, "cls_loss": None},
            "val": {},
            "metrics": {"mAP_0.5": 0.25},
        }
        for epoch in range(3)
    ]
    return {
        "cell": cell.name, "round": number, "command": ["python", "train.py", "<script>"],
        "failure": None, "log_tail": [], "process_seconds": 4 * seconds, "epochs": epochs,
        "peak_host_mib": 100.0 * cell.batch, "peak_device_mib": None,
        "work": {"precision": "float32", "train_images": 400},
        "losses": [[0.2, 0.1, 0.05]] * 12, "framework": f"{cell.side} 1.0", "device": "cpu",
        "load": {"others": 0.3}, **changes,
    }  # fmt: skip


def comparison(backends="torch,oneflow", variants="plain", batch="8,16", changes=None, **settings):
    """A document in which all cells ran twice; `changes` of the runs are by cell and round."""
    chosen = Settings(backends=backends, variants=variants, batch=batch, **settings)
    cells = [
        Cell(side, variant, size)
        for size in chosen.batches
        for variant in chosen.all_variants
        for side in chosen.all_backends
    ]
    records = {
        cell: [make_run(cell, number, **(changes or {}).get((cell.name, number), {}))
               for number in (1, 2)]
        for cell in cells
    }  # fmt: skip
    return build_document(chosen, records, MACHINE, "complete", "2030-01-02")


class Texts(html.parser.HTMLParser):
    """Collects texts, addresses and the tags that are open at the end."""

    def __init__(self, page):
        super().__init__()
        self.open, self.addresses, self.texts = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.addresses += [value for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "br", "img"):
            self.open.append(tag)

    def handle_data(self, data):
        self.texts.append(data)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def write_and_read(document, folder):
    """The report, the rows of compare.md, and compare.html."""
    report = write_reports(document, folder)
    text = (folder / "compare.md").read_text().replace("\\|", "|").replace("&lt;", "<")
    rows = [[cell.strip() for cell in line[1:-1].split(" | ")] for line in text.splitlines()]
    return report, text, rows, Texts((folder / "compare.html").read_text())


def test_text_and_page_show_the_same_rows(tmp_path):
    report, text, rows, page = write_and_read(comparison(), tmp_path)
    assert ["oneflow", "plain", "8", "41.2", "40.8 to 41.6", "10.8", "160", "800"] in rows
    assert ["torch", "plain", "16", "0.10000", "0.25000"] in rows  # a loss that is NaN has none
    assert "4.00 times the time (4.00 to 4.00 in 4 pairs of epochs): slower" in text
    for section in report.sections:
        for line in section.items:
            assert line in page.texts and line in text
        for row in section.table:
            assert [*row] in rows and all(cell in page.texts for cell in row)
    assert page.open == []
    (chart,) = page.addresses  # nothing to fetch: an image that is part of the page
    drawn = base64.b64decode(chart.removeprefix("data:image/svg+xml;base64,"))
    assert ElementTree.fromstring(drawn).tag.endswith("svg")
    assert report.warnings == []
    assert json.loads((tmp_path / "compare.json").read_text()) == comparison()


def test_reasons_to_doubt_results_come_first(tmp_path):
    losses = {"losses": [[0.2, 0.1, 0.05], [0.2, 0.1, None]]}
    changes = {
        ("oneflow-plain-b8", 1): losses,
        ("oneflow-plain-b16", 1): {"work": {"precision": "float32", "train_images": 9}},
        ("torch-plain-b8", 1): {"load": {"others": 1.5}},
        ("torch-plain-b8", 2): {"load": {"others": 2.5}},
    }
    document = comparison(changes=changes, allow_unequal=True)
    report, text, rows, page = write_and_read(document, tmp_path)
    diverge, unequal, load = report.warnings
    assert diverge.startswith("LOSSES DIVERGE: oneflow-plain-b8 against torch-plain-b8: a loss of")
    assert unequal.startswith("UNEQUAL WORK: oneflow-plain-b16 against torch-plain-b16: train_im")
    assert load.startswith("UNDER LOAD: 2 runs; during one of torch-plain-b8 other processes used "
                           "2.5 of 4 cores")  # fmt: skip
    start = page.texts.index("Backends")
    assert all(text.index(x) < text.index("## Backends") for x in report.warnings)
    assert all(page.texts.index(x) < start for x in report.warnings)
    marks = {tuple(row[:3]): row[-1] for row in report.sections[2].table}
    assert marks["torch", "plain", "8"] == "under load"
    assert marks["oneflow", "plain", "16"] == "unequal work"
    assert "taken under load" in report.sections[0].items[0]
    refused = comparison(changes=changes)
    assert [pair["verdict"] for pair in refused["pairs"]] == ["slower", "refused"]
    assert refused["pairs"][1]["ratio"] is None
    assert "refused, the work is not equal" in write_and_read(refused, tmp_path)[1]


def test_options_are_apart_and_few_pairs_have_no_ratio(tmp_path):
    document = comparison("torch", "plain,bf16", "8")
    backends, options, *_ = write_and_read(document, tmp_path)[0].sections
    assert backends.items == []
    assert re.match(
        r"torch-bf16-b8 against torch-plain-b8: 1.00 times the time .*: no difference "
        r"beyond noise; differs on purpose in precision, settings.amp",
        *options.items,
    )
    for cell in document["cells"]:
        cell["runs"].clear()
    few = comparison("torch", "plain,bf16", "8", rounds=1)
    few["pairs"][0]["verdict"] = "too few pairs to tell"
    (item,) = write_and_read(few, tmp_path)[0].sections[1].items
    assert "too few pairs to tell (1.00 to 1.00 in 4 pairs" in item and "times" not in item


def test_foreign_text_is_escaped_in_every_report(tmp_path):
    hostile = "a\x1b[2J\r\n<script>\u202eb\udce9|$x$"
    run = {"failure": hostile, "log_tail": [hostile], "command": [hostile], "framework": hostile}
    for changes in (run, {**run, "failure": None}):
        document = comparison(changes={("torch-plain-b8", 1): changes}, data=hostile)
        document["machine"] |= {"processor": hostile, "gpus": [hostile]}
        write_reports(document, tmp_path)
        text = (tmp_path / "compare.md").read_text("utf-8")
        assert all(line.isprintable() for line in text.split("\n"))
        assert "<script>" not in text and r"a\x1b[2J" in text
