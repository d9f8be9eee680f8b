"""`plots.py`: files of the right size that show what they were given, without side effects."""

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import cv2
import numpy as np
import pytest

from tests.small import RESULT_COLUMNS
from tests.unit.drawing.stand_in_fonts import DEJAVU, forget_fonts, make_font, use_folders
from utils.detections import Detections, GroundTruth
from utils.drawing.colours import COLOURS
from utils.errors import UserError
from utils.evaluation.coco.metric import DetectionEvaluator, EvaluationResult
from utils.files.project import PROJECT
from utils.report.plots import (
    plot_batch,
    plot_labels,
    plot_precision_recall,
    plot_results,
)

COLUMNS = [name for name in RESULT_COLUMNS if not name.startswith("seconds/")]
NUM_VALUES = len(COLUMNS) - 1
NAMES = ["cell", r"$\bad$ formula", "红细胞"]


class Boxes(NamedTuple):
    """The fields of the loader's Targets."""

    image_index: np.ndarray
    class_index: np.ndarray
    boxes_cxcywh_norm: np.ndarray


def boxes(*rows: tuple[int, int, float, float, float, float]) -> Boxes:
    table = np.array(rows, np.float32).reshape(-1, 6)
    return Boxes(table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), table[:, 2:])


def colour_rgb(class_index: int) -> np.ndarray:
    return np.array(list(bytes.fromhex(COLOURS[class_index][1:])))


def read_rgb(path: Path) -> np.ndarray:
    return cv2.imread(str(path))[:, :, ::-1].astype(int)


def example_result(class_names: list[str]) -> EvaluationResult:
    box = np.array([[0, 0, 9, 9]], np.float32)
    evaluator = DetectionEvaluator(class_names)
    for index in range(len(class_names)):
        label = np.array([index])
        found = Detections(box, np.array([0.5], np.float32), label)
        evaluator.add(index, found, GroundTruth(label, box))
    return evaluator.result()


def write_results(path: Path, *rows: str, columns: list[str] = COLUMNS) -> Path:
    path.write_text("\n".join([",".join(f"{name:>24}" for name in columns), *rows]) + "\n")
    return path


@pytest.fixture(params=["the machine's fonts", "a font for every name"])
def has_font(request, tmp_path, monkeypatch):
    """Without and with a font that draws Chinese characters, as black squares of 0.8 em."""
    folder = tmp_path / "fonts"
    folder.mkdir()
    shutil.copy(DEJAVU, folder)
    if request.param == "a font for every name":
        make_font("红细胞0123456789. lp").save(folder / "squares.ttf")
    use_folders(monkeypatch, folder)
    yield request.param == "a font for every name"
    forget_fonts()


def black_squares(picture: np.ndarray, side: int) -> int:
    """How many places hold a dark square of so many pixels."""
    return int(cv2.erode((picture.max(axis=2) < 90).astype(np.uint8), np.ones((side, side))).sum())


def test_names_in_any_script_are_written_on_a_batch_and_in_figures(tmp_path, has_font):
    images = np.full((1, 3, 320, 320), 255, np.uint8)
    targets = boxes((0, 2, 0.5, 0.5, 0.5, 0.5))
    plot_batch(images, targets, NAMES, tmp_path / "batch.jpg")
    sample = SimpleNamespace(
        class_index=np.array([2]), boxes_cxcywh_norm=np.full((1, 4), 0.5, np.float32)
    )
    plot_labels([sample], NAMES, tmp_path / "labels.png")
    plot_precision_recall(example_result(NAMES), tmp_path / "pr.png")
    labels = read_rgb(tmp_path / "labels.png")
    bars = labels[:, : labels.shape[1] // 3]  # beside them the colours of a density are dark
    for picture in (read_rgb(tmp_path / "batch.jpg"), bars, read_rgb(tmp_path / "pr.png")):
        assert (black_squares(picture, 6) > 0) == has_font  # letters are 8 pixels high at least


def test_batch_shows_each_image_and_its_boxes_in_its_tile(tmp_path):
    images = np.zeros((3, 3, 120, 160), np.uint8)
    images[1, 0] = 200  # red
    targets = boxes((0, 0, 0.5, 0.5, 0.5, 0.5), (1, 1, 0.5, 0.5, 0.5, 0.5))
    plot_batch(images, targets, NAMES, tmp_path / "batch.jpg")
    mosaic = read_rgb(tmp_path / "batch.jpg")
    assert mosaic.shape == (240, 320, 3)
    # JPEG keeps flat areas within a few levels and blurs the colour of thin lines.
    np.testing.assert_allclose(mosaic[60, 80], [0, 0, 0], atol=10)
    np.testing.assert_allclose(mosaic[60, 240], [200, 0, 0], atol=10)
    np.testing.assert_allclose(mosaic[180, 80], [0, 0, 0], atol=10)
    np.testing.assert_allclose(mosaic[230, 310], [255, 255, 255], atol=10)
    bottom_edges = mosaic[90, [80, 240]]
    expected = np.stack([colour_rgb(0), colour_rgb(1)])
    assert (np.abs(bottom_edges - expected).mean(axis=1) < 40).all()
    assert np.abs(mosaic[210, 80]).max() < 20  # the third image has no box


def test_batch_shows_at_most_sixteen_images_within_the_size_limit(tmp_path):
    images = np.zeros((20, 3, 640, 640), np.uint8)
    plot_batch(images, boxes((18, 0, 0.5, 0.5, 0.2, 0.2)), NAMES, tmp_path / "batch.jpg")
    assert read_rgb(tmp_path / "batch.jpg").shape == (1920, 1920, 3)


def test_batch_leaves_images_and_targets_unchanged(tmp_path):
    images = np.full((1, 3, 64, 64), 9, np.uint8)
    targets = boxes((0, 2, 0.5, 0.5, 1.5, 1.5), (0, 0, 0.5, 0.5, 0, 0))
    before = [field.copy() for field in targets]
    plot_batch(images, targets, NAMES, tmp_path / "batch.jpg")
    assert (images == 9).all()
    for field, original in zip(targets, before, strict=True):
        np.testing.assert_array_equal(field, original)


@pytest.mark.parametrize(("num_classes", "num_boxes"), [(1, 0), (3, 1), (90, 500)])
def test_labels_are_drawn_for_any_number_of_classes_and_boxes(tmp_path, num_classes, num_boxes):
    random = np.random.Generator(np.random.Philox(1))
    sample = SimpleNamespace(
        class_index=random.integers(0, num_classes, num_boxes),
        boxes_cxcywh_norm=random.uniform(0, 1, (num_boxes, 4)).astype(np.float32),
    )
    plot_labels([sample, sample], (NAMES * 30)[:num_classes], tmp_path / "labels.png")
    picture = read_rgb(tmp_path / "labels.png")
    assert picture.shape[1] > picture.shape[0] > 400
    coloured = np.ptp(picture, axis=2) > 60
    # Bars in the left third, boxes in the middle and right ones (the colour scales always are).
    assert coloured[:, : picture.shape[1] // 3].any() == (num_boxes > 0)


def test_results_curves_are_drawn_in_their_colours(tmp_path):
    rows = [",".join(str(value) for value in [epoch, *range(NUM_VALUES)]) for epoch in range(30)]
    plot_results(write_results(tmp_path / "results.csv", *rows), tmp_path / "results.png")
    picture = read_rgb(tmp_path / "results.png")
    for class_index in range(2):
        matching = (np.abs(picture - colour_rgb(class_index)) < 8).all(axis=2)
        assert matching.sum() > 1000


@pytest.mark.parametrize("rows", [
    ["0" + ",0.5" * NUM_VALUES],
    ["0" + "," * NUM_VALUES],
    ["0" + ",nan" * NUM_VALUES, "1" + ",inf" * NUM_VALUES],
    ["0" + ",0.5" * NUM_VALUES, "1,0.4"],
], ids=["one epoch", "no values", "not finite", "torn last row"])  # fmt: skip
def test_results_with_few_or_missing_values_are_drawn(tmp_path, rows):
    plot_results(write_results(tmp_path / "results.csv", *rows), tmp_path / "results.png")
    assert read_rgb(tmp_path / "results.png").shape[0] > 400


@pytest.mark.parametrize("figures", [[], ["accuracy"], ["a", "b", "c"]])
def test_losses_and_figures_of_any_task_are_drawn(tmp_path, figures):
    columns = ["epoch", "train/num_loss", *(f"metrics/{name}" for name in figures), "val/num_loss",
               "x/lr0", "x/lr1", "x/lr2"]  # fmt: skip
    rows = [",".join(str(epoch) for _ in columns) for epoch in range(3)]
    path = write_results(tmp_path / "results.csv", *rows, columns=columns)
    plot_results(path, tmp_path / "results.png")
    # Three panels a row: the loss, the rates, and one for every two figures.
    assert read_rgb(tmp_path / "results.png").shape[0] > 400 * (1 + (len(figures) > 2))


def test_results_without_epochs_or_columns_are_refused_by_name(tmp_path):
    empty = write_results(tmp_path / "empty.csv")
    with pytest.raises(UserError, match="empty.csv has no epochs"):
        plot_results(empty, tmp_path / "results.png")
    short = write_results(tmp_path / "short.csv", "0", columns=["epoch", *COLUMNS[2:]])
    with pytest.raises(UserError, match=f"short.csv has no column {COLUMNS[1]}"):
        plot_results(short, tmp_path / "results.png")


@pytest.mark.parametrize("num_classes", [0, 3, 30])
def test_precision_over_recall_is_drawn_for_any_number_of_classes(tmp_path, num_classes):
    result = example_result((NAMES * 10)[:num_classes])
    plot_precision_recall(result, tmp_path / "pr.png")
    picture = read_rgb(tmp_path / "pr.png")
    named = (np.abs(picture - colour_rgb(2)) < 8).all(axis=2).any()
    assert named == (num_classes == 3)


def test_importing_draws_in_no_drawing_package_and_drawing_leaves_pyplot_alone(tmp_path):
    program = f"""
import sys
from pathlib import Path
import utils.report.plots
assert not {{"matplotlib", "cv2"}} & set(sys.modules), "imported with utils.report.plots"
from utils.evaluation.coco.metric import DetectionEvaluator
result = DetectionEvaluator([]).result()
utils.report.plots.plot_precision_recall(result, Path({str(tmp_path / "pr.png")!r}))
assert "matplotlib" in sys.modules and "matplotlib.pyplot" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
