"""`images.py`: each image in its place, with what belongs to it, large enough to be seen."""

import logging

import cv2
import numpy as np
import pytest

from duet.utils.colours import class_colour
from duet.utils.data.loading.batch import TargetMasks, Targets
from duet.utils.data.sources.samples import Sample
from duet.utils.evaluation.coco.metric import Example
from duet.utils.report.plots.images import plot_batch, plot_examples
from tests.coco_reference import detections, ground_truth, masked_truth, segmentations
from tests.unit.report.conftest import NAMES, read_rgb

TILE, NAME_BELOW = 480, 21  # pixels: an image's square, and the line with its file's name


def boxes(*rows):
    table = np.array(rows, np.float32).reshape(-1, 6)
    return Targets(table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), table[:, 2:])


def is_coloured(pixels, class_index):
    """Whether a line of a class goes through dark grey pixels.

    JPEG halves the resolution of colour; grey of up to 90 is 65 or more from the classes' colours.
    """
    return (np.abs(pixels - class_colour(class_index)).mean(axis=-1) < 50).any()


def test_batch_shows_each_image_and_its_boxes_in_its_tile(tmp_path):
    batch = np.zeros((3, 3, 240, 320), np.uint8)
    batch[1, 0] = 200  # red
    targets = boxes((0, 0, 0.5, 0.5, 0.5, 0.5), (1, 1, 0.5, 0.5, 0.5, 0.5))
    plot_batch(batch, targets, NAMES, tmp_path / "batch.jpg")
    mosaic = read_rgb(tmp_path / "batch.jpg")
    assert mosaic.shape == (720, 960, 3)  # two tiles a side, each of 360 x 480 px
    # JPEG keeps flat areas within a few levels.
    np.testing.assert_allclose(mosaic[180, 240], [0, 0, 0], atol=10)
    np.testing.assert_allclose(mosaic[180, 720], [200, 0, 0], atol=10)
    np.testing.assert_allclose(mosaic[540, 240], [0, 0, 0], atol=10)
    np.testing.assert_allclose(mosaic[700, 940], [255, 255, 255], atol=10)
    for column, class_index in ((240, 0), (720, 1)):
        assert is_coloured(mosaic[266:274, column], class_index)  # the box's lower edge, at 270
    assert np.abs(mosaic[540 - 100 : 540 + 100, 240]).max() < 20  # the third image has no box


def is_tinted(pixel, class_index, ground=0):
    """Whether a pixel has half of a class's colour and half of the ground's grey; JPEG is near."""
    return np.abs(pixel - (np.array(class_colour(class_index)) + ground) / 2).max() < 25


@pytest.mark.parametrize("side", [480, 96])  # as large as a tile, and enlarged
def test_batch_shows_the_masks_of_each_image(tmp_path, side):
    batch = np.zeros((2, 3, side, side), np.uint8)
    maps = np.zeros((2, 24, 24), np.uint8)
    maps[0, :12], maps[0, 6:12, :12], maps[1, :, 12:] = 1, 2, 1
    masks = TargetMasks(maps, np.array([0, 0, 1]), np.array([1, 2, 1]))
    rows = (0, 1, 0.5, 0.25, 1, 0.5), (0, 2, 0.25, 0.375, 0.5, 0.25), (1, 1, 0.75, 0.5, 0.5, 1)
    plot_batch(batch, boxes(*rows)._replace(masks=masks), ["a", "b", "c"], tmp_path / "batch.jpg")
    assert batch.max() == 0
    first, second = np.split(read_rgb(tmp_path / "batch.jpg"), 2, axis=1)
    assert is_tinted(first[60, 400], 1) and is_tinted(first[200, 120], 2)
    assert is_tinted(second[400, 400], 1)
    assert first[400, 240].max() < 20 and second[240, 120].max() < 20


def test_examples_show_label_and_prediction_masks(tmp_path):
    cv2.imwrite(str(tmp_path / "grey.png"), np.full((60, 120, 3), 100, np.uint8))
    nothing = np.zeros(0, np.int64), np.zeros((0, 4), np.float32)
    sample = Sample(tmp_path / "grey.png", 60, 120, *nothing)
    left = np.zeros((60, 120), bool)
    left[:, :60] = True
    found = segmentations([left], [0.9], [1])
    example = Example(found, masked_truth([~left, np.ones_like(left)], [2, 0]))
    plot_examples({0: example}, [sample], ["a", "b", "c"], tmp_path)
    # The image is 240 px high there, with 120 of grey above; names lie at the upper left.
    labels, predictions = (
        read_rgb(tmp_path / f"val_batch0_{name}.jpg")[120:360] for name in ("labels", "pred")
    )
    assert is_tinted(labels[150, 360], 2, 100) and is_tinted(labels[150, 120], 0, 100)
    assert is_tinted(predictions[150, 120], 1, 100)
    np.testing.assert_allclose(predictions[150, 360], 100, atol=10)


def write_image(folder, number, size, colour):
    """A sample of one colour; (height, width)."""
    path = folder / f"{number}.png"
    cv2.imwrite(str(path), np.full((*size, 3), colour, np.uint8)[..., ::-1])
    return Sample(path, *size, np.zeros(0, np.int64), np.zeros((0, 4), np.float32))


def test_labels_and_detections_share_images_and_places(tmp_path):
    samples = [write_image(tmp_path, 0, (200, 400), (90, 90, 90)),
               write_image(tmp_path, 1, (96, 48), (60, 60, 60))]  # fmt: skip
    examples = {
        0: Example(
            detections([(40, 50, 200, 150)], [0.9], [1]), ground_truth([0], [(200, 50, 360, 150)])
        ),
        1: Example(detections([(0, 0, 48, 48)], [0.9], [0]), ground_truth([1], [(0, 48, 48, 96)])),
    }
    plot_examples(examples, samples, NAMES, tmp_path)
    of_labels = read_rgb(tmp_path / "val_batch0_labels.jpg")
    of_found = read_rgb(tmp_path / "val_batch0_pred.jpg")
    assert of_labels.shape == of_found.shape == (TILE + NAME_BELOW, 2 * TILE, 3)
    assert not (tmp_path / "val_batch1_labels.jpg").exists()
    for drawn in (of_labels, of_found):
        # 200 x 400 is 240 x 480 here, its top at 120; 96 x 48 is 480 x 240, its left at 120.
        np.testing.assert_allclose(drawn[130, 10], [90] * 3, atol=12)
        np.testing.assert_allclose(drawn[110, 10], [235] * 3, atol=12)
        np.testing.assert_allclose(drawn[100, TILE + 240], [60] * 3, atol=12)
        np.testing.assert_allclose(drawn[240, TILE + 110], [235] * 3, atol=12)
        assert (drawn[TILE + 3 : TILE + NAME_BELOW, :40] < 100).any()  # the file's name
    # Of the first image x 200 to 360 is 240 to 432 in its tile, and 40 to 200 is 48 to 240.
    assert is_coloured(of_labels[240, 428:436], 0) and not is_coloured(of_found[240, 428:436], 0)
    assert is_coloured(of_found[240, 44:52], 1) and not is_coloured(of_labels[240, 44:52], 1)
    assert is_coloured(of_found[236:244, TILE + 200], 0)
    assert is_coloured(of_labels[236:244, TILE + 200], 1)


def test_vanished_image_leaves_a_grey_tile_and_is_named(tmp_path, caplog):
    samples = [write_image(tmp_path, number, (8, 8), (0, 0, 90)) for number in range(2)]
    samples[0].image_path.unlink()
    example = Example(detections([(0, 0, 8, 8)], [0.9], [0]), ground_truth([0], [(0, 0, 8, 8)]))
    with caplog.at_level(logging.WARNING):
        plot_examples({0: example, 1: example}, samples, NAMES, tmp_path)
    drawn = read_rgb(tmp_path / "val_batch0_labels.jpg")
    np.testing.assert_allclose(drawn[240, 240], [235] * 3, atol=12)
    np.testing.assert_allclose(drawn[240, TILE + 240], [0, 0, 90], atol=12)
    (line,) = caplog.messages
    assert line.startswith("missing in the plots: ") and "0.png" in line
