"""`plots/confusion.py`: the cells hold what they should, and say it."""

import numpy as np

from tests.unit.report.plots.drawn import (
    kept_figures,
    texts_of,
)
from utils.evaluation.coco.confusion import Confusion
from utils.report.plots import confusion
from utils.report.plots.confusion import plot_confusion


def of_matrix(matrix):
    matrix = np.array(matrix)
    predicted, true = np.nonzero(matrix)
    return Confusion(len(matrix) - 1, predicted, true, matrix[predicted, true])


def test_each_column_is_in_parts_of_its_sum_and_written_where_it_is_not_zero(monkeypatch, tmp_path):
    kept = kept_figures(monkeypatch, confusion)
    plot_confusion(of_matrix([[6, 0, 3], [2, 0, 9], [2, 0, 0]]), ["a", "b"], tmp_path / "m.png")
    (axes,) = kept["m.png"].axes
    wanted = [[0.6, 0, 0.25], [0.2, 0, 0.75], [0.2, 0, 0]]  # nothing is labelled b
    np.testing.assert_allclose(axes.get_images()[0].get_array(), wanted)
    written = {text.get_position(): text.get_text() for text in axes.texts}
    assert written == {
        (0, 0): "0.60", (0, 1): "0.20", (0, 2): "0.20", (2, 0): "0.25", (2, 1): "0.75",
    }  # fmt: skip
    assert texts_of(axes.get_xticklabels()) == ["a", "b", "background"]
    assert texts_of(axes.get_yticklabels()) == ["a", "b", "background"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("true class", "predicted class")


def test_of_images_no_cell_is_for_the_background(monkeypatch, tmp_path):
    kept = kept_figures(monkeypatch, confusion)
    path = tmp_path / "m.png"
    plot_confusion(of_matrix([[6, 1, 0], [2, 3, 0], [0, 0, 0]]), ["a", "b"], path, False)
    (axes,) = kept["m.png"].axes
    wanted = [[0.75, 0.25], [0.25, 0.75]]
    np.testing.assert_allclose(axes.get_images()[0].get_array(), wanted)
    assert texts_of(axes.get_xticklabels()) == ["a", "b"]
    assert "IoU" not in axes.get_title() and not axes.lines
    plot_confusion(of_matrix(np.eye(131, dtype=int)), ["x"] * 130, path, False)
    axes = kept["m.png"].axes[0]
    assert axes.get_images()[0].get_array().shape == (101, 101)
    assert texts_of(axes.get_xticklabels())[-1] == "30 others"


def test_of_more_than_a_hundred_classes_the_others_are_one(monkeypatch, tmp_path):
    kept = kept_figures(monkeypatch, confusion)
    counts = np.full(151, 3)
    counts[:50] = 1
    plot_confusion(
        of_matrix(np.diag(counts)), [f"name {index}" for index in range(150)], tmp_path / "m.png"
    )
    names = texts_of(kept["m.png"].axes[0].get_xticklabels())
    assert names == [*(f"name {index}" for index in range(50, 150)), "50 others", "background"]
    parts = kept["m.png"].axes[0].get_images()[0].get_array()
    np.testing.assert_array_equal(parts, np.eye(102))
