"""Screen output of a run: a line per image, a progress bar, and totals."""

import logging
import time

import numpy as np
import pytest

from duet.utils.detect.media.source import Frame
from duet.utils.detect.pipeline.report import FEW, Done, RunReport
from duet.utils.detect.results.result import Result
from tests.coco_reference import detections
from tests.unit.detect.pipeline.test_threads import FakeSource

NAMES = ("person", "car", "dog", "cat", "cup", "bowl", "kite")


def done(source, *classes, frame=None, ids=None):
    number = len(classes)
    found = detections(np.zeros((number, 4)), np.ones(number), classes)
    image = Frame(np.zeros((8, 8, 3), np.uint8), source.name, frame)
    return Done(source, Result(image, found, NAMES, None if ids is None else np.array(ids)))


def broken(source):
    return Done(source, None, "not an image")


@pytest.fixture(autouse=True)
def log_info(caplog):
    caplog.set_level(logging.INFO)


def test_up_to_1000_images_get_a_line_each(caplog):
    sources = [FakeSource(number) for number in range(FEW)]
    report = RunReport(sources, "a")
    with report.progress:
        report.add(done(sources[0], 0, 0, 1))
        report.add(broken(sources[1]))
        report.add(done(sources[2]))
    assert [line.partition(": ")[0] for line in caplog.messages] == [
        f"1/{FEW} image 0", "image 1", f"3/{FEW} image 2"
    ]  # fmt: skip
    assert caplog.messages[0].endswith(": 8x8 2 persons, 1 car, 0.0 ms")
    assert caplog.messages[1] == "image 1: left out: not an image"


def test_over_1000_images_get_a_progress_bar(caplog):
    sources = [FakeSource(number) for number in range(FEW + 1)]
    report = RunReport(sources, "a")
    with report.progress:
        report.add(done(sources[0], 0))
    assert FEW == 1000 and not caplog.messages


@pytest.mark.parametrize(
    ("sources", "line"),
    [
        ([FakeSource(0, "video", 90)], "detecting: 10 of 90 frames, 04:00 left, 0.3 frames/s"),
        ([FakeSource(0, "live", None)], "detecting: 10 frames, 00:30, 0.3 frames/s"),
        ([FakeSource(n, "video", 90) for n in "12"], "detecting: 10 frames, 00:30, 0.3 frames/s"),
    ],
)
def test_log_gets_a_line_every_half_minute(caplog, monkeypatch, sources, line):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr("tqdm.std.time", lambda: now[0])
    report = RunReport(sources, "a")
    with report.progress:
        for _ in range(12):
            now[0] += 3
            report.add(done(sources[0], 0))
    assert caplog.messages == [line]


def test_interrupted_video_is_reported_as_incomplete(caplog):
    begun, other = FakeSource(1, "video", 9), FakeSource(2, "video", 9)
    report = RunReport([begun, other], "a")
    with report.progress:
        report.add(done(begun))
        report.add(broken(begun))
        report.add(broken(other))
    assert caplog.messages == [
        "video 1: ends here and is incomplete: not an image", "video 2: left out: not an image"
    ]  # fmt: skip


def test_totals_report_detections_speed_and_skipped_sources(capsys, monkeypatch):
    now = [50.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    sources = [FakeSource(number) for number in range(3)]
    report = RunReport(sources, "a")
    report.add(done(sources[0], 6, 5, 4, 3, 2, 1, 1, 0))
    report.add(done(sources[1], 6, 6))
    report.add(broken(sources[2]))
    now[0] += 4
    report.print_totals()
    assert capsys.readouterr().out.splitlines() == [
        "found: kite 3, car 2, bowl 1, cat 1, cup 1, 2 other classes 2",
        "2 images in 4.0 s, 0.5 images/s, 2000.0 ms per image",
        "left out or incomplete: 1 of 3 images, named above",
    ]


def test_tracked_objects_are_counted_once_beside_frames():
    first, second = FakeSource(0, "video", 9), FakeSource(1, "video", 9)
    report = RunReport([first, second], "a")
    report.add(done(first, 1, 1, 0, frame=0, ids=(-1, -1, -1)))  # no number in a first frame
    report.add(done(first, 1, 1, frame=1, ids=(1, 2)))
    report.add(done(first, 1, frame=2, ids=(2,)))
    report.add(done(second, 1, 2, frame=0, ids=(-1, -1)))
    report.add(done(second, 1, 2, frame=1, ids=(1, 2)))
    assert report.found_line() == "found: car 3 in 5 frames, dog 1 in 2 frames, person 0 in 1 frame"


def test_single_source_is_shown_without_its_password():
    source = FakeSource(0, "live")
    source.name = "rtsp://camera/"
    assert RunReport([source], "rtsp://me:secret@camera/").sources == "rtsp://camera/"
    assert RunReport([FakeSource(0), FakeSource(1)], "a").sources == "a, 2 images"
    assert RunReport([FakeSource(0), FakeSource(1, "video")], "a").sources == "a, 2 sources"
