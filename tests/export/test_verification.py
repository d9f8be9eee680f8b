"""A file that predicts what the model predicts passes; one that does not is found, and where."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from backend.checks import CPU
from models.export.by_layer import where_they_part
from models.export.compared import TOLERANCES
from models.export.job import metadata_of_weights
from models.export.matched import Limits
from models.export.trials import make_trials
from models.export.verify import verify
from models.inference.predictor import load_detector
from tests.export.recorded_files import write_graphs
from tests.tiny_weights import noise, write_tiny_weights
from utils.cli.export_config import parse_export_flags
from utils.export.onnx_file import write_onnx
from utils.runtimes.onnx_runtime import OnnxRuntime
from utils.weights.load import load_weights

SIZE = ["--imgsz", "64", "96"]
FLAGS = {
    "plain": [],
    "other": ["--weights"],
    "batch": ["--batch-size", "3"],
    "dynamic": ["--dynamic"],
    "nms": ["--nms", "--conf", "0.2", "--topk-all", "7", "--topk-per-class", "3"],
    "agnostic": ["--nms", "--agnostic-nms"],
    "pixels": ["--letterbox"],
    "found_pixels": ["--letterbox", "--nms"],
    "half": ["--half"],
}


class Exported:
    """A graph, the flags and weights it is made from, and the model's predictions."""

    def __init__(self, folder, weights, name, words):
        self.config = parse_export_flags(words)
        self.checkpoint = load_weights(weights)
        self.metadata = metadata_of_weights(self.config, self.checkpoint)
        self.model = load_detector(self.checkpoint, CPU)
        images = [noise(64, 96, 1), noise(40, 100, 2), noise(128, 128, 3)]
        self.trials = make_trials(self.model, images, self.metadata)
        self.path = folder / f"{name}-file.onnx"
        write_onnx(folder / f"{name}.onnx", self.path, self.metadata, None)

    def verify(self, **changes):
        limits, tolerance = Limits.of(self.config), TOLERANCES[self.config.precision]
        metadata = dataclasses.replace(self.metadata, **changes)
        return verify(OnnxRuntime(self.path), metadata, self.trials, limits, tolerance)

    def part(self):
        return where_they_part(self.path, self.model, self.trials[0].images, self.metadata)

    def change(self, change):
        """Change the file's graph."""
        content = onnx.load_model(self.path)
        change(content.graph)
        onnx.save_model(content, self.path)


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    weights = write_tiny_weights(folder)
    other = write_tiny_weights(folder, seed=1)
    words = {name: ["--weights", str(weights), *SIZE, *flags] for name, flags in FLAGS.items()}
    words["other"] = ["--weights", str(other), *SIZE]
    write_graphs(folder, words)

    def make(name, of=None):
        return Exported(folder, weights, of or name, words[name])

    return make


@pytest.mark.parametrize("name", [name for name in FLAGS if name not in ("other", "half")])
def test_a_right_file_of_every_kind_of_output_passes(make, name):
    result = make(name).verify()
    assert result.fault == ""
    assert result.num_matched == result.num_found > 0
    assert 0 <= result.scores < 1e-3 and 0 <= result.pixels < 0.1


def test_a_dynamic_file_is_tried_with_three_sizes_and_several_batches(make):
    shapes = [trial.images.shape for trial in make("dynamic").trials]
    assert shapes[:3] == [(1, 3, 64, 96)] * 3
    assert shapes[3:] == [(2, 3, 32, 96), (3, 3, 64, 112)]


def test_a_half_file_passes_within_its_own_tolerance_alone(make):
    half = make("half")
    result = half.verify()
    assert result.scores > TOLERANCES["float32"].row_scores


def scaled(graph, name, factor):
    for tensor in graph.initializer:
        if tensor.name == name:
            values = numpy_helper.to_array(tensor) * np.float32(factor)
            tensor.CopyFrom(numpy_helper.from_array(values, name))
            return
    raise AssertionError([tensor.name for tensor in graph.initializer])
