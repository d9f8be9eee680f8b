"""A crash, a hang or too much memory of an exported file is one message, and lies in a child."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import openvino
import pytest
from openvino import opset13 as ov

from duet.utils.errors import UserError
from duet.utils.export import opening
from duet.utils.export.onnx import OnnxRuntime
from duet.utils.export.opening import open_runtime
from tests.onnx_files import METADATA, NODE, ROW, SIDE, bare_rows, constant, make_file

VALUE = onnx.helper.make_tensor_value_info
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


def one_node_graph(
    operator: str, inputs: list[str], *initial: Any, **attributes: Any
) -> tuple[Any, ...]:
    return [NODE(operator, inputs, ["big"], **attributes)], *initial


GRAPHS = {
    "it asks for more memory than files of its size need; ": one_node_graph(
        "ConstantOfShape", ["n"], constant("n", np.int64([2**40]))
    ),
    "its trial run failed: it did not finish within": one_node_graph(
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
def test_memory_excess_and_hang_are_reported(tmp_path, monkeypatch, reason):
    if "did not finish" in reason:
        monkeypatch.setattr(opening, "SECONDS", 5)  # else a slow start would count as a hang
    assert reason in refused(write(tmp_path / "a.onnx", *GRAPHS[reason]))


def test_crash_is_reported(tmp_path):
    folder = tmp_path / "a_openvino_model"
    folder.mkdir()
    images = ov.parameter([1, 3, SIDE, SIDE], np.float32)
    far = ov.gather_nd(images, ov.constant(np.full((4, 4), 2**30, np.int32)))
    rows = ov.add(ov.constant(np.zeros((1, 1, 6), np.float32)), ov.reduce_sum(far, [0]))
    model = openvino.Model([rows], [images], "model")
    for key, text in METADATA.texts().items():
        model.set_rt_info(text, ["framework", key])
    openvino.save_model(model, folder / "model.xml")
    assert "its trial run failed: it crashed (SIGSEGV); the file is damaged" in refused(folder)


def test_names_in_a_graph_do_not_reach_the_terminal(tmp_path, capfd):
    node = NODE("GatherElements", ["images", "n"], ["big"], "\x1b[31mname", axis=0)
    far = constant("n", np.full((1, 1, 1, 1), 2**40))
    path = write(tmp_path / "a.onnx", [node], far, constant("\x1b[31munused", np.float32([1])))
    assert "\x1b" not in refused(path)
    runtime = OnnxRuntime(path, 1)  # as after a trial that did not find the fault
    with pytest.raises(UserError) as caught:
        runtime(np.zeros((1, 3, SIDE, SIDE), np.float32))
    assert "\x1b" not in str(caught.value)
    assert "".join(capfd.readouterr()) == ""
