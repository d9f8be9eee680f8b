"""benchmarks/metric.py on a small set: what it prints, and that it compares equal work only."""

import json

import numpy as np
import pytest

from benchmarks import metric


def test_both_sides_are_timed_and_agree(monkeypatch, capsys):
    flags = "metric.py --images 20 --detections 30 --classes 4 --repeats 2"
    monkeypatch.setattr("sys.argv", flags.split())
    metric.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "20 images x 30 detections, 4 classes"
    assert [line.split()[0] for line in lines[2:4]] == [
        "utils.evaluation.coco.metric",
        "pycocotools",
    ]
    assert lines[4].startswith("largest difference")


def test_both_sides_agree_on_masks(monkeypatch, capsys):
    flags = "metric.py --images 6 --detections 20 --classes 2 --repeats 1 --masks"
    monkeypatch.setattr("sys.argv", flags.split())
    metric.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "6 images x 20 detections, 2 classes, masks"
    assert lines[4].startswith("largest difference")
    images = metric.draw_images(6, 20, 2)
    figures = [metric.evaluate(x, 2)[0] for x in (images, list(map(metric.with_masks, images)))]
    assert 0 < figures[1] < 1 and figures[0] != figures[1]


def test_the_table_is_written_in_milliseconds_as_the_others_do(monkeypatch, capsys, tmp_path):
    path = tmp_path / "metric.json"
    flags = f"metric.py --images 20 --detections 30 --classes 4 --repeats 2 --json {path}"
    monkeypatch.setattr("sys.argv", flags.split())
    monkeypatch.setattr(metric, "seconds_of", lambda run, repeats: (run(), [0.25, 0.75][:repeats]))
    metric.main()
    document = json.loads(path.read_text())
    ours, reference = document["timings"]
    assert (ours["name"], reference["name"]) == ("utils.evaluation.coco.metric", "pycocotools")
    assert (ours["median"], ours["fastest"], ours["slowest"], ours["runs"]) == (500, 250, 750, 2)
    assert (ours["ratio"], reference["median"], reference["ratio"]) == (2, 250, 1)
    assert ours["case"] == "20 images x 30 detections, 4 classes"
    assert document["command"] == flags.split() and document["machine"]


def test_without_pycocotools_there_is_no_ratio(monkeypatch, tmp_path):
    path = tmp_path / "metric.json"
    flags = f"metric.py --images 5 --detections 9 --reference-repeats 0 --repeats 1 --json {path}"
    monkeypatch.setattr("sys.argv", flags.split())
    metric.main()
    (ours,) = json.loads(path.read_text())["timings"]
    assert ours["ratio"] is None and ours["fastest"] > 0


def test_figures_that_differ_end_the_comparison():
    images = metric.draw_images(5, 30, 4)
    figures = np.array(metric.evaluate(images, 4))
    figures[0] += 1e-6
    with pytest.raises(SystemExit, match="unequal work"):
        metric.compare(images, 4, 1, figures.tolist())


def test_the_drawn_detections_are_found_in_part():
    figures = metric.evaluate(metric.draw_images(20, 30, 4), 4)
    assert all(0 < figure < 1 for figure in figures)
