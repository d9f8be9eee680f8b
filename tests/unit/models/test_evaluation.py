"""The overlapped loop finds what image after image finds, and ends on any error."""

import threading

import cv2
import numpy as np
import pytest

from duet.backend import autograd, ops
from duet.models.detector import Detector
from duet.models.evaluation.evaluate import DEFAULT_SUPPRESSION, Evaluation
from duet.models.graph import read_model_yaml
from duet.models.heads.base import LossTerms
from duet.utils.data.image.letterbox import fit_long_side, letterbox
from duet.utils.data.loading.batches import ValRecipe
from duet.utils.data.loading.loader import ValLoader
from duet.utils.data.sources.samples import Sample
from duet.utils.evaluation.nms import SuppressionSettings, non_max_suppression
from tests.small import write_small_model

CLASS_NAMES = ("a", "b")
SIZES = ((48, 80), (96, 64), (64, 64), (30, 96), (90, 70))  # (height, width)
SETTINGS = SuppressionSettings(confidence_threshold=0.001, max_detections=30)
# A batch and a single image may be convolved in another order: float32 sums of a whole network.
ROUNDING = 1e-4


class Detected:
    """A sink that keeps what it receives."""

    def __init__(self):
        self.images = {}

    def add(self, image_id, detections, ground_truth):
        self.images[image_id] = detections


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    detector = Detector(read_model_yaml(write_small_model(tmp_path_factory.mktemp("model")), 2))
    detector.initialize(seed=3)
    return detector.eval()


def noise(folder, sizes, num_objects=lambda number: 2):
    """Return samples of noise with drawn objects: what they are does not matter."""
    random = np.random.Generator(np.random.Philox(4))
    found = []
    for number, (height, width) in enumerate(sizes):
        path = folder / f"{number}.png"
        coarse = random.integers(0, 256, (6, 6, 3), dtype=np.uint8)
        cv2.imwrite(str(path), cv2.resize(coarse, (width, height)))
        boxes = np.float32([[0.5, 0.5, 0.4, 0.4], [0.3, 0.6, 0.2, 0.3]])[: num_objects(number)]
        found.append(Sample(path, height, width, np.arange(len(boxes)), boxes))
    return found


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    return noise(tmp_path_factory.mktemp("images"), SIZES)


def detect_alone(model, sample, input_size):
    """One image by itself, every row decoded: what evaluate must find."""
    placement = fit_long_side((sample.height, sample.width), max(input_size), input_size)
    image = letterbox(cv2.imread(str(sample.image_path)), placement)[:, :, ::-1]
    pixels = np.ascontiguousarray(image.transpose(2, 0, 1)[None]).astype(np.float32) / 255
    with autograd.no_grad():
        decoded = ops.to_numpy(model.decode(model(ops.tensor(pixels))))[0]
    found = non_max_suppression(decoded, SETTINGS)
    return found._replace(boxes_xyxy=placement.to_original(found.boxes_xyxy))


def assert_same_detections(found, expected):
    assert 0 < len(expected.scores) == len(found.scores)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=ROUNDING)
    np.testing.assert_array_equal(found.class_index, expected.class_index)
    np.testing.assert_allclose(found.boxes_xyxy, expected.boxes_xyxy, atol=96 * ROUNDING)


def evaluate(model, samples, batch_size=2, rectangular=False, **changes):
    sink = Detected()
    with ValLoader(samples, ValRecipe(96, batch_size, rectangular=rectangular)) as loader:
        validation = Evaluation(
            model, samples, CLASS_NAMES, "cpu", SETTINGS, sinks=[sink], **changes
        ).run(loader)
    return validation, sink.images


def test_square_batches_match_single_images(model, samples):
    _, found = evaluate(model, samples)
    assert sorted(found) == list(range(len(samples)))
    for index, sample in enumerate(samples):
        assert_same_detections(found[index], detect_alone(model, sample, (96, 96)))


@pytest.mark.parametrize("error", [RuntimeError("broken sink"), KeyboardInterrupt()])
@pytest.mark.parametrize("failing", [0, len(SIZES) - 1])
def test_suppression_error_ends_validation_at_once(model, samples, error, failing):
    class Failing(Detected):
        def add(self, image_id, detections, ground_truth):
            super().add(image_id, detections, ground_truth)
            if image_id == failing:
                raise error

    sink, threads = Failing(), threading.active_count()
    with (
        ValLoader(samples, ValRecipe(96, 2, rectangular=False)) as loader,
        pytest.raises(type(error)),
    ):
        Evaluation(model, samples, CLASS_NAMES, "cpu", SETTINGS, sinks=[sink]).run(loader)
    assert max(sink.images) == failing
    assert threading.active_count() <= threads  # one of an earlier test may have ended


def test_losses_are_batch_means(model, samples):
    class Constant:
        def __init__(self):
            self.calls = 0

        def __call__(self, raw, targets):
            self.calls += 1
            terms = {name: ops.full((), float(self.calls * term)) for name, term in
                     (("box", 1), ("objectness", 2), ("classification", 3))}  # fmt: skip
            return LossTerms(terms, ops.full((), 6.0 * self.calls))

    validation, _ = evaluate(model, samples, loss=Constant())
    np.testing.assert_allclose(validation.losses, [2, 4, 6])  # batches 1, 2, 3


@pytest.mark.parametrize("at_a_time", [1, 2, 3])
def test_batch_is_computed_a_few_images_at_a_time(model, samples, at_a_time):
    class Counting:
        head, decode_above = model.head, model.decode_above
        fixed_size, takes_arrays = None, False

        def __call__(self, images):
            sizes.append(images.shape[0])
            return model(images)

    sizes = []
    _, found = evaluate(Counting(), samples, batch_size=3, at_a_time=at_a_time)
    assert sizes == {1: [1] * 5, 2: [2, 1, 2], 3: [3, 2]}[at_a_time]
    _, expected = evaluate(model, samples, batch_size=3)
    for index, wanted in expected.items():
        assert_same_detections(found[index], wanted)


def every_row(threshold):
    return SuppressionSettings(threshold, max_detections=10**6)


SHAPES = {"yolov5n": (3, 8), "yolov5nu": (67,)}  # of a cell's rows, of three classes


def head_with_rows(name, num_images=1):
    """Return a head of three classes, and rows of no score for images of 512 px, per level."""
    head = Detector(read_model_yaml(f"models/{name}.yaml", 3)).head
    sides = [512 // stride for stride in head.strides]
    rows = [np.zeros((num_images, side, side, *SHAPES[name]), np.float32) for side in sides]
    for level in rows:
        level[..., -3:] = -9.0
    return head, rows


def maps_of(rows):
    """Return raw maps from rows (B, H, W, ..., outputs)."""
    return [
        ops.tensor(x.transpose(0, 3, 1, 2, 4) if x.ndim == 5 else x.transpose(0, 3, 1, 2))
        for x in rows
    ]


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(("max_detections", "most"), [(7, 3000), (310, 3100)])
def test_crowded_image_decodes_only_its_best_rows(name, max_detections, most):
    head, rows = head_with_rows(name, num_images=3)
    random = np.random.Generator(np.random.Philox(1))
    raw = maps_of([random.normal(0, 2, level.shape).astype(np.float32) for level in rows])
    with autograd.no_grad():
        every = head.decode_above(raw, every_row(0.0))
        scores = [rows[:, 4] * rows[:, 5:].max(axis=1) for rows in every]
        # Of the first image more rows are above than are decoded.
        lowest = np.sort(every[0][:, 4] if name == "yolov5n" else scores[0])[-most - 5]
        settings = SuppressionSettings(float(lowest) - 2e-6, max_detections=max_detections)
        above = head.decode_above(raw, every_row(settings.confidence_threshold))
        found = head.decode_above(raw, settings)
    assert len(above[0]) > most
    for rows, candidates in zip(found, above, strict=True):
        best = np.argsort(-candidates[:, 4] * candidates[:, 5:].max(axis=1), kind="stable")[:most]
        np.testing.assert_allclose(rows, candidates[np.sort(best)], rtol=1e-5)  # in their order


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(("many", "chosen"), [(2, {"max_detections": 6}), (0, {"classes": (1,)})])
def test_object_with_many_rows_hides_no_other(name, many, chosen):
    """A few of the first class, of a row in each cell of a level, and one of the second."""
    head, rows = head_with_rows(name)
    objectness, sides = ([4], [2, 3]) if name == "yolov5n" else ([], [15, 31, 47, 63])
    rows[many][..., [*sides, *objectness, -3]] = 9.0  # as large as can be
    rows[1][0, 5, 5, ..., [*objectness, -2]] = 3.0
    settings = SuppressionSettings(0.25, 0.001, **chosen)
    with autograd.no_grad():
        found, expected = (
            non_max_suppression(head.decode_above(maps_of(rows), asked)[0], settings)
            for asked in (settings, every_row(0.25))
        )
    assert 1 in expected.class_index
    np.testing.assert_array_equal(found.class_index, expected.class_index)


@pytest.mark.parametrize("name", ["yolov5n", "yolov5nu"])
def test_untrained_model_decodes_few_rows(name):
    model = Detector(read_model_yaml(f"models/{name}.yaml", 1)).eval()
    model.initialize(seed=0)
    with autograd.no_grad():
        raw = model(ops.tensor(np.zeros((1, 3, 640, 640), np.float32)))
        (rows,) = model.decode_above(raw, DEFAULT_SUPPRESSION)
    assert len(rows) <= 3000  # of 25,200, or 8,400 without anchors


@pytest.mark.parametrize("threshold", [0.0, 1e-7, 0.001, 0.3, 0.9, 1.0])
def test_all_rows_above_the_threshold_are_decoded(model, threshold):
    random = np.random.Generator(np.random.Philox(5))
    sizes = [(96 // stride, 64 // stride) for stride in model.head.strides]
    maps = [random.normal(0, 4, (2, 3 * 7, *size)).astype(np.float32) for size in sizes]
    maps[1][1, 4] = np.nan  # an objectness that is no number makes no detection
    raw = [ops.tensor(x).reshape(2, 3, 7, *x.shape[2:]).permute(0, 1, 3, 4, 2) for x in maps]
    every = ops.to_numpy(model.decode(raw))
    for found, decoded in zip(model.decode_above(raw, every_row(threshold)), every, strict=True):
        assert found.dtype == np.float32
        expected = decoded[decoded[:, 4] > threshold]
        # A sigmoid may round otherwise in another memory layout.
        np.testing.assert_allclose(found[found[:, 4] > threshold], expected, rtol=1e-6)
        assert (found[:, 4] > threshold - 2e-6).all()
