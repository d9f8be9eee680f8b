"""Exported files of a classifier: logits of whole images, which the graph normalizes."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import pytest

from backend import autograd, device
from backend.checks import CPU
from models.detector import images_to_tensor
from models.export.classes_compared import compare_logits
from models.export.compared import TOLERANCES
from models.export.differences import Batch, Verified
from models.export.kinds import kind_of_flags
from models.export.matched import Limits
from models.export.traced import write_trace
from models.export.trials import Trial
from models.heads.classify.head import ClassifyHead
from models.inference.exported import ExportedPredictor
from tests.export.exported_models import Exported
from tests.export.recorded_files import write_graphs
from tests.export.small_graphs import shapes
from tests.tiny_tasks import tiny_classifier
from tests.tiny_weights import CLASS_NAMES, noise, write_checkpoint
from utils.cli.export_config import parse_export_flags
from utils.errors import UserError
from utils.export.opening import open_runtime
from utils.runtimes.metadata import LOGITS, NORMALIZED

FLAGS = {
    "plain": [],
    "batch": ["--batch-size", "2"],
    "dynamic": ["--dynamic"],
    "half": ["--half"],
    "oldest": ["--opset", "13"],
    "newest": ["--opset", "21"],
}
IMAGES = [noise(64, 64, seed) for seed in range(3)]


def scores_of(model):
    """How probable the model holds each class of each image."""
    with autograd.no_grad():
        raw = model(images_to_tensor(np.stack(IMAGES).transpose(0, 3, 1, 2), CPU))
        return model.decode_above(raw, 0.0)


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classes")
    weights = write_checkpoint(folder / "tiny.safetensors", tiny_classifier(folder))
    words = {
        name: ["--weights", str(weights), "--imgsz", "64", *flags] for name, flags in FLAGS.items()
    }
    graphs = write_graphs(folder, words)
    return lambda name: Exported(graphs[name], weights, words[name], IMAGES)


@pytest.mark.parametrize("name", FLAGS)
def test_a_right_file_of_every_kind_passes(make, name):
    result = make(name).verify()
    assert result.fault == ""
    assert result.matches == {"dynamic": "8 of 8 images"}.get(name, "3 of 3 images")
    assert 0 < result.largest["probabilities"] < (0.02 if name == "half" else 1e-4)


def test_openvino_reads_the_same_file(make):
    result = make("dynamic").verify("openvino")
    assert result.fault == "" and result.matches == "8 of 8 images"


@pytest.mark.skipif(not device.supports("torchscript"), reason="PyTorch's alone")
def test_a_trace_passes(make, tmp_path):
    exported = make("batch")
    exported.path = tmp_path / "a.torchscript"
    write_trace(exported.model, exported.metadata, exported.path)
    assert exported.verify("torchscript").fault == ""


def test_the_output_is_logits_by_the_public_name(make):
    plain, free = make("plain"), make("dynamic")
    assert shapes(onnx.load_model(plain.path)) == {"output0": (1, len(CLASS_NAMES))}
    assert shapes(onnx.load_model(free.path)) == {"output0": ("batch", len(CLASS_NAMES))}
    assert (plain.metadata.head, plain.metadata.output) == ("Classify", LOGITS)


def test_a_file_tells_the_scores_of_the_model(make):
    for name in ("plain", "batch", "dynamic"):
        exported = make(name)
        predictor = ExportedPredictor(open_runtime(exported.path, 1))
        found = predictor.decode_above(predictor(np.stack(IMAGES).transpose(0, 3, 1, 2)), 0.5)
        assert [one.shape for one in found] == [(1, 5)] * 3
        np.testing.assert_allclose(found, scores_of(exported.model), atol=1e-5)


def test_a_file_that_takes_normalized_images_is_given_them(make):
    """Those of other programs: here one of ours that says so, normalized twice by a reference."""
    exported = make("plain")
    runtime = open_runtime(exported.path, 1)
    pixels = IMAGES[0].transpose(2, 0, 1)[None]
    mean, deviation = (
        np.array(values).reshape(3, 1, 1)
        for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    )
    (expected,) = runtime(((pixels / 255 - mean) / deviation).astype(np.float32))
    runtime.metadata = dataclasses.replace(runtime.metadata, image=NORMALIZED)
    ((found,),) = ExportedPredictor(runtime)(pixels)
    np.testing.assert_allclose(found, expected[0], rtol=1e-4, atol=1e-4)


def test_swapped_classes_are_found(make):
    exported = make("plain")
    for trial in exported.trials:
        trial.outputs[0][:] = trial.outputs[0][:, [1, 0, 2, 4, 3]]
    assert "has a probability of" in exported.verify().fault


@pytest.mark.parametrize(("lead", "is_wrong"), [(1e-4, False), (0.1, True)])
def test_two_classes_that_are_alike_may_change_places(make, lead, is_wrong):
    """By arithmetic: probabilities of a half, more or less `lead`."""
    exported = make("plain")
    theirs, ours = (
        np.log(np.array([[0.5 + part, 0.5 - part, 1e-9, 1e-9, 1e-9]], np.float32))
        for part in (lead / 2, -lead / 2)
    )
    trial = Trial(exported.trials[0].images, (ours,))
    limits, tolerance = Limits.of(exported.config), TOLERANCES["float16"]._replace(scores=0.01)
    result = Verified()
    fault = compare_logits(
        result, Batch(trial, [(theirs[0],)], exported.metadata, limits, tolerance)
    )
    assert bool(fault) == is_wrong and result.matches == "0 of 1 image"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--nms"], "--nms: a classifier finds no boxes"),
        (["--letterbox"], "--letterbox: a classifier takes the middle of an image"),
    ],
)
def test_what_a_classifier_has_no_use_for_is_refused_by_name(words, text):
    with pytest.raises(UserError, match=text):
        kind_of_flags(ClassifyHead, parse_export_flags(["--weights", "a.pt", *words]))


def test_every_format_takes_one_output():
    words = ["--weights", "a.pt", "--include", "onnx", "ncnn", "tflite", "engine", "coreml"]
    assert kind_of_flags(ClassifyHead, parse_export_flags(words)) == LOGITS


def test_logits_that_are_no_numbers_are_refused(make):
    predictor = ExportedPredictor(open_runtime(make("plain").path, 1), "a.onnx")
    for value in (np.nan, np.inf):
        with pytest.raises(UserError, match="a.onnx: its outputs are not finite"):
            predictor.decode_above([(np.array([0, value, 0, 0, 0], np.float32),)], 0.0)
