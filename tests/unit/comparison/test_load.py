"""What other processes take while something is measured, told apart from its own work."""

import os
import subprocess
import sys
import time

import pytest

from utils.comparison import load
from utils.comparison.document import build_document
from utils.comparison.load import LoadWatch, disturbs
from utils.comparison.plan import Cell
from utils.comparison.report import build_report
from utils.comparison.report_html import html_page
from utils.comparison.report_markdown import markdown
from utils.comparison.settings import Settings

WORK = "import time\nend = time.process_time() + 0.6\nwhile time.process_time() < end: pass"


class System:
    """Time, and what others take of it on a machine of four cores, of which two are usable."""

    def __init__(self, monkeypatch, folder):
        self.file, self.ticks, self.now = folder / "stat", 1000, 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(load, "STAT", self.file)
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
        monkeypatch.setattr(load, "_own_seconds", lambda: 5.0)
        self.take(0)

    def take(self, seconds):
        self.ticks += int(seconds * load.TICKS)
        idle = 10**7  # and iowait, guest: no work, or counted as that of a user
        core = f"{self.ticks} 0 0 {idle} {idle} 0 0 0 {idle} 0"
        far = f"{10**6 * self.ticks} 0 0 0 0 0 0 0 0 0"
        self.file.write_text(f"cpu 1 2 3\ncpu0 {core}\ncpu1 0 {core}\ncpu2 {far}\nintr 5\n")


@pytest.fixture
def system(monkeypatch, tmp_path):
    return System(monkeypatch, tmp_path)


def test_only_the_work_of_others_on_the_usable_cores_counts(system):
    watch = LoadWatch()
    system.now += 10
    assert watch.others() == 0
    system.take(6)  # on either core
    assert watch.others() == pytest.approx(1.2)
    system.file.unlink()
    assert watch.others() is None


def test_a_moment_is_too_short_to_tell_what_others_took(system):
    watch = LoadWatch()
    system.now += 0.01
    system.take(0.02)  # a tick or two of each core: 4 cores, where there are 2
    assert watch.others() is None
    system.now += 0.99
    assert watch.others() == pytest.approx(0.04)


def test_own_work_and_that_of_processes_that_run_or_have_ended_is_not_of_others():
    before = load._own_seconds()
    subprocess.run([sys.executable, "-c", WORK], check=True)
    ended = load._own_seconds()
    assert ended - before > 0.5
    with subprocess.Popen([sys.executable, "-c", WORK + "\ninput()"], stdin=subprocess.PIPE) as one:
        deadline = time.monotonic() + 60
        while load._own_seconds() - ended < 0.5:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        one.stdin.close()
        one.wait()
    assert load._own_seconds() - ended > 0.5


def test_a_tenth_of_the_cores_disturbs():
    assert [disturbs(others, 4) for others in (None, 0.0, 0.4, 0.41)] == [False, False, False, True]


SETTINGS = Settings(
    data="shapes", cfg="models/yolov5n.yaml", weights="", hyp="", image_size=320, batches=(8,),
    epochs=1, warm_up_epochs=0, rounds=2, backends=("torch", "oneflow"), variants=("plain",),
    device="", nproc=1, workers=2, seed=0, timeout_minutes=60, pythons={}, allow_unequal=True,
    externals=(),
)  # fmt: skip
MACHINE = {
    "processor": "P", "cores": 4, "memory_gib": 8.0, "system": "Linux", "gpus": [], "variables": {},
}  # fmt: skip


def make_run(cell, number, others):
    return {
        "cell": cell.name, "round": number, "command": ["train.py"], "failure": None,
        "log_tail": [], "process_seconds": 9.0, "peak_host_mib": 1.0, "peak_device_mib": None,
        "epochs": [{"epoch": 0, "counted": True, "seconds": 5.0, "stages": {}}], "losses": [],
        "work": {"precision": "float32", "train_images": 4}, "framework": "1", "device": "cpu",
        "load": {"before": 0.1, "others": others, "after": 1.0},
    }  # fmt: skip


def report_of(busy):
    """The document and report of a comparison in whose second round others took so many cores."""
    cells = [Cell(side, "plain", 8) for side in SETTINGS.backends]
    records = {
        cell: [make_run(cell, 1, 0.0), make_run(cell, 2, busy if cell.side == "torch" else None)]
        for cell in cells
    }
    document = build_document(SETTINGS, records, MACHINE, "complete", "2030-01-02")
    return document, build_report(document)


def test_a_result_taken_under_load_is_marked_in_every_form():
    document, report = report_of(busy=1.5)
    told = "UNDER LOAD: torch-plain-b8: other processes took 1.5 of 4 cores in round 2"
    assert [warning.startswith(told) for warning in report.warnings] == [True]
    times = next(section for section in report.sections if section.name == "times")
    assert [row[-1] for row in times.table.rows] == ["under load", ""]
    (pair,) = next(section for section in report.sections if section.findings).findings
    assert "taken under load" in pair.alarms
    assert report.summary[-1].endswith("They are uncertain: the machine was busy in 1 of 4 runs.")
    loads = next(section for section in report.sections if section.name == "load").table
    assert [(row[3], row[4], row[-1]) for row in loads.rows] == [
        ("1", "0.00", ""), ("2", "1.5", "under load"), ("1", "0.00", ""), ("2", "–", "")
    ]  # fmt: skip
    for text in (markdown(report), html_page(document, report)):
        assert told in text and "taken under load" in text


def test_many_runs_under_load_are_one_line():
    cells = [Cell(side, "plain", 8) for side in SETTINGS.backends]
    records = {cell: [make_run(cell, number, 0.9 + number) for number in (1, 2)] for cell in cells}
    report = build_report(build_document(SETTINGS, records, MACHINE, "complete", "2030-01-02"))
    told = "UNDER LOAD: torch-plain-b8: other processes took 2.9 of 4 cores in round 2, and in 3 "
    assert [warning.startswith(told) for warning in report.warnings] == [True]


def test_an_idle_machine_marks_nothing():
    document, report = report_of(busy=0.3)
    assert report.warnings == [] and "under load" not in markdown(report)
    assert report.summary[-1].endswith("How busy the machine was is not known.")  # in one run
    assert [cell["under_load"] for cell in document["cells"]] == [[], []]
