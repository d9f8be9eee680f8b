"""Views of an image: their shapes, their memory, and what is found through them."""

import json
from types import SimpleNamespace

import cv2
import numpy as np
import pytest

from duet.models.evaluation import evaluate
from duet.models.evaluation.evaluate import Evaluation
from duet.models.heads.anchor.head import AnchorHead
from duet.models.inference.image_detector import ImageDetector
from duet.utils.data.image.letterbox import whole_view
from duet.utils.data.sources.samples import Sample
from duet.utils.evaluation.nms import SuppressionSettings
from duet.utils.geometry.tiling import Tiling
from duet.utils.processes.world import ALONE
from duet.utils.tasks import DETECTION
from tests.environments import shared_path
from tests.rank_threads import run_rank_threads

SETTINGS = SuppressionSettings(confidence_threshold=0.25, iou_threshold=0.45)


def views_of(image, image_size, stride, tiling):
    """The views of an image that a predictor of any size and this stride takes."""
    head = SimpleNamespace(task=DETECTION)
    predictor = SimpleNamespace(head=head, stride=stride, fixed_size=None)
    return ImageDetector(predictor, "cpu", image_size, SETTINGS, tiling).views(image)


def gradient(height, width):
    """An image in which each place has its own colour."""
    rows, columns = np.mgrid[:height, :width]
    return np.stack((rows % 256, columns % 256, (rows // 256 + columns // 256) % 256), 2).astype(
        np.uint8
    )


def test_whole_views_have_public_shapes():
    cases = json.loads(shared_path("golden/inference/info.json").read_text())["autoshape"]
    checked = 0
    for case in cases:
        size, stride, shapes = case["size"], int(case["max_stride"]), case["image_shapes"]
        if len(shapes) > 1 or isinstance(size, list) or len(shapes[0]) != 3 or shapes[0][0] == 3:
            continue  # several images share a shape there; others are no (H, W, 3)
        image = np.zeros((*shapes[0][:2], 3), np.uint8)
        assert [1, 3, *whole_view(image, size, stride).pixels.shape[:2]] == case["network_input"]
        checked += 1
    assert checked == 32


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((30, 1000), (32, 640)),  # 19 px and padding
        ((1000, 30), (640, 32)),
        ((1, 1), (640, 640)),
        ((1, 20000), (32, 640)),  # a 32nd of a pixel becomes one
        ((20000, 1), (640, 32)),
        ((1, 200000), (32, 640)),
        ((641, 640), (640, 640)),
    ],
)
def test_image_of_any_shape_has_a_view(size, expected):
    view = whole_view(np.full((*size, 3), 200, np.uint8), 640, 32)
    assert view.pixels.shape == (*expected, 3)
    assert min(view.placement.resized_size) >= 1
    assert (view.pixels == 200).all(axis=2).sum() == np.prod(view.placement.resized_size)
    box = np.float32([[*view.placement.padding[::-1], 640, 640]])
    assert np.isfinite(view.placement.to_original(box)).all()


def test_tiles_share_image_memory_and_the_whole_is_last():
    image = gradient(150, 300)
    *tiles, whole = views_of(image, 128, 32, Tiling(128, 0.25))
    np.testing.assert_array_equal(whole.pixels, whole_view(image, 128, 32).pixels)
    assert whole.region_xyxy == (0, 0, 300, 150)
    assert len(tiles) == 2 * 3
    for view in tiles:
        left, top, right, bottom = view.region_xyxy
        assert (right - left, bottom - top) == (128, 128)
        np.testing.assert_array_equal(view.pixels, image[top:bottom, left:right])
        assert np.shares_memory(view.part, image)
    assert {view.placement.input_size for view in tiles} == {(128, 128)}


class Brightest:
    """A predictor that finds each bright rectangle on black, to the pixel; counts its batches."""

    stride = 32
    fixed_size, takes_arrays = None, False

    def __init__(self):
        self.head = AnchorHead(2, [[10, 13]], [8], [8])
        self.batches = []

    def __call__(self, images):
        return images

    def decode_above(self, raw, threshold):
        from duet.backend import ops

        pixels = ops.to_numpy(raw)
        self.batches.append(pixels.shape)
        return [self._rows(image) for image in pixels]

    @staticmethod
    def _rows(image):
        """Red rectangles are of class 0, green ones of class 1; black and grey are nothing."""
        rows = []
        for class_index in (0, 1):
            bright = (image[class_index] > 0.9).astype(np.uint8)
            _, _, found, _ = cv2.connectedComponentsWithStats(bright)
            for left, top, width, height, _ in found[1:].tolist():
                scores = [0.9, 0.1] if class_index == 0 else [0.1, 0.9]
                centre = left + width / 2, top + height / 2
                rows.append([*centre, width, height, 0.9, *scores])
        return np.float32(rows).reshape(-1, 7)


OBJECTS = {  # left, top, right, bottom: of a class
    0: [(5, 5, 20, 25), (100, 50, 118, 70), (120, 50, 138, 70), (90, 100, 220, 190)],
    1: [(250, 10, 256, 16), (95, 75, 145, 92), (230, 95, 390, 230)],
}


def scene():
    image = np.zeros((250, 400, 3), np.uint8)
    for class_index, boxes in OBJECTS.items():
        for left, top, right, bottom in boxes:
            image[top:bottom, left:right, class_index] = 255
    return image


def detector(tiling=None, image_size=128):
    return ImageDetector(Brightest(), "cpu", image_size, SETTINGS, tiling)


TILING = Tiling(128, 0.3, batch_size=4)


def test_objects_across_tiles_are_found_whole_and_once():
    with_tiles = detector(TILING)
    (found,) = with_tiles.detect([scene()])
    assert len(found.scores) == sum(map(len, OBJECTS.values()))
    for class_index, boxes in OBJECTS.items():
        rows = found.boxes_xyxy[found.class_index == class_index]
        for box in np.float32(boxes):
            # What no tile shows whole comes from the whole image, in which 400 px are 128.
            is_large = (box[2:] - box[:2]).max() > 128
            assert np.abs(rows - box).max(axis=1).min() <= (400 / 128 if is_large else 0)
    # As many tiles at a time as asked for: 3 rows of 5 are 15.
    assert [shape[0] for shape in with_tiles.predictor.batches] == [4, 4, 4, 3, 1]


@pytest.fixture
def samples(tmp_path):
    """The scene, and parts of it, with their objects."""
    found = []
    for number, (height, width) in enumerate([(250, 400), (100, 100), (250, 130)]):
        path = tmp_path / f"{number}.png"
        cv2.imwrite(str(path), scene()[:height, :width, ::-1])
        rows = [(c, *box) for c, boxes in OBJECTS.items() for box in boxes
                if box[2] <= width and box[3] <= height]  # fmt: skip
        labels = np.float32(rows).reshape(-1, 5)
        corners = labels[:, 1:]
        centres, sizes = (corners[:, :2] + corners[:, 2:]) / 2, corners[:, 2:] - corners[:, :2]
        boxes = np.concatenate((centres, sizes), axis=1) / np.float32([width, height] * 2)
        found.append(Sample(path, height, width, labels[:, 0].astype(np.int64), boxes))
    return found


def tiled(samples, sinks, world=ALONE):
    evaluation = Evaluation(Brightest(), samples, ("r", "g"), "cpu", SETTINGS, sinks=sinks)
    return evaluation.run_tiled(TILING, 128, world)


class Received:
    def __init__(self):
        self.images = []

    def add(self, image_id, found, truth):
        self.images.append((image_id, found, truth))


def test_tiled_validation_equals_detection_of_all_tiles(samples, monkeypatch):
    calls, sink = [], Received()
    monkeypatch.setattr(evaluate.watchdog, "progress", lambda: calls.append(None))
    tiled(samples[:1], [sink])
    ((_, found, _),) = sink.images
    (expected,) = detector(TILING).detect([scene()])
    for array, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(array, wanted)
    assert len(calls) == 4  # of 16 views


@pytest.mark.parametrize("world_size", [2, 5])
def test_ranks_validate_tiles_like_a_single_process(samples, world_size):
    def work(world):
        sink = Received()
        found = tiled(samples, [sink], world)
        return found.result, sink.images

    ((alone, images),) = run_rank_threads(1, work)
    ranks = run_rank_threads(world_size, work)
    for result, _ in ranks:
        assert result.summary() == pytest.approx(alone.summary(), nan_ok=True, abs=0)
    assert [x[0] for x in ranks[0][1]] == [x[0] for x in images]
    for (_, found, _), (_, expected, _) in zip(ranks[0][1], images, strict=True):
        for array, wanted in zip(found, expected, strict=True):
            np.testing.assert_array_equal(array, wanted)
    assert all(received == [] for _, received in ranks[1:])
