"""ONNX files are read as data: what is damaged, of another kind or elsewhere is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from duet.utils.errors import UserError
from duet.utils.export.onnx import OnnxRuntime, read_onnx
from tests.onnx_files import (
    FOREIGN,
    MEAN,
    NODE,
    ROW,
    SIDE,
    constant,
    detector_nodes,
    make_file,
    write_detector,
)

IMAGES = (1, 3, SIDE, SIDE)


def refused(path: Path, text: str) -> None:
    with pytest.raises(UserError, match=text) as found:
        OnnxRuntime(path, 1)
    assert len(str(found.value)) < 1000


def changed(path: Path, change) -> Path:
    model = onnx.load_model_from_string(path.read_bytes())
    change(model)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_a_detector_runs_in_either_precision(tmp_path, kind):
    number = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    path = write_detector(tmp_path / "a.onnx", texts=FOREIGN, kind=number, dtype=kind)
    runtime = OnnxRuntime(path, 1)
    (found,) = runtime(np.full(IMAGES, 0.5, np.float32))
    assert runtime.metadata.precision == kind.__name__ and found.dtype == np.float32
    np.testing.assert_allclose(found, ROW + MEAN / 2, rtol=1e-3)


def test_a_file_with_what_ultralytics_writes_opens(tmp_path):
    texts = {
        **FOREIGN, "task": "detect", "imgsz": "[32, 32]", "batch": "1", "author": "Ultralytics",
        "args": "{'batch': 1, 'half': False}", "channels": "3",
    }  # fmt: skip
    metadata = OnnxRuntime(write_detector(tmp_path / "a.onnx", texts=texts), 1).metadata
    assert metadata.class_names == ("cat", "dog") and metadata.image_size == (32, 32)


INNER = helper.make_graph([NODE("Evil", ["images"], ["x"], domain="com.evil")], "inner", [], [])


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (NODE("Evil", ["images"], ["out0"], domain="com.evil"), "'Evil' is of 'com.evil'; only"),
        (NODE("EfficientNMS_TRT", ["images"], ["out0"], domain="TRT"), "is of 'TRT'; only ONNX's"),
        (NODE("If", ["n"], ["out0"], then_branch=INNER), "'Evil' is of 'com.evil'"),
        (NODE("Relu", ["absent"], ["out0"]), "ONNX Runtime does not take it"),
    ],
)
def test_operators_that_are_not_onnx_own_are_named(tmp_path, node, text):
    initial = [constant("n", np.bool_(True))]
    refused(make_file(tmp_path / "a.onnx", [node], initial, domains=["com.evil", "TRT"]), text)


def test_functions_sparse_tensors_and_further_inputs_are_refused(tmp_path):
    path, text = tmp_path / "a.onnx", "it has functions or sparse tensors"
    function = helper.make_function("d", "f", ["x"], ["y"], [], [helper.make_opsetid("", 17)])
    sparse = onnx.SparseTensorProto(dims=[2], values=constant("v", np.float32([1])))
    refused(changed(write_detector(path), lambda model: model.functions.append(function)), text)
    refused(
        changed(write_detector(path), lambda x: x.graph.sparse_initializer.append(sparse)), text
    )
    other = helper.make_tensor_value_info("other", TensorProto.FLOAT, (1,))
    refused(changed(write_detector(path), lambda x: x.graph.input.append(other)), "takes 2 inputs")


def test_weights_in_another_file_are_refused(tmp_path):
    def move(model):
        (row,) = (one for one in model.graph.initializer if one.name == "row")
        row.ClearField("raw_data")
        row.data_location = TensorProto.EXTERNAL
        row.external_data.add(key="location", value="a.bin")

    (tmp_path / "a.bin").write_bytes(ROW.tobytes())
    refused(changed(write_detector(tmp_path / "a.onnx"), move), "its weights are in another file")


@pytest.mark.parametrize("kind", [TensorProto.DOUBLE, TensorProto.UINT8, TensorProto.UNDEFINED])
def test_images_of_another_type_are_refused(tmp_path, kind):
    def change(model):
        model.graph.input[0].type.tensor_type.elem_type = kind

    path = changed(write_detector(tmp_path / "a.onnx"), change)
    refused(path, "it takes numbers of a type that is not its metadata's floats")


# Files of the public exporter tell names and stride alone.


def test_the_graph_tells_what_the_public_exporter_does_not(tmp_path):
    texts = {"stride": "32", "names": "{0: 'it''s', 1: \"étoile\"}"}
    metadata = read_onnx(write_detector(tmp_path / "a.onnx", 4, texts=texts))[1]
    assert metadata.class_names == ("it's", "étoile") and not metadata.dynamic
    assert (metadata.stride, metadata.image_size, metadata.batch_size) == (32, (SIDE, SIDE), 4)


def test_a_dynamic_file_of_the_public_exporter_is_dynamic(tmp_path):
    nodes, initial = detector_nodes()
    path = make_file(
        tmp_path / "a.onnx", nodes, initial, ("batch", 3, "height", "width"), (("b", "n", 7),),
        {"names": "['cat', 'dog']", "stride": "32"},
    )  # fmt: skip
    metadata = read_onnx(path)[1]
    assert metadata.dynamic and metadata.class_names == ("cat", "dog")
    (found,) = OnnxRuntime(path, 1)(np.zeros((2, 3, 64, 96), np.float32))
    assert found.shape == (2, 1, 7)


@pytest.mark.parametrize(
    ("texts", "text"),
    [
        ({"names": "{0: 'a', 2: 'b'}"}, "accepted: a name for each class"),
        ({"names": "!!python/object/apply:os.system ['true']"}, "its metadata has names"),
        ({"names": "[" * 100_000}, "its metadata has names"),
        ({"stride": "5"}, "no multiples of its stride 5"),
        ({"task": "pose"}, "it is for the task 'pose', and its graph is made to detect"),
    ],
)
def test_texts_of_the_public_exporter_are_never_run(tmp_path, texts, text):
    refused(write_detector(tmp_path / "a.onnx", texts={**FOREIGN, **texts}), text)


def test_a_graph_of_no_known_task_is_refused(tmp_path):
    nodes, initial = detector_nodes()
    nodes.append(NODE("Identity", ["out0"], ["out1"]))
    outputs = (1, 1, 7), (1, 1, 7)
    path = make_file(tmp_path / "a.onnx", nodes, initial, outputs=outputs, texts=FOREIGN)
    refused(path, "a model of the public YOLOv5 takes images .* and returns rows")
