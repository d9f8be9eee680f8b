"""The label files of a validation."""

from pathlib import Path

import numpy as np

from utils.data.sources.samples import Sample
from utils.detections import Detections, GroundTruth
from utils.tasks.detection import DETECTION

NOTHING = GroundTruth(np.zeros(0, np.int64), np.zeros((0, 4)))


def sample(path: str) -> Sample:
    labels = np.zeros(0, np.int64), np.zeros((0, 4), np.float32)
    return Sample(Path(path), 50, 100, *labels)


def found(*rows: tuple[float, ...]) -> Detections:
    table = np.array(rows, np.float32).reshape(-1, 6)
    return Detections(table[:, :4], table[:, 4], table[:, 5].astype(np.int64))


def test_each_image_with_detections_has_a_file_of_fractions(tmp_path):
    samples = [sample("a/one.jpg"), sample("b/one.jpg"), sample("a/two.jpg")]
    files = DETECTION.label_files(samples, scores=True)
    files.add(2, found(), NOTHING)
    files.add(1, found((0, 0, 100, 50, 0.5, 3)), NOTHING)
    files.add(0, found((10, 10, 30, 20, 0.875, 1), (20, 0, 40, 50, 0.25, 0)), NOTHING)
    (tmp_path / "two.txt").write_text("of an earlier run\n")
    files.write(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one-2.txt", "one.txt"]
    assert (tmp_path / "one.txt").read_text() == "0 0.3 0.5 0.2 1 0.25\n1 0.2 0.3 0.2 0.2 0.875\n"
    assert (tmp_path / "one-2.txt").read_text() == "3 0.5 0.5 1 1 0.5\n"
