"""A file that predicts what the model predicts passes; one that does not is found."""

import dataclasses
import re

import numpy as np
import onnx
import pytest

from duet.backend import device, nn
from duet.models.export.job import write_trace
from duet.models.export.verify import (
    BOXES,
    MASKS_APART,
    SCORES,
    TOLERANCES,
    Comparison,
    make_trials,
)
from duet.utils.errors import UserError
from duet.utils.evaluation.nms import SuppressionSettings
from duet.utils.export.config import ExportConfig
from duet.utils.export.metadata import DETECTIONS, FLOATS, Metadata
from tests.export.every_kind import FLAGS, change_constant
from tests.small import noise

LOOSE = {"half", "mask half", "mask half nms", "class half"}


@pytest.mark.parametrize("name", [name for name in FLAGS if name != "other"])
def test_correct_file_of_every_output_kind_passes(graph_of, name):
    exported = graph_of(name)
    onnx.checker.check_model(onnx.load(exported.path), full_check=True)
    result = exported.verify()
    assert result.fault == ""
    # Of noise that the file makes smaller, or that float16 rounds, a few are close calls.
    assert result.num_found >= result.num_matched > 0
    if name in LOOSE:
        assert result.num_matched >= 0.9 * result.num_found
    else:
        assert result.num_matched == result.num_found
        limits = {BOXES: 0.1, MASKS_APART: 0.02, "probabilities": 1e-4}
        assert all(0 <= value < limits.get(key, 1e-3) for key, value in result.largest.items())


def test_metadata_describes_inputs_and_outputs(graph_of):
    metadata = graph_of("nms").metadata
    assert (metadata.image, metadata.output, metadata.image_size) == (FLOATS, DETECTIONS, (64, 96))
    wanted = SuppressionSettings(0.2, 0.45, False, None, 7, multi_label=False)
    assert SuppressionSettings(**metadata.suppression) == wanted


@pytest.mark.parametrize("name", ["mask rows", "mask nms", "class dynamic"])
def test_openvino_runs_the_same_file(graph_of, name):
    result = graph_of(name).verify("openvino")
    assert result.fault == "" and result.num_matched == result.num_found > 7


@pytest.mark.skipif(not device.supports("torchscript"), reason="PyTorch's alone")
@pytest.mark.parametrize("name", ["plain", "mask rows", "class batch"])
def test_trace_computes_the_same(graph_of, tmp_path, name):
    exported = graph_of(name)
    exported.path = tmp_path / "a.torchscript"
    write_trace(exported.model, exported.metadata, exported.path)
    result = exported.verify("torchscript")
    assert result.fault == "" and result.num_matched == result.num_found > 2


def test_dynamic_file_is_tried_with_sizes_and_batches(graph_of):
    shapes = [trial.images.shape for trial in graph_of("dynamic").trials]
    assert shapes == [(1, 3, 64, 96)] * 3 + [(2, 3, 32, 96), (3, 3, 64, 112)]


def test_half_precision_file_passes_only_its_own_tolerance(graph_of):
    half = graph_of("half")
    assert half.verify().largest[SCORES] > TOLERANCES["float32"].row_scores
    half.metadata = dataclasses.replace(half.metadata, precision="float32")
    runtime = half.runtime()
    runtime.metadata = half.metadata
    half.runtime = lambda name: runtime
    assert "scores differ by" in half.verify().fault


def swap_classes(values):
    rows = values.reshape(3, 10, *values.shape[1:])
    rows[:, [5, 6]] = rows[:, [6, 5]]


def scale(factor):
    return lambda values: np.multiply(values, factor, values)


@pytest.mark.parametrize(
    ("name", "constant", "change", "text"),
    [
        ("plain", "model.1.conv.weight", scale(1.05), "scores differ by up to"),
        ("plain", "", scale(1.1), "boxes differ by up to"),
        ("plain", "model.4.m.0.weight", swap_classes, "scores differ by up to"),
        ("plain", "model.0.conv.weight", scale(np.nan), "differ by up to nan"),
        ("nms", "model.4.m.0.weight", swap_classes, "match the model's; accepted"),
        ("mask rows", "model.4.proto.cv3.conv.weight", scale(-1), "prototypes differ by up to"),
        ("mask nms", "model.4.proto.cv3.conv.weight", scale(-1), "its masks have an IoU of"),
    ],
)
def test_wrong_constant_is_detected(graph_of, name, constant, change, text):
    exported = graph_of(name)
    change_constant(exported.path, constant or exported.anchors(), change)
    assert text in exported.verify().fault


def test_swapped_probabilities_are_detected(graph_of):
    exported = graph_of("class plain")
    for trial in exported.trials:
        trial.outputs[0][:] = trial.outputs[0][:, [1, 0, 2, 4, 3]]
    assert "probabilities differ by up to" in exported.verify().fault


def test_graph_of_other_weights_or_classes_is_detected(graph_of):
    exported = graph_of("plain")
    names = exported.metadata.class_names
    exported.metadata = dataclasses.replace(exported.metadata, class_names=names[::-1])
    fault = exported.verify().fault
    assert "its metadata is" in fault and repr(names) in fault
    exported = graph_of("plain")
    exported.path = graph_of("other").path
    assert exported.verify().fault


def test_wrong_nms_limit_is_detected(graph_of):
    exported = graph_of("nms")
    exported.config = dataclasses.replace(exported.config, top_per_class=1)
    assert re.search("only .* match the model's", exported.verify().fault)


@pytest.mark.parametrize(
    ("found", "matched", "precision", "is_wrong"),
    [
        (100, 98, "float32", False),
        (20, 18, "float32", True),
        (20, 10, "int8", False),
        (20, 9, "int8", True),
        (0, 0, "float32", False),
    ],
)
def test_most_detections_must_be_found_by_both(found, matched, precision, is_wrong):
    metadata = Metadata(("a",), 32, (64, 64), precision=precision)
    result = Comparison(metadata, ExportConfig("a.pt"))
    result.num_found, result.num_matched = found, matched
    assert bool(result.fault_of_matches()) == is_wrong


def test_non_finite_model_cannot_be_exported(graph_of):
    exported = graph_of("plain")
    arrays = nn.state_arrays(exported.model)
    arrays["model.0.conv.weight"][:] = np.nan
    nn.load_state_arrays(exported.model, arrays)
    with pytest.raises(UserError, match="the model's predictions are not finite"):
        make_trials(exported.model, [noise(64, 96)], exported.metadata)
