"""Plots of labels: what there is before the first batch."""

from pathlib import Path

import numpy as np
import pytest

from duet.utils.data.sources.class_folders import FULL_BOX
from duet.utils.data.sources.samples import Sample
from duet.utils.report.plots import label_statistics
from duet.utils.report.plots.label_statistics import plot_labels
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


@pytest.mark.parametrize("samples", [[], [sample_of([0], [(0.4, 0.6, 0.3, 0.2)])]],
                         ids=["no label", "one label"])  # fmt: skip
def test_few_labels_are_drawn(tmp_path, samples):
    plot_labels(samples, ["one"], tmp_path / "labels.jpg")
    coloured = np.ptp(read_rgb(tmp_path / "labels.jpg")[:400, :600], axis=2) > 60
    assert coloured.any() == bool(len(samples) and len(samples[0].class_index))


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
