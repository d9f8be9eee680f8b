"""Plots of measures and labels: the right numbers over the right axis and in the right cell."""

from pathlib import Path

import numpy as np
import pytest

from duet.utils.data.sources.class_folders import FULL_BOX
from duet.utils.data.sources.samples import Sample
from duet.utils.evaluation.coco.confusion import Confusion
from duet.utils.evaluation.coco.metric import DetectionEvaluator
from duet.utils.report.plots import label_statistics, measures
from duet.utils.report.plots.label_statistics import plot_labels
from duet.utils.report.plots.measures import (
    plot_confusion,
    plot_over_confidence,
    plot_precision_recall,
)
from tests.coco_reference import detections, ground_truth
from tests.unit.report.conftest import kept_figures, read_rgb, result_of, texts_of

CURVES = ("P_curve.png", "R_curve.png", "F1_curve.png")


def two_classes():
    """Class a: 2 objects, found at 0.9 and, wrongly, 0.6; class b: 1 object, found at 0.4."""
    boxes = [[0, 0, 10, 10], [50, 50, 60, 60], [20, 20, 30, 30]]
    found = detections([boxes[0], [80, 80, 90, 90], boxes[2]], [0.9, 0.6, 0.4], [0, 0, 1])
    evaluator = DetectionEvaluator(["a", "b", "never seen"])
    evaluator.add(0, found, ground_truth([0, 0, 1], boxes))
    return evaluator.result()


def legend_of(figure):
    return texts_of(figure.legends[0].get_texts())


def test_confidence_curves_match_hand_computed_points(monkeypatch, tmp_path):
    kept = kept_figures(monkeypatch, measures)
    plot_over_confidence(two_classes(), tmp_path)
    assert tuple(kept) == CURVES
    at = np.array([0.2, 0.5, 0.7, 0.95])
    nan = np.nan
    expected = {
        "P_curve.png": ([0.5, 0.5, 1, nan], [1, nan, nan, nan], [0.75, 0.5, 1, nan]),
        "R_curve.png": ([0.5, 0.5, 0.5, 0], [1, 0, 0, 0], [0.75, 0.25, 0.25, 0]),
        "F1_curve.png": ([0.5, 0.5, 2 / 3, 0], [1, 0, 0, 0], [0.75, 0.25, 1 / 3, 0]),
    }
    for name, wanted in expected.items():
        (axes,) = kept[name].axes
        lines = [line for line in axes.get_lines() if len(line.get_xdata()) > 2]
        assert len(lines) == 3  # a, b, their mean
        for line, values in zip(lines, wanted, strict=True):
            x = np.asarray(line.get_xdata())
            places = [int(np.abs(x - confidence).argmin()) for confidence in at]
            np.testing.assert_allclose(np.asarray(line.get_ydata())[places], values)
        (mark,) = [line for line in axes.get_lines() if len(line.get_xdata()) == 2]
        assert list(mark.get_xdata()) == pytest.approx([0.4, 0.4])
    # At 0.4, where the mean F1 is highest: what the table says.
    assert legend_of(kept["P_curve.png"]) == ["0.500  a", "1.000  b", "0.750  mean of 2 classes"]
    assert legend_of(kept["F1_curve.png"])[-1] == "0.750  mean of 2 classes"
    assert kept["R_curve.png"].legends[0].get_title().get_text() == "Recall at 0.400"
    assert [kept[name].axes[0].get_ylabel() for name in CURVES] == ["precision", "recall", "F1"]


@pytest.mark.parametrize("num_classes", [0, 1])
def test_curves_of_no_class_or_one_are_drawn(tmp_path, num_classes):
    result = result_of(["cell"][:num_classes])
    plot_over_confidence(result, tmp_path)
    plot_precision_recall(result, tmp_path / "PR_curve.png")
    assert {path.name for path in tmp_path.glob("*.png")} == {*CURVES, "PR_curve.png"}
    # The blue of the first class.
    blue = (np.abs(read_rgb(tmp_path / "F1_curve.png") - [0, 114, 178]) < 8).all(axis=2)
    assert blue.any() == (num_classes == 1)


def of_matrix(matrix):
    matrix = np.array(matrix)
    predicted, true = np.nonzero(matrix)
    return Confusion(len(matrix) - 1, predicted, true, matrix[predicted, true])


def test_confusion_columns_are_normalised_and_labelled(monkeypatch, tmp_path):
    kept = kept_figures(monkeypatch, measures)
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


def test_classification_confusion_has_no_background_cell(monkeypatch, tmp_path):
    kept = kept_figures(monkeypatch, measures)
    path = tmp_path / "m.png"
    plot_confusion(of_matrix([[6, 1, 0], [2, 3, 0], [0, 0, 0]]), ["a", "b"], path, False)
    (axes,) = kept["m.png"].axes
    wanted = [[0.75, 0.25], [0.25, 0.75]]
    np.testing.assert_allclose(axes.get_images()[0].get_array(), wanted)
    assert texts_of(axes.get_xticklabels()) == ["a", "b"]
    assert "IoU" not in axes.get_title() and not axes.lines
    plot_confusion(of_matrix(np.eye(131, dtype=int)), ["x"] * 130, path, False)
    axes = kept["m.png"].axes[0]
    assert axes.get_images()[0].get_array().shape == (130, 130)
    assert "x" not in texts_of(axes.get_xticklabels())  # numbers in place of names


def sample_of(class_index, boxes):
    boxes = np.array(boxes, np.float32).reshape(-1, 4)
    return Sample(Path("a.jpg"), 32, 32, np.array(class_index, np.int64), boxes)


def counts_of(axes):
    """The counts of a panel, row per y from 0 to 1."""
    return np.ma.filled(axes.get_images()[0].get_array(), 0)


def test_label_plot_counts_classes_and_places_boxes(monkeypatch, tmp_path):
    kept = kept_figures(monkeypatch, label_statistics)
    samples = [sample_of([0, 2], [(0.11, 0.91, 0.2, 0.1), (0.51, 0.51, 1, 1)]),
               sample_of([2], [(0.11, 0.91, 0.4, 0.6)])]  # fmt: skip
    plot_labels(samples, ["a", "b", "c"], tmp_path / "labels.jpg")
    counts, shapes, centres, sizes = kept["labels.jpg"].axes[:4]
    assert counts.get_title() == "3 labels of 3 classes"
    assert texts_of(counts.get_yticklabels()) == ["c", "a", "b"]
    assert [bar.get_width() for bar in counts.patches] == [2, 1, 0]
    # Bins of 0.02: the centre (0.11, 0.91) lies in column 5, row 45, and height runs downwards.
    assert counts_of(centres)[45, 5] == 2 and counts_of(centres)[25, 25] == 1
    assert counts_of(centres).sum() == counts_of(sizes).sum() == 3
    assert centres.get_ylim() == (1, 0) and sizes.get_ylim() == (0, 1)
    assert counts_of(sizes)[49, 49] == 1  # a box as large as the image is in the last bin
    (outlines,) = shapes.collections
    corners = [path.vertices[:4] for path in outlines.get_paths()]
    np.testing.assert_allclose(corners[0][[0, 2]], [(0.4, 0.45), (0.6, 0.55)], atol=1e-6)
    np.testing.assert_allclose(corners[1][[0, 2]], [(0, 0), (1, 1)], atol=1e-6)


@pytest.mark.parametrize("samples", [[], [sample_of([0], [(0.4, 0.6, 0.3, 0.2)])]],
                         ids=["no label", "one label"])  # fmt: skip
def test_few_labels_are_drawn(tmp_path, samples):
    plot_labels(samples, ["one"], tmp_path / "labels.jpg")
    coloured = np.ptp(read_rgb(tmp_path / "labels.jpg")[:400, :600], axis=2) > 60
    assert coloured.any() == bool(len(samples) and len(samples[0].class_index))


def test_full_image_boxes_give_only_counts_and_sizes(monkeypatch, tmp_path):
    kept = kept_figures(monkeypatch, label_statistics)
    samples = [sample_of([index], [FULL_BOX]) for index in (1, 0, 1)]
    plot_labels(samples, ["a", "b"], tmp_path / "labels.jpg")
    counts, sizes = kept["labels.jpg"].axes
    assert [bar.get_width() for bar in counts.patches] == [2, 1]
    assert texts_of(counts.get_yticklabels()) == ["b", "a"]
    (points,) = sizes.collections
    expected = [(sample.width, sample.height) for sample in samples]
    np.testing.assert_array_equal(points.get_offsets(), expected)
