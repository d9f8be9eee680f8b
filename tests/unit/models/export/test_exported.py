"""An exported file as a predictor: its batches, sizes, NMS and errors."""

import numpy as np
import pytest

from duet.backend import ops
from duet.models.export.exported import ExportedPredictor
from duet.models.export.job import run_export
from duet.models.inference.image_detector import ImageDetector
from duet.models.inference.predictor import input_size, make_predictor
from duet.models.inference.predictors import Ensemble
from duet.utils.errors import UserError
from duet.utils.evaluation.nms import SuppressionSettings
from duet.utils.export.config import ExportConfig
from duet.utils.export.metadata import DETECTIONS, Metadata
from duet.utils.weights.checkpoint import Checkpoint, Header
from duet.utils.weights.load import ExportedWeights
from tests.small import tiny_checkpoint

NAMES = ("a", "b", "c", "d", "e")
SETTINGS = SuppressionSettings(confidence_threshold=0.25, multi_label=False)


class Runtime:
    """Returns a row an image: a box of 8 x 4 px at (16, 12), sure by the image's mean; class 2."""

    name = "a runtime"

    def __init__(self, columns=10, names=NAMES, **given):
        values = {"stride": 16, "image_size": (32, 48), **given}
        self.metadata = Metadata(names, **values)
        self.columns, self.seen = columns, []

    def __call__(self, images):
        self.seen.append(images)
        rows = np.zeros((len(images), 1, self.columns), np.float32)
        rows[:, 0, :5] = 16, 12, 8, 4, 0
        rows[:, 0, 4] = images.reshape(len(images), -1).mean(axis=1)
        rows[:, 0, 7] = 1
        return (rows,)


class Found(Runtime):
    """Returns detections as a graph with NMS does; unused rows are zeros."""

    def __init__(self, *rows, **given):
        super().__init__(output=DETECTIONS, **given)
        self.rows = np.float32([[*rows, *([[0] * 6] * (3 - len(rows)))]])

    def __call__(self, images):
        return (self.rows,)


def detector(runtime, **given):
    return ImageDetector(ExportedPredictor(runtime, "a.onnx"), "cpu", 640, SETTINGS, **given)


@pytest.mark.parametrize("num_images, calls", [(1, 1), (2, 1), (3, 2), (4, 2)])
def test_batch_is_filled_up_and_surplus_rows_dropped(num_images, calls):
    runtime = Runtime(batch_size=2)
    images = np.stack([np.full((3, 32, 48), 50 * index, np.uint8) for index in range(num_images)])
    found = ExportedPredictor(runtime)(images)
    assert [seen.shape for seen in runtime.seen] == [(2, 3, 32, 48)] * calls
    expected = [50 * index / 255 for index in range(num_images)]
    np.testing.assert_allclose([rows[0, 4] for (rows,) in found], expected, rtol=1e-5)


def test_dynamic_file_takes_any_batch():
    runtime = Runtime(dynamic=True, batch_size=1)
    predictor = ExportedPredictor(runtime)
    assert predictor.fixed_size is None
    assert len(predictor(np.zeros((5, 3, 64, 16), np.uint8))) == 5
    assert runtime.seen[0].shape == (5, 3, 64, 16) and runtime.seen[0].dtype == np.float32


def test_image_is_letterboxed_and_boxes_are_mapped_back():
    runtime = Runtime()
    # 64 x 64 px become 32 x 32 in the middle of 32 x 48: 8 px to the right, twice as small.
    (found,) = detector(runtime).detect([np.full((64, 64, 3), 255, np.uint8)])
    (image,) = runtime.seen
    assert image.shape == (1, 3, 32, 48)
    np.testing.assert_allclose(
        image[0, 0, 0, [0, 7, 8, 39, 40]], np.float32([114, 114, 255, 255, 114]) / 255
    )
    np.testing.assert_allclose(found.boxes_xyxy, [[8, 20, 24, 28]], atol=1e-4)
    assert found.class_index.tolist() == [2]


@pytest.mark.parametrize("number", [5, -1, 1e9, np.nan, np.inf])
def test_class_beyond_the_metadata_is_refused(number):
    runtime = Found([1, 2, 21, 30, 0.75, number], image_size=(32, 32))
    with pytest.raises(
        UserError, match="a.onnx: it returns the class .* has 5 classes; export it again"
    ):
        detector(runtime).detect([np.zeros((32, 32, 3), np.uint8)])


def test_rows_of_another_width_are_refused():
    with pytest.raises(UserError, match=r"a.onnx: .* \(1, 1, 9\), but .* \(1, any, 10\)"):
        detector(Runtime(columns=9)).detect([np.zeros((32, 48, 3), np.uint8)])


@pytest.mark.parametrize("head", ["Nope", "Segment", "Conv"])
def test_unknown_head_error_names_file_and_next_step(head):
    with pytest.raises(
        UserError, match=rf"--weights a\.onnx: .* head '{head}' .*; use the weights"
    ):
        ExportedPredictor(Runtime(head=head), "a.onnx")


# Together with other weights.


def test_exported_file_and_weights_detect_together(tmp_path):
    model = tiny_checkpoint(tmp_path)
    file = ExportedWeights("a.onnx", Runtime(names=model.class_names))
    both = make_predictor([file, model], "cpu")
    assert (both.fixed_size, both.stride, both.takes_arrays) == ((32, 48), 16, False)
    image = np.full((1, 3, 32, 48), 100, np.uint8)
    single = make_predictor([model], "cpu")
    tensor = ops.tensor(image.astype(np.float32) / 255)
    ours = single.decode_above(single(tensor), SuppressionSettings(0.0))[0]
    rows = both.decode_above(both(tensor), SuppressionSettings(0.0))[0]
    assert len(rows) == 1 + len(ours)
    np.testing.assert_allclose(rows[1:], ours, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(rows[0, 4], 100 / 255, rtol=1e-5)


def test_ensemble_of_fixed_files_needs_one_size():
    first, second = Runtime(), Runtime(image_size=(48, 32))
    pair = [ExportedPredictor(runtime, name) for runtime, name in ((first, "a"), (second, "b"))]
    with pytest.raises(UserError, match="b accepts only images of 48 x 32 px, .* --dynamic"):
        Ensemble(pair, ["a", "b"])
    free = ExportedPredictor(Runtime(dynamic=True), "c")
    assert Ensemble([pair[0], free], ["a", "c"]).fixed_size == (32, 48)
    assert Ensemble([free, free], ["c", "d"]).fixed_size is None


# What cannot be, refused or told.


def test_file_decides_the_precision(caplog):
    make_predictor([ExportedWeights("a.onnx", Runtime(precision="int8"))], "cpu", half=True)
    assert "--half: a.onnx computes in int8, as it was exported" in caplog.text


def test_nms_limits_of_a_file_are_logged(caplog):
    within = {"confidence_threshold": 0.25, "iou_threshold": 0.45, "max_detections": 100}
    make_predictor([ExportedWeights("a.onnx", Runtime(suppression=within))], "cpu")
    (record,) = caplog.records
    assert "a.onnx includes NMS" in record.getMessage()
    assert "--conf 0.25, --iou 0.45, --max-det 100" in record.getMessage()


def test_weights_too_large_for_onnx_are_refused():
    weights = {"a": np.broadcast_to(np.zeros(1, np.float32), 2**29)}  # takes the memory of one
    with pytest.raises(UserError, match="2,147,483,648 bytes; an ONNX file holds .* --half, or"):
        run_export(ExportConfig(weights="x.pt"), Checkpoint(Header({}, ()), {}, weights, {}), None)


@pytest.mark.parametrize(
    ("given", "size"),
    [
        ({"dynamic": True, "trained_size": 96}, 96),
        ({"dynamic": True}, 48),  # of an older file: as it was exported
        ({"trained_size": 64}, 48),
    ],
)
def test_exported_file_uses_its_training_size_if_possible(given, size, caplog):
    runtime = Runtime(**given)
    assert (
        input_size(None, ExportedPredictor(runtime), [ExportedWeights("a.onnx", runtime)]) == size
    )
    assert caplog.messages == []


def test_fixed_size_file_accepts_no_other_size(caplog):
    runtime = Runtime(trained_size=128)
    with pytest.raises(UserError, match="--img 640: .* accepts only images of 32 x 48 px"):
        input_size(640, ExportedPredictor(runtime), [ExportedWeights("a.onnx", runtime)])
    assert input_size(48, ExportedPredictor(runtime), [ExportedWeights("far.onnx", runtime)]) == 48
    line = "far.onnx: trained at 128 px, used at 48 px: expect worse results"
    assert caplog.messages == [line]
