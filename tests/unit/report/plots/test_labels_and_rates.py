"""Plots of labels and learning rates: what there is before the first batch."""

from pathlib import Path

import numpy as np
import pytest

from duet.utils.data.sources.class_folders import FULL_BOX
from duet.utils.data.sources.samples import Sample
from duet.utils.report.plots import label_statistics, results
from duet.utils.report.plots.label_statistics import plot_correlogram, plot_labels
from duet.utils.report.plots.results import plot_learning_rates
from tests.unit.report.plots.drawn import (
    kept_figures,
    read_rgb,
    texts_of,
)


def sample_of(class_index, boxes):
    boxes = np.array(boxes, np.float32).reshape(-1, 4)
    return Sample(Path("a.jpg"), 32, 32, np.array(class_index, np.int64), boxes)


def counts_of(axes):
    """The counts of a panel, row per y from 0 to 1."""
    return np.ma.filled(axes.get_images()[0].get_array(), 0)


def test_classes_are_counted_and_boxes_lie_where_they_are(monkeypatch, tmp_path):
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


def test_the_correlogram_has_each_pair_once(monkeypatch, tmp_path):
    kept = kept_figures(monkeypatch, label_statistics)
    samples = [sample_of([0], [(0.11, 0.31, 0.51, 0.71)])]
    plot_correlogram(samples, tmp_path / "c.jpg")
    panels = np.array(kept["c.jpg"].axes).reshape(4, 4)
    bins = [5, 15, 25, 35]  # of x, y, width and height, 0.02 each
    for row, column in np.ndindex(4, 4):
        assert panels[row, column].get_visible() == (column <= row)
        if column < row:
            assert np.argwhere(counts_of(panels[row, column])).tolist() == [
                [bins[row], bins[column]]
            ]
    assert [panels[3, column].get_xlabel() for column in range(4)] == ["x", "y", "width", "height"]
    assert [panels[row, 0].get_ylabel() for row in range(4)] == ["", "y", "width", "height"]


@pytest.mark.parametrize("samples", [[], [sample_of([0], [(0.4, 0.6, 0.3, 0.2)])]],
                         ids=["no label", "one label"])  # fmt: skip
def test_few_labels_are_drawn(tmp_path, samples):
    plot_labels(samples, ["one"], tmp_path / "labels.jpg")
    plot_correlogram(samples, tmp_path / "correlogram.jpg")
    for name, place in (("labels.jpg", np.s_[:400, :600]), ("correlogram.jpg", np.s_[300:])):
        coloured = np.ptp(read_rgb(tmp_path / name)[place], axis=2) > 60
        assert coloured.any() == bool(len(samples) and len(samples[0].class_index))


def test_learning_rates_have_a_panel_each_with_a_scale_of_its_own(monkeypatch, tmp_path):
    kept = kept_figures(monkeypatch, results)
    epochs, weights = np.linspace(0, 5, 50), np.linspace(0, 0.01, 50)
    given = {"weights": weights, "biases": 0.1 - 9 * weights}
    plot_learning_rates(epochs, given, tmp_path / "LR.png")
    first, second = kept["LR.png"].axes
    assert (first.get_title(), second.get_title()) == ("weights", "biases")
    assert first.get_ylim() == (0, pytest.approx(0.0105))
    assert second.get_ylim() == (0, pytest.approx(0.105))
    np.testing.assert_array_equal(second.get_lines()[0].get_ydata(), given["biases"])
    assert first.get_xlim() == (0, 5)


def test_boxes_that_fill_their_images_give_counts_and_sizes_alone(monkeypatch, tmp_path):
    kept = kept_figures(monkeypatch, label_statistics)
    samples = [sample_of([index], [FULL_BOX]) for index in (1, 0, 1)]
    plot_labels(samples, ["a", "b"], tmp_path / "labels.jpg")
    counts, sizes = kept["labels.jpg"].axes
    assert [bar.get_width() for bar in counts.patches] == [2, 1]
    assert texts_of(counts.get_yticklabels()) == ["b", "a"]
    (points,) = sizes.collections
    expected = [(sample.width, sample.height) for sample in samples]
    np.testing.assert_array_equal(points.get_offsets(), expected)
