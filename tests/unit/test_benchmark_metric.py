"""benchmarks/metric.py on a small set: what it prints, and that it compares equal work only."""

import numpy as np
import pytest

from benchmarks import metric


def test_both_sides_are_timed_and_agree(monkeypatch, capsys):
    flags = "metric.py --images 20 --detections 30 --classes 4 --repeats 2"
    monkeypatch.setattr("sys.argv", flags.split())
    metric.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "20 images x 30 detections, 4 classes"
    assert [line.split()[0] for line in lines[2:4]] == ["utils.metrics", "pycocotools"]
    assert lines[4].startswith("largest difference")


def test_figures_that_differ_end_the_comparison():
    images = metric.draw_images(5, 30, 4)
    figures = np.array(metric.evaluate(images, 4))
    figures[0] += 1e-6
    with pytest.raises(SystemExit, match="unequal work"):
        metric.compare(images, 4, 1, figures.tolist())


def test_the_drawn_detections_are_found_in_part():
    figures = metric.evaluate(metric.draw_images(20, 30, 4), 4)
    assert all(0 < figure < 1 for figure in figures)
