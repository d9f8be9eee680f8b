"""export.py --raw: the graph that converters of boards take, and its decoding beside it."""

import json
import os
import runpy
import shutil
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
import yaml
from onnx import helper
from PIL import Image

import duet
import export
from duet.models.export.raw import ALLOWED, require_allowed
from duet.utils.errors import UserError
from duet.utils.export.metadata import RAW_FORMS
from duet.utils.project import PROJECT
from tests.export.examples.examples import run_python
from tests.small import (
    BOX_GAIN,
    CLASS_NAMES,
    SCORE_GAIN,
    TINY,
    initial_model,
    noise,
    untrained,
    with_gains,
    write_checkpoint,
    write_small_dataset,
    write_tiny_classifier,
    write_tiny_free_weights,
    write_tiny_segmenter,
    write_tiny_weights,
)

EXAMPLE = PROJECT / "docs" / "examples" / "npu"
DECODING = runpy.run_path(str(EXAMPLE / "decode.py"))
SIZE = ("--imgsz", "64", "96")
MANY = ("--topk-all", "1000", "--topk-per-class", "1000")
KINDS = {"anchors": write_tiny_weights, "free": write_tiny_free_weights}


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Return weights by kind, each exported with NMS."""
    folder, found = tmp_path_factory.mktemp("raw"), {}
    for kind, write in KINDS.items():
        found[kind] = write(folder)
        assert not export.run(["--weights", str(found[kind]), *SIZE, "--nms", *MANY]).failed
    return found


def exported(weights, *flags):
    (path,) = export.run(["--weights", str(weights), *SIZE, *flags]).files
    return path


def ran(path, image):
    """Return the outputs of a file for an image of its size, by name, and its metadata."""
    session = onnxruntime.InferenceSession(path)
    pixels = image.transpose(2, 0, 1)[None].astype(np.float32) / 255
    outputs = session.run(None, {"images": pixels})
    names = [x.name for x in session.get_outputs()]
    return dict(zip(names, outputs, strict=True)), session.get_modelmeta().custom_metadata_map


FORMS = [
    (kind, form) for kind in KINDS for form in RAW_FORMS if (kind, form) != ("free", "sigmoid")
]


@pytest.mark.parametrize(("kind", "form"), FORMS)
def test_decoded_raw_maps_equal_the_boxes_of_an_nms_file(weights, kind, form):
    path = exported(weights[kind], "--raw", form)
    assert path.name == f"{weights[kind].stem}_raw.onnx"
    image = noise(64, 96)
    maps, texts = ran(path, image)
    assert all(x.ndim == 4 and x.shape[0] == 1 for x in maps.values())
    rows = DECODING["rows_of_maps"](
        {name: x[0] for name, x in maps.items()}, json.loads(texts["raw"])
    )
    boxes, scores, classes = DECODING["best_boxes"](rows)
    expected = ran(weights[kind].with_suffix(".onnx"), image)[0]["output0"][0]
    expected = expected[expected[:, 4] > 0]
    assert len(boxes) == len(expected) > 3
    np.testing.assert_array_equal(classes, expected[:, 5])
    np.testing.assert_allclose(scores, expected[:, 4], atol=1e-4)
    np.testing.assert_allclose(boxes, expected[:, :4], atol=1e-3)  # pixels


def test_raw_maps_are_one_per_level_or_split(weights):
    shapes = {
        name: x.shape
        for name, x in ran(exported(weights["anchors"], "--raw"), noise(64, 96))[0].items()
    }
    assert shapes == {"maps_8": (1, 30, 8, 12), "maps_16": (1, 30, 4, 6)}
    split, _ = ran(exported(weights["anchors"], "--raw", "split"), noise(64, 96))
    assert {name: x.shape[1] for name, x in split.items()} == {
        "box_8": 12, "objectness_8": 3, "classes_8": 15,
        "box_16": 12, "objectness_16": 3, "classes_16": 15,
    }  # fmt: skip


def test_mask_maps_keep_coefficients_and_prototypes(tmp_path):
    weights = write_tiny_segmenter(tmp_path)
    maps, _ = ran(exported(weights, "--raw", "split-sigmoid"), noise(64, 96))
    assert maps["coefficients_8"].shape == (1, 12, 8, 12)
    assert maps["prototypes"].shape == (1, 4, 16, 24)
    assert maps["classes_8"].min() >= 0 and maps["coefficients_8"].min() < 0


@pytest.mark.parametrize("opset", [12, 19])
def test_raw_graph_has_fixed_maps_and_few_operations(weights, opset):
    path = exported(weights["anchors"], "--raw", "sigmoid", "--opset", str(opset))
    model = onnx.load_model(path)
    onnx.checker.check_model(model, full_check=True)
    assert {node.op_type for node in model.graph.node} <= ALLOWED
    assert model.opset_import[0].version == opset
    shaped = onnx.shape_inference.infer_shapes(model).graph.value_info
    assert max(len(x.type.tensor_type.shape.dim) for x in shaped) == 4
    about = json.loads({x.key: x.value for x in model.metadata_props}["raw"])
    anchors = yaml.safe_load(TINY)["anchors"]
    assert (about["form"], about["strides"]) == ("sigmoid", [8, 16])
    np.testing.assert_allclose(about["anchors"], anchors, rtol=1e-6)


@pytest.mark.parametrize("act", ["nn.ReLU()", "nn.LeakyReLU(0.1)"])
def test_upsampling_model_without_silu_uses_opset_12(tmp_path, act):
    document = yaml.safe_load(TINY)
    document |= {"act": act}
    document["head"][:0] = [
        [-1, 1, "nn.Upsample", [None, 2, "nearest"]],
        [[-1, 2], 1, "Concat", [1]],
    ]
    document["head"][-1][0] = [5, 3]
    path = tmp_path / "up.yaml"
    path.write_text(yaml.safe_dump(document))
    model = initial_model(path, 0)
    arrays = with_gains(model, [BOX_GAIN] * 4 + [SCORE_GAIN] * 6)
    weights = write_checkpoint(tmp_path / "up.safetensors", untrained(model, CLASS_NAMES, arrays))
    path = exported(weights, "--raw", "--opset", "12")
    used = {node.op_type for node in onnx.load_model(path).graph.node}
    assert used == {"Conv", "Add", "Concat", "Resize", "Relu" if "nn.ReLU" in act else "LeakyRelu"}


def test_operation_outside_the_list_is_named():
    value = helper.make_tensor_value_info("x", 1, [1, 3, 8, 8])
    other = helper.make_tensor_value_info("y", 1, [1, 3, 8, 8])
    graph = helper.make_graph([helper.make_node("Softplus", ["x"], ["y"])], "g", [value], [other])
    with pytest.raises(UserError, match="operations Softplus, which converters of boards do not"):
        require_allowed(helper.make_model(graph))


def test_raw_form_unsupported_by_the_task_is_refused(tmp_path, weights):
    with pytest.raises(UserError, match="values that are no logits; use --raw split-sigmoid"):
        exported(weights["free"], "--raw", "sigmoid")
    with pytest.raises(UserError, match="returns logits already; leave it out"):
        exported(write_tiny_classifier(tmp_path), "--raw")


def test_raw_maps_are_refused_as_weights(weights):
    path = exported(weights["anchors"], "--raw")
    with pytest.raises(UserError, match="a file of --raw returns maps for a board's own decoding"):
        duet.load(str(path))


def test_calibration_list_holds_the_val_image_paths(weights, tmp_path):
    data = write_small_dataset(tmp_path, CLASS_NAMES)
    listed = tmp_path / "images.txt"
    exported(weights["anchors"], "--raw", "--data", str(data), "--calibration-list", str(listed))
    images = sorted((data.parent / "images" / "val").glob("*.jpg"))
    assert listed.read_text().splitlines() == list(map(str, images)) and len(images) == 6


def test_thin_picture_keeps_one_pixel_row():
    pixels, _, corner = DECODING["letterbox"](Image.new("RGB", (3000, 2)), 64, 64)
    grey = (pixels == np.float32(114 / 255)).all(axis=(0, 1))
    assert corner == (0, 31) and np.flatnonzero(~grey.all(axis=1)).tolist() == [31]


def test_cpp_and_python_board_programs_agree(weights, tmp_path):
    if not shutil.which("c++"):
        assert os.environ.get("REQUIRE_COMPILER") != "1", "c++ is needed to build the example"
        pytest.skip("no c++")
    program = tmp_path / "decode"
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-o", program]
    subprocess.run(["c++", *flags, EXAMPLE / "decode.cpp"], check=True, timeout=60)
    picture = tmp_path / "picture.png"
    Image.fromarray(noise(64, 96)).save(picture)
    for form in ("maps", "sigmoid"):
        path = exported(weights["anchors"], "--raw", form)
        printed = run_python(EXAMPLE / "decode.py", path, picture, tmp_path / form).splitlines()
        done = subprocess.run(
            [program, tmp_path / form], capture_output=True, text=True, timeout=60
        )
        wanted = [line.split(" ") for line in printed]
        found = [line.split(" ") for line in done.stdout.splitlines()]
        assert [CLASS_NAMES[int(x[0])] for x in found] == [x[0] for x in wanted] and len(found) > 3
        numbers = [np.array([x[1:] for x in rows], float) for rows in (found, wanted)]
        clipped = numbers[0].copy()
        clipped[:, 1:] = clipped[:, 1:].clip(0, (96, 64, 96, 64))
        np.testing.assert_allclose(clipped, numbers[1], atol=0.011)  # two digits are printed
