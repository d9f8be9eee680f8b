"""A file that predicts what the model predicts passes; one that does not is found, and where."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from backend import nn, ops
from backend.checks import CPU
from models.export.by_layer import where_they_part
from models.export.compared import SCORES, TOLERANCES, largest_difference
from models.export.job import metadata_of_weights
from models.export.matched import Limits
from models.export.trials import chosen_images, make_trials
from models.export.verify import predict, verify
from models.inference.predictor import load_detector
from tests.export.recorded_files import write_graphs
from tests.tiny_weights import noise, write_tiny_weights
from utils.cli.export_config import parse_export_flags
from utils.errors import UserError
from utils.export.onnx_file import write_onnx
from utils.runtimes.onnx_runtime import OnnxRuntime
from utils.weights.load import load_weights

SIZE = ["--imgsz", "64", "96"]
FLAGS = {
    "plain": [],
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
        images = [noise(64, 96, 1), noise(50, 96, 2), noise(64, 70, 3)]
        self.trials = make_trials(self.model, images, self.metadata)
        self.path = folder / f"{name}-file.onnx"
        write_onnx(folder / f"{name}.onnx", self.path, self.metadata, None)

    def verify(self, **changes):
        limits, tolerance = Limits.of(self.config), TOLERANCES[self.config.precision]
        metadata = dataclasses.replace(self.metadata, **changes)
        return verify(OnnxRuntime(self.path), metadata, self.trials, limits, tolerance)

    def part(self):
        return where_they_part(self.path, self.model, self.trials[0].images, self.metadata)

    def anchors(self):
        """The name of the first level's anchors in the graph, in whatever unit they are there."""
        wanted = ops.to_numpy(self.model.head.anchors)[0].ravel()
        for tensor in onnx.load_model(self.path).graph.initializer:
            values = numpy_helper.to_array(tensor).ravel()
            if values.size == wanted.size and np.ptp(values / wanted) < 1e-4:
                return tensor.name
        raise AssertionError("no such constant")

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

    def make(name):
        return Exported(folder, weights, name, words[name])

    return make


@pytest.mark.parametrize("name", [name for name in FLAGS if name != "half"])
def test_a_right_file_of_every_kind_of_output_passes(make, name):
    result = make(name).verify()
    assert result.fault == ""
    # Of noise that the file makes smaller, a few are close calls.
    least = 0.99 if "pixels" in name else 1
    assert result.num_found >= result.num_matched >= least * result.num_found > 0
    assert 0 <= result.largest["scores"] < 1e-3 and 0 <= result.largest["boxes"] < 0.1


def test_a_dynamic_file_is_tried_with_three_sizes_and_several_batches(make):
    shapes = [trial.images.shape for trial in make("dynamic").trials]
    assert shapes[:3] == [(1, 3, 64, 96)] * 3
    assert shapes[3:] == [(2, 3, 32, 96), (3, 3, 64, 112)]


def test_a_file_that_resizes_is_tried_with_the_images_as_they_are(make):
    shapes = [trial.images.shape for trial in make("pixels").trials if trial.is_resized]
    assert shapes[:3] == [(1, 3, 64, 96), (1, 3, 50, 96), (1, 3, 64, 70)]


def test_a_file_that_resizes_is_tried_with_images_of_up_to_and_above_twice_its_size(make):
    shapes = [trial.images.shape for trial in make("pixels").trials if trial.is_resized]
    assert shapes[3:] == [(1, 3, 96, 144), (1, 3, 160, 240)]


def test_the_trial_that_fails_is_known(make):
    exported = make("dynamic")
    wrong = exported.trials[3]
    exported.trials[3] = wrong._replace(outputs=(wrong.outputs[0] + 1,))
    result = exported.verify()
    assert result.failing is exported.trials[3]
    assert result.fault.startswith("in 2 images of 96 x 32 px, ")


def test_a_half_file_passes_within_its_own_tolerance_alone(make):
    half = make("half")
    rows, of_half = TOLERANCES["float32"], TOLERANCES["float16"]
    ((predicted,),) = predict(OnnxRuntime(half.path), half.trials[0].images)
    apart = largest_difference(predicted, half.trials[0].outputs[0][0], SCORES)
    assert apart > rows.row_scores
    half.config = dataclasses.replace(half.config, half=False)
    assert "a score of" in half.verify().fault
    assert of_half.row_scores > rows.row_scores


def change_initializer(graph, name, change):
    (tensor,) = [tensor for tensor in graph.initializer if tensor.name == name]
    values = numpy_helper.to_array(tensor).copy()
    change(values)
    tensor.CopyFrom(numpy_helper.from_array(values, name))


def test_a_wrong_weight_is_found_at_its_layer(make):
    def damage(values):
        values[3, 1, 1, 1] += 1

    exported = make("plain")
    exported.change(lambda graph: change_initializer(graph, "model.1.conv.weight", damage))
    assert "row" in exported.verify().fault
    part = exported.part()
    assert part.startswith("the first layer that differs is layer 1, Conv, which returns ")
    theirs, ours = (
        float(word) for word in re.findall(r"returns (\S+) at .* model (\S+)$", part)[0]
    )
    assert abs(theirs - ours) > 1e-3


@pytest.mark.parametrize("name", ["batch", "dynamic", "agnostic", "pixels"])
def test_the_layer_is_found_in_every_kind_of_graph(make, name):
    def damage(values):
        values[5] *= 1.5

    exported = make(name)
    exported.change(lambda graph: change_initializer(graph, "model.1.conv.weight", damage))
    assert exported.verify().fault
    assert exported.part().startswith("the first layer that differs is layer 1, Conv")


def test_a_wrong_anchor_is_found_in_the_head(make):
    def damage(values):
        values[..., 0] *= 1.1

    exported = make("plain")
    with_anchor = exported.anchors()
    exported.change(lambda graph: change_initializer(graph, with_anchor, damage))
    fault = exported.verify().fault
    assert "a box of" in fault and " px, the model's is " in fault
    assert (
        exported.part() == "layers 0 to 3 agree; the difference is in layer 4, Detect, or after it"
    )


def test_swapped_classes_are_found_in_the_head(make):
    def damage(values):
        rows = values.reshape(3, 10, *values.shape[1:])
        rows[:, [5, 6]] = rows[:, [6, 5]]

    exported = make("plain")
    exported.change(lambda graph: change_initializer(graph, "model.4.m.0.weight", damage))
    assert "a score of" in exported.verify().fault
    assert "layer 4, Detect" in exported.part()


def test_swapped_class_names_are_found(make):
    exported = make("plain")
    names = exported.metadata.class_names
    fault = exported.verify(class_names=(names[1], names[0], *names[2:])).fault
    assert "its metadata is" in fault and repr(names) in fault


def test_a_graph_of_other_weights_is_found_at_the_first_layer(make):
    exported = make("plain")
    exported.path = make("other").path
    assert exported.verify().fault
    assert exported.part().startswith(
        "the first layer that differs is layer 0, Conv, which returns "
    )


def test_an_output_of_no_numbers_is_found(make):
    def damage(values):
        values[0] = np.nan

    exported = make("plain")
    exported.change(lambda graph: change_initializer(graph, "model.0.conv.weight", damage))
    assert "of nan" in exported.verify().fault
    assert exported.part().startswith(
        "the first layer that differs is layer 0, Conv, which returns nan at "
    )


def test_a_file_with_a_wrong_limit_of_nms_is_found(make):
    exported = make("nms")
    exported.config = dataclasses.replace(exported.config, top_per_class=1)
    assert re.search("only the (model|file) finds class", exported.verify().fault)


def test_boxes_of_a_file_with_nms_that_lie_a_little_aside_are_found(make):
    def damage(values):
        values *= 1.01

    exported = make("agnostic")
    name = exported.anchors()
    exported.change(lambda graph: change_initializer(graph, name, damage))
    assert "which the model does not predict" in exported.verify().fault


def test_a_model_without_numbers_cannot_be_exported(make):
    exported = make("plain")
    arrays = nn.state_arrays(exported.model)
    arrays["model.0.conv.weight"][:] = np.nan
    nn.load_state_arrays(exported.model, arrays)
    with pytest.raises(UserError, match="the model's predictions are not finite"):
        make_trials(exported.model, [noise(64, 96)], exported.metadata)


def test_images_of_the_built_in_dataset_are_drawn_alike_each_time():
    once, again = chosen_images(None), chosen_images(None)
    assert [image.shape for image in once] == 4 * [(320, 240, 3), (240, 320, 3)]
    assert all(map(np.array_equal, once, again))
    assert len({image.tobytes() for image in once}) == len(once)
