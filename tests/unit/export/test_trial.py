"""A crash, a hang or too much memory of an exported file is one message, and lies in a child."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import openvino
import pytest
from openvino import opset13 as ov
from packaging.version import Version

from duet.utils.errors import UserError
from duet.utils.export import opening
from duet.utils.export.onnx import OnnxRuntime
from duet.utils.export.opening import open_runtime
from tests.onnx_files import METADATA, NODE, ROW, SIDE, bare_rows, constant, make_file

LARGE = 2**40
VALUE = onnx.helper.make_tensor_value_info
CASTS = [
    NODE("Cast", ["images"], ["whole"], to=onnx.TensorProto.INT32),
    NODE("Div", ["whole", "n"], ["divided"]),
    NODE("Cast", ["divided"], ["big"], to=onnx.TensorProto.FLOAT),
]
BODY = onnx.helper.make_graph(
    [NODE("Identity", ["go"], ["goes"]), NODE("Sin", ["x"], ["y"])],
    "body",
    [
        VALUE("i", onnx.TensorProto.INT64, []),
        VALUE("go", onnx.TensorProto.BOOL, []),
        VALUE("x", onnx.TensorProto.FLOAT, None),
    ],
    [VALUE("goes", onnx.TensorProto.BOOL, []), VALUE("y", onnx.TensorProto.FLOAT, None)],
)


def one(operator: str, inputs: list[str], *initial: Any, **attributes: Any) -> tuple[Any, ...]:
    return [NODE(operator, inputs, ["big"], **attributes)], *initial


# ONNX Runtime and onnx's own checks have crashed or hung on them.
SHAPES = {
    "a far index": one(
        "GatherElements", ["images", "n"], constant("n", np.full((1, 1, 1, 1), LARGE)), axis=0
    ),
    "a far block": one("DepthToSpace", ["images"], blocksize=LARGE),
    "no divisor": (CASTS, constant("n", np.int32(0))),
    "a far output": one(
        "ConvTranspose", ["images", "n"], constant("n", np.ones((3, 2, 3, 3), np.float32)),
        output_shape=[LARGE, LARGE],
    ),
}  # fmt: skip
GRAPHS = {
    "it asks for more memory than files of its size need; ": one(
        "ConstantOfShape", ["n"], constant("n", np.int64([LARGE]))
    ),
    "its trial run failed: it did not finish within": one(
        "Loop", ["", "go", "images"], constant("go", np.bool_(True)), body=BODY
    ),
}  # fmt: skip


def write(path: Path, nodes: list[Any], *initial: Any) -> Path:
    return make_file(path, bare_rows(*nodes), [constant("row", ROW), *initial])


def refused(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        open_runtime(path, 1)
    text = str(caught.value)
    assert text.startswith(f"--weights {path}: ") and len(text) < 1000
    return text


@pytest.mark.parametrize("reason", GRAPHS)
def test_too_much_memory_and_a_hang_are_named(tmp_path, monkeypatch, reason):
    if "did not finish" in reason:
        monkeypatch.setattr(opening, "SECONDS", 5)  # else a slow start would count as a hang
    assert reason in refused(write(tmp_path / "a.onnx", *GRAPHS[reason]))


@pytest.mark.parametrize("name", SHAPES)
def test_a_number_far_outside_is_one_message(tmp_path, name):
    refused(write(tmp_path / "a.onnx", *SHAPES[name]))


def test_a_diagonal_far_outside_is_one_message_where_the_runtime_crashes(tmp_path):
    far = constant("n", np.int64(-(2**63)))
    path = write(tmp_path / "a.onnx", *one("Trilu", ["images", "n"], far))
    if Version(onnxruntime.__version__) < Version("1.24"):
        assert "its trial run failed: it crashed (SIGSEGV)" in refused(path)
    else:
        assert open_runtime(path, 1).name.startswith("ONNX Runtime")


def divided(images: Any) -> Any:
    """Divide the lowest int32 by -1."""
    lowest, less = (ov.constant(np.full(6, value, np.int32)) for value in (-(2**31), -1))
    return ov.convert(ov.divide(lowest, less), "f32")


def numbers(*values: int) -> Any:
    return ov.constant(np.int64(values))


HOSTILE: dict[str, Callable[[Any], Any]] = {
    "range": lambda images: ov.range(*map(ov.constant, np.int64([0, 2**31, 1])), "f32"),
    "far index": lambda images: ov.gather_nd(images, ov.constant(np.full((4, 4), 2**30, np.int32))),
    "division": divided,
}


CRASHES = {"far index": "SIGSEGV", "division": "SIGFPE"}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_folder_is_one_message(tmp_path, name):
    folder = tmp_path / "a_openvino_model"
    folder.mkdir()
    images = ov.parameter([1, 3, SIDE, SIDE], np.float32)
    flat = ov.reshape(HOSTILE[name](images), numbers(-1), False)
    rows = ov.add(ov.constant(np.zeros((1, 1, 6), np.float32)), ov.reduce_sum(flat, [0]))
    model = openvino.Model([rows], [images], "model")
    for key, text in METADATA.texts().items():
        model.set_rt_info(text, ["framework", key])
    openvino.save_model(model, folder / "model.xml")
    text = refused(folder)
    crash = f"its trial run failed: it crashed ({CRASHES.get(name)}); the file is damaged, hostile"
    assert (crash in text) is (name in CRASHES)


def test_names_in_a_graph_do_not_reach_the_terminal(tmp_path, capfd):
    (node,), far = SHAPES["a far index"]
    node = NODE("GatherElements", node.input, node.output, "\x1b[31mname", axis=0)
    path = write(tmp_path / "a.onnx", [node], far, constant("\x1b[31munused", np.float32([1])))
    assert "\x1b" not in refused(path)
    runtime = OnnxRuntime(path, 1)  # as after a trial that did not find the fault
    with pytest.raises(UserError) as caught:
        runtime(np.zeros((1, 3, SIDE, SIDE), np.float32))
    assert "\x1b" not in str(caught.value)
    assert "".join(capfd.readouterr()) == ""
