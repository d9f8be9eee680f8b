"""The ONNX file that a user gets: what it says of itself, and how large it may be."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import numpy as np
import pytest

from duet.utils.errors import UserError
from duet.utils.export.metadata import DETECTIONS, Metadata, metadata_of
from duet.utils.export.onnx import require_below_limit, write_onnx
from duet.utils.yaml_files import parse_yaml
from tests.export.small_graphs import onnx


def arrays_of(numbers: int) -> dict[str, np.ndarray]:
    """Arrays of so many numbers, which take the memory of one."""
    half = numbers // 2
    number = np.zeros(1, np.float32)
    return {"a": np.broadcast_to(number, half), "b": np.broadcast_to(number, numbers - half)}


def write_graph(path: Path) -> Path:
    value = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in ("x", "y")
    ]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Neg", ["x"], ["y"])], "g", value[:1], value[1:]
    )
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8
    )
    model.metadata_props.add(key="author", value="another")
    onnx.save(model, path)
    return path


def test_weights_that_fill_an_onnx_file_are_refused(tmp_path: Path) -> None:
    numbers = 2**31 // 4  # of float32 in the 2 GiB where protobuf ends
    with pytest.raises(UserError, match="536,870,912 numbers; .* holds .*: use --half"):
        require_below_limit(arrays_of(numbers), half=False)
    require_below_limit(arrays_of(numbers), half=True)
    with pytest.raises(UserError, match="export a smaller model"):
        require_below_limit(arrays_of(2 * numbers), half=True)
    with pytest.raises(UserError, match="export a smaller model"):
        require_below_limit(arrays_of(2 * numbers), half=False)


def test_a_file_says_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "file.onnx"
    metadata = Metadata(("étoile", 'a "b"'), 32, (640, 480), output=DETECTIONS, precision="float16")
    write_onnx(write_graph(tmp_path / "graph.onnx"), path, metadata, None)
    model = onnx.load(path)
    assert (model.producer_name, model.producer_version) == ("Duet", "0")
    texts = {entry.key: entry.value for entry in model.metadata_props}
    assert ast.literal_eval(texts.pop("names")) == {0: "étoile", 1: 'a "b"'}
    assert {name: json.loads(text) for name, text in texts.items() if name != "task"} == {
        "batch": 1,
        "imgsz": [640, 480],
        "class_names": ["étoile", 'a "b"'],
        "stride": 32,
        "image_size": [640, 480],
        "batch_size": 1,
        "dynamic": False,
        "image": "floats",
        "output": "detections",
        "precision": "float16",
        "head": "Detect",
        "suppression": {},
        "producer": "Duet",
    }


@pytest.mark.parametrize(
    ("output", "task"),
    [("rows", "detect"), ("mask_rows", "segment"), ("masks", "segment"), ("logits", "classify")],
)
def test_yolov5_and_ultralytics_find_the_metadata_that_they_read(output, task):
    """They take Python's literals; YAML gives the same values, so OpenVINO's folder has it."""
    texts = Metadata(("a\\", 'it\'s "b"'), 64, (64, 128), 4, output=output).public_texts()
    assert texts.pop("task") == task
    found = {name: ast.literal_eval(text) for name, text in texts.items()}
    assert found == {
        "names": {0: "a\\", 1: "it's \"b\""}, "stride": 64, "imgsz": [64, 128], "batch": 4
    }  # fmt: skip
    assert {name: parse_yaml(text.encode()) for name, text in texts.items()} == found


def test_a_name_that_is_no_unicode_is_kept(tmp_path: Path) -> None:
    path, names = tmp_path / "file.onnx", ("\ud800", "\0\x1b[31m")
    write_onnx(write_graph(tmp_path / "graph.onnx"), path, Metadata(names, 32, (64, 64)), None)
    texts = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    assert metadata_of(texts).class_names == names
