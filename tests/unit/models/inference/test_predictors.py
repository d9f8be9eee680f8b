"""Ways to predict: half precision, folded, augmented, of one class, and several models together."""

import numpy as np
import pytest

from duet import backend
from duet.backend import amp, autograd, nn, ops
from duet.models.blocks.yolov5 import Conv
from duet.models.detector import Detector
from duet.models.graph import parse_model, read_model_yaml
from duet.models.heads.anchor.head import AnchorHead
from duet.models.inference.predictors import Augmented, Ensemble, HalfPrecision, OneClass
from duet.models.stored import fold_batch_norm
from duet.utils.data.image.letterbox import fit_letterbox
from duet.utils.errors import UserError
from duet.utils.evaluation.nms import SuppressionSettings, non_max_suppression
from duet.utils.files.yaml_files import parse_yaml
from tests.frameworks import dispatched, total
from tests.golden_models import assert_near, drawn_input, drawn_model, info, stored
from tests.presence_head import PresenceHead
from tests.small import TINY, write_classifier_yaml

# Float32 sums of a whole network in another order, relative to the largest value; 2e-6 was
# measured for OneFlow.
NETWORK_TOLERANCE = 2e-5
PASSES = AnchorHead.passes


EVERY_ROW = SuppressionSettings(0.0, max_detections=10**6)


def all_rows(predictor, images):
    with autograd.no_grad():
        return np.stack(predictor.decode_above(predictor(ops.tensor(images)), EVERY_ROW))


def assert_rows_near(found, wanted):
    assert found.shape == wanted.shape
    for columns in (np.s_[..., :4], np.s_[..., 4:]):  # pixels, then scores
        assert_near(found[columns], wanted[columns], NETWORK_TOLERANCE)


@pytest.mark.parametrize("name", ["tta_p5", "tta_p6"])
def test_augmented_predictions_match_stored_rows(name):
    case = info("inference")[name]
    folder = "hub/" if name == "tta_p6" else ""
    model = Augmented(drawn_model(folder + case["yaml"], case["gain"]))
    found = all_rows(model, drawn_input(case["input"]))
    assert found.shape[1] == case["rows"]
    assert_rows_near(found, stored(f"inference/{name}")["decoded"])


class PresentOnly:
    """A predictor whose head has no boxes."""

    head, stride = PresenceHead(5, 8, 8), 8
    fixed_size, takes_arrays = None, False


def test_augmenting_a_head_without_boxes_is_refused():
    with pytest.raises(UserError, match="--augment: not supported for the task presence.*omit it"):
        Augmented(PresentOnly())


# Several models.

NAMES = ("a.pt", "b.pt")


@pytest.fixture(scope="module")
def members():
    """A model of stride 32 and one of stride 64, with different weights."""
    case = info("inference")["ensemble"]
    settings = zip(case["models"], case["gain"], case["name_prefix"], strict=True)
    return [drawn_model(*setting) for setting in settings]


def as_rows(found):
    columns = found.scores[:, None], found.class_index[:, None]
    return np.concatenate([found.boxes_xyxy, *columns], axis=1)


def test_ensemble_rows_match_stored_ones_with_and_after_nms(members):
    rows, wanted = (
        all_rows(Ensemble(members, NAMES), drawn_input([2, 3, 192, 256])),
        stored("inference/ensemble"),
    )
    assert_rows_near(rows, wanted["merged"])
    options = info("inference")["ensemble"]["nms"]
    for image, boxes in zip(rows, (wanted["nms0"], wanted["nms1"]), strict=True):
        settings = SuppressionSettings(
            options["confidence"], options["iou"],
            max_detections=options["max_det"], multi_label=options["multi_label"],
        )  # fmt: skip
        found = as_rows(non_max_suppression(image, settings))
        np.testing.assert_array_equal(found[:, 5], boxes[:, 5])
        assert_rows_near(found[None, :, :5], boxes[None, :, :5])


def test_augmented_ensemble_matches_stored_rows(members):
    rows = all_rows(
        Ensemble([Augmented(member) for member in members], NAMES), drawn_input([2, 3, 192, 256])
    )
    assert rows.shape[1] == info("inference")["ensemble"]["rows"][1]
    assert_rows_near(rows[:, ::8], stored("inference/ensemble")["merged_augment_every8"])


def test_ensemble_stride_fits_all_members():
    class Member:
        head = drawn_model("yolov5n.yaml", 1.8).head
        fixed_size, takes_arrays = None, False

        def __init__(self, stride):
            self.stride = stride

    assert Ensemble([Member(32), Member(64)], NAMES).stride == 64
    assert Ensemble([Member(32), Member(48)], NAMES).stride == 96


def test_ensemble_refuses_differing_class_counts(members):
    other = drawn_model("yolov5n.yaml", 1.8, classes=1)
    with pytest.raises(UserError, match=r"b.pt has 1 class, a.pt has 5; .* the same number"):
        Ensemble([members[0], other], NAMES)


def test_ensemble_refuses_other_tasks(members):
    with pytest.raises(UserError, match="b.pt .task presence. cannot .* a.pt .task detect."):
        Ensemble([members[0], PresentOnly()], NAMES)
    with pytest.raises(
        UserError, match="b.pt .task presence. cannot .* a.pt .task presence.; give"
    ):
        Ensemble([PresentOnly(), PresentOnly()], NAMES)


# Folded.


def test_folding_twice_changes_nothing():
    part, random = Conv(2, 3).eval(), np.random.default_rng(0)
    drawn = {name: random.random(x.shape) for name, x in nn.state_arrays(part).items()}
    nn.load_state_arrays(part, drawn)
    fold_batch_norm(part)
    once = nn.state_arrays(part)
    fold_batch_norm(part)
    for name, array in nn.state_arrays(part).items():
        np.testing.assert_array_equal(array, once[name])


# Half precision.

# Each layer rounds by up to 2^-11 or 2^-8; over 60 layers 8 times that was measured (root mean
# squares).
HALF_TOLERANCES = {"float16": 20 * 2**-11, "bfloat16": 20 * 2**-8}


@pytest.fixture(scope="module")
def float32_model():
    return drawn_model("yolov5n.yaml", 1.8)


def maps(predictor, images):
    with autograd.no_grad():
        return predictor(ops.tensor(images))


@pytest.mark.parametrize("dtype", HALF_TOLERANCES)
def test_half_precision_maps_are_float32_and_close(float32_model, dtype):
    if dtype not in amp.supported("cpu"):
        pytest.skip(f"{backend.use()} has no {dtype} on a CPU")
    images = drawn_input([1, 3, 64, 96])
    plain, predictor = maps(float32_model, images), HalfPrecision(float32_model, "cpu", dtype)
    found = maps(predictor, images)
    for level, wanted in zip(found, plain, strict=True):
        assert ops.dtype_of(level) == "float32"
        expected = ops.to_numpy(wanted)
        error = (ops.to_numpy(level) - expected).std() / expected.std()
        assert 0 < error < HALF_TOLERANCES[dtype]
    rows = predictor.decode_above(found, EVERY_ROW)
    assert rows[0].dtype == np.float32
    assert rows[0].shape == float32_model.decode_above(plain, EVERY_ROW)[0].shape


@pytest.mark.parametrize("dtype", HALF_TOLERANCES)
def test_weights_cast_once_equal_casting_in_each_pass(float32_model, dtype):
    if dtype not in amp.supported("cpu"):
        pytest.skip(f"{backend.use()} has no {dtype} on a CPU")
    model, images = nn.frozen_copy(float32_model), drawn_input([1, 3, 64, 96])
    fold_batch_norm(model)
    predictor, before = HalfPrecision(model, "cpu", dtype), nn.state_arrays(model)
    x = ops.channels_last(ops.tensor(images))
    with autograd.no_grad(), amp.autocast("cpu", dtype):
        wanted = [ops.to_numpy(ops.cast(level, "float32")) for level in model(x)]
    for level, expected in zip(maps(predictor, images), wanted, strict=True):
        np.testing.assert_array_equal(ops.to_numpy(level), expected)
    counts = total(dispatched(lambda _: maps(predictor, images)))
    assert counts.total() <= 160
    assert counts["_to_copy"] <= 10  # the images, and the outputs of each level
    for name, array in nn.state_arrays(model).items():
        np.testing.assert_array_equal(array, before[name])


# One class.

# cx, cy, w, h, objectness, then five classes; the first two overlap.
ROWS = np.array([
    [20, 20, 10, 10, 0.9, 0.1, 0.8, 0.0, 0.0, 0.2],
    [21, 20, 10, 10, 0.9, 0.7, 0.1, 0.0, 0.0, 0.0],
    [50, 50, 10, 10, 0.5, 0.0, 0.0, 0.0, 0.6, 0.9],
], np.float32)  # fmt: skip


class Finds:
    """A predictor that finds the rows in every image."""

    stride = 8
    fixed_size, takes_arrays = None, False

    def __init__(self, head):
        self.head = head

    def __call__(self, images):
        return len(images)

    def decode_above(self, raw, settings):
        return [ROWS] * raw


@pytest.fixture(scope="module")
def one_class():
    return OneClass(Finds(Detector(parse_model(parse_yaml(TINY.encode()), 5)).head))


def test_single_class_rows_keep_their_best_score(one_class):
    found = one_class.decode_above(one_class([0, 0]), SuppressionSettings(0.1))
    assert len(found) == 2
    best = np.array([0.8, 0.7, 0.9], np.float32)
    np.testing.assert_array_equal(found[0], np.column_stack([ROWS[:, :5], best]))
    assert found[0].dtype == np.float32


def test_single_class_nms_compares_boxes_across_classes(one_class):
    (rows,) = one_class.decode_above(1, SuppressionSettings(0.1))
    place = fit_letterbox((64, 64), (64, 64))
    found = one_class.head.finish(rows, place, SuppressionSettings(0.1, 0.5))
    assert found.class_index.tolist() == [0, 0]
    np.testing.assert_allclose(found.scores, [0.72, 0.45], rtol=1e-6)  # float32
    apart = one_class.head.finish(ROWS, place, SuppressionSettings(0.1, 0.5))
    assert len(set(apart.class_index.tolist())) > 1


# Classes of an image and its mirror.


@pytest.fixture
def classifier(tmp_path):
    model = Detector(read_model_yaml(write_classifier_yaml(tmp_path)))
    model.initialize(seed=3)
    return model.eval()


def softmax(logits):
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def test_augmented_scores_average_image_and_mirror(classifier):
    images = np.random.default_rng(0).random((3, 3, 32, 40)).astype(np.float32)
    images[:, :, :, :16] *= 0.2  # the mirror is another image
    with autograd.no_grad():
        found = Augmented(classifier)
        rows = found.decode_above(
            found(ops.tensor(images)), SuppressionSettings(0.9)
        )  # whatever the threshold
        logits = [ops.to_numpy(classifier(ops.tensor(np.ascontiguousarray(x)))[0])
                  for x in (images, images[..., ::-1])]  # fmt: skip
    plain, mirrored = map(softmax, logits)
    assert np.abs(plain - mirrored).max() > 1e-4
    assert [row.shape for row in rows] == [(1, 3)] * 3
    np.testing.assert_allclose(np.concatenate(rows), (plain + mirrored) / 2, atol=1e-6)
    np.testing.assert_allclose(np.sum(rows, axis=(1, 2)), 1, atol=1e-6)
