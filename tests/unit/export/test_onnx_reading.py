"""ONNX files: ours, those of the public exporter, damaged ones; metadata of any kind of file."""

import ast
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from duet.models.export.exported import ExportedPredictor
from duet.utils.errors import UserError
from duet.utils.export.metadata import (
    DETECTIONS,
    LOGITS,
    MASK_ROWS,
    NORMALIZED,
    Metadata,
    metadata_of,
)
from duet.utils.export.onnx import OnnxRuntime, read_onnx, write_onnx
from duet.utils.export.opening import open_runtime
from duet.utils.files.yaml_files import parse_yaml
from duet.utils.geometry.detections import SuppressionSettings
from tests.onnx_files import (
    FOREIGN,
    MEAN,
    NODE,
    ROW,
    SIDE,
    constant,
    detector_nodes,
    make_file,
    own_texts,
    write_classifier,
    write_detector,
    write_doubling,
    write_segmenter,
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
def test_detector_runs_in_either_precision(tmp_path, kind):
    number = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    path = write_detector(tmp_path / "a.onnx", texts=FOREIGN, kind=number, dtype=kind)
    runtime = OnnxRuntime(path, 1)
    (found,) = runtime(np.full(IMAGES, 0.5, np.float32))
    assert runtime.metadata.precision == kind.__name__ and found.dtype == np.float32
    np.testing.assert_allclose(found, ROW + MEAN / 2, rtol=1e-3)


def test_file_with_ultralytics_metadata_opens(tmp_path):
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
def test_operators_outside_onnx_are_refused_by_name(tmp_path, node, text):
    initial = [constant("n", np.bool_(True))]
    refused(make_file(tmp_path / "a.onnx", [node], initial, domains=["com.evil", "TRT"]), text)


def test_functions_sparse_tensors_and_inputs_are_refused(tmp_path):
    path, text = tmp_path / "a.onnx", "it has functions or sparse tensors"
    function = helper.make_function("d", "f", ["x"], ["y"], [], [helper.make_opsetid("", 17)])
    sparse = onnx.SparseTensorProto(dims=[2], values=constant("v", np.float32([1])))
    refused(changed(write_detector(path), lambda model: model.functions.append(function)), text)
    refused(
        changed(write_detector(path), lambda x: x.graph.sparse_initializer.append(sparse)), text
    )
    other = helper.make_tensor_value_info("other", TensorProto.FLOAT, (1,))
    refused(changed(write_detector(path), lambda x: x.graph.input.append(other)), "takes 2 inputs")


def test_external_weights_are_refused(tmp_path):
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


def test_graph_supplies_metadata_missing_from_public_files(tmp_path):
    texts = {"stride": "32", "names": '{0: 010, 1: "étoile"}'}
    metadata = read_onnx(write_detector(tmp_path / "a.onnx", 4, texts=texts))[1]
    assert metadata.class_names == ("010", "étoile") and not metadata.dynamic
    assert (metadata.stride, metadata.image_size, metadata.batch_size) == (32, (SIDE, SIDE), 4)


def test_dynamic_public_file_is_recognised_as_dynamic(tmp_path):
    nodes, initial = detector_nodes()
    path = make_file(
        tmp_path / "a.onnx", nodes, initial, ("batch", 3, "height", "width"), (("b", "n", 7),),
        {"names": "['it''s', 'dog']", "stride": "32"},
    )  # fmt: skip
    metadata = read_onnx(path)[1]
    assert metadata.dynamic and metadata.class_names == ("it's", "dog")
    (found,) = OnnxRuntime(path, 1)(np.zeros((2, 3, 64, 96), np.float32))
    assert found.shape == (2, 1, 7)


@pytest.mark.parametrize(
    ("texts", "text"),
    [
        ({"names": "{0: 'a', 2: 'b'}"}, r"its metadata has class_names \['a', None\]"),
        ({"names": "!!python/object/apply:os.system ['true']"}, "its metadata has names"),
        ({"names": "[" * 100_000}, "its metadata has names"),
        ({"stride": "5"}, "no multiples of its stride 5"),
    ],
)
def test_public_metadata_text_is_never_evaluated(tmp_path, texts, text):
    refused(write_detector(tmp_path / "a.onnx", texts={**FOREIGN, **texts}), text)


def test_non_utf_8_metadata_is_refused(tmp_path):
    path = write_detector(tmp_path / "a.onnx", texts=FOREIGN)
    path.write_bytes(path.read_bytes().replace(b"'cat'", b"'\xffat'"))
    refused(path, r"its metadata has names b.{0: '\\xffat'")


def test_graph_of_unknown_task_is_refused(tmp_path):
    nodes, initial = detector_nodes()
    nodes.append(NODE("Identity", ["out0"], ["out1"]))
    outputs = (1, 1, 7), (1, 1, 7)
    path = make_file(tmp_path / "a.onnx", nodes, initial, outputs=outputs, texts=FOREIGN)
    refused(path, "a model of the public YOLOv5 takes images .* and returns rows")


@pytest.mark.parametrize("names", [("étoile", 'a "b"'), ("\ud800", "\0\x1b[31m")])
def test_exported_file_describes_itself(tmp_path, names):
    path = tmp_path / "file.onnx"
    metadata = Metadata(names, 32, (640, 480), output=DETECTIONS, precision="float16")
    write_onnx(write_doubling(tmp_path / "graph.onnx"), path, metadata, None)
    model = onnx.load(path)
    assert (model.producer_name, model.producer_version) == ("Duet", "0")
    texts = {entry.key: entry.value for entry in model.metadata_props}
    assert metadata_of(texts) == metadata
    assert metadata.public_texts().items() <= texts.items()


@pytest.mark.parametrize(
    ("output", "task"),
    [("rows", "detect"), ("mask_rows", "segment"), ("masks", "segment"), ("logits", "classify")],
)
def test_yolov5_and_ultralytics_can_read_our_metadata(output, task):
    """They take Python's literals; YAML gives the same values, so OpenVINO's folder has it."""
    texts = Metadata(("a\\", 'it\'s "b"'), 64, (64, 128), 4, output=output).public_texts()
    assert texts.pop("task") == task
    found = {name: ast.literal_eval(text) for name, text in texts.items()}
    assert found == {
        "names": {0: "a\\", 1: "it's \"b\""}, "stride": 64, "imgsz": [64, 128], "batch": 4
    }  # fmt: skip
    assert {name: parse_yaml(text.encode()) for name, text in texts.items()} == found


# Metadata: parsed, never evaluated; every field has a type and a range.


@pytest.mark.parametrize(
    "name, value",
    [
        ("class_names", ["cat", 7]),
        ("class_names", ["x" * 1001]),
        ("class_names", ["x"] * 10_001),
        ("stride", 0),
        ("stride", "__import__('os').system('true')"),
        ("image_size", [32, 1 << 20]),
        ("batch_size", 10**9),
        ("dynamic", 1),
        ("image", ["floats"]),
        ("precision", "float64"),
        ("suppression", {"iou_threshold": 2}),
        ("suppression", {"another": 1}),
        ("trained_size", "64"),
        ("trained_size", 0),
    ],
)
def test_wrong_metadata_value_is_refused_by_name(name, value):
    with pytest.raises(UserError, match=f"its metadata has {name} .*; export it again") as found:
        metadata_of(own_texts(**{name: value}))
    assert len(str(found.value)) < 500


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100_000, '{"a": 1, "a": 2}', "1" * 5000, "os.system('true')"]
)
def test_broken_json_is_refused(text):
    with pytest.raises(UserError, match="its metadata has stride"):
        metadata_of({**own_texts(), "stride": text})


def test_file_without_a_training_size_is_read():
    assert metadata_of(own_texts()).trained_size == SIDE
    assert metadata_of(own_texts(trained_size=None)).trained_size is None


@pytest.mark.parametrize("name", [*own_texts()][:-2])
def test_absent_metadata_field_is_named(name):
    with pytest.raises(UserError, match=f"lacks {name}; export it with export.py"):
        metadata_of(own_texts(**{name: None}))


# Files that segment or classify: known by their graphs, or refused.


MEANS, DEVIATIONS = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def test_public_segmenter_is_recognised_by_its_outputs(tmp_path):
    metadata = read_onnx(write_segmenter(tmp_path / "a.onnx"))[1]
    assert (metadata.head, metadata.output) == ("Segment", MASK_ROWS)
    assert metadata.class_names == ("cat", "dog") and metadata.image_size == (SIDE, SIDE)


def test_public_classifier_gets_normalized_images(tmp_path):
    path = write_classifier(tmp_path / "a.onnx")
    metadata = read_onnx(path)[1]
    assert (metadata.head, metadata.output, metadata.image) == ("Classify", LOGITS, NORMALIZED)
    predictor = ExportedPredictor(OnnxRuntime(path, 1))
    images = np.full((1, 3, SIDE, SIDE), 255, np.uint8)
    ((logits,),) = predictor(images)
    wanted = [(1 - MEANS[at]) / DEVIATIONS[at] for at in (0, 1)]
    np.testing.assert_allclose(logits, wanted, rtol=1e-5)
    powers = np.exp(np.array(wanted) - max(wanted))
    (scores,) = predictor.decode_above([(logits,)], SuppressionSettings(0.0))
    np.testing.assert_allclose(scores, (powers / powers.sum())[None], rtol=1e-5)


def test_classifier_of_any_size_uses_its_task_size(tmp_path):
    path = write_classifier(tmp_path / "a.onnx", shape=("b", 3, "h", "w"))
    metadata = read_onnx(path)[1]
    assert metadata.dynamic and metadata.image_size == (224, 224)


@pytest.mark.parametrize(
    ("write", "changes", "text"),
    [
        (write_segmenter, {"prototypes": 4}, r"\(1, 4, 8, 8\): of those no mask of 2 classes"),
        (write_segmenter, {"texts": {"names": "{0: 'a'}"}}, "of those no mask of 1 class can be"),
        (write_segmenter, {"texts": own_texts(output="rows")}, "2 outputs, but its metadata has 1"),
        (write_segmenter, {"texts": own_texts(output="masks", head="Segment")}, "has .1, any, 6."),
        (write_segmenter, {"texts": own_texts(output="logits", head="Classify")}, "2 outp.* has 1"),
        (write_segmenter, {"texts": own_texts(image_size=[64, 64])}, "ONNX Runtime failed"),
        (write_classifier, {"texts": {"names": "[a, b, c]"}}, r"returns .1, 2., .* .1, 3."),
        (write_classifier, {"last": "Softmax"}, "it ends in Softmax"),
        (
            write_classifier,
            {"texts": own_texts(output="logits", head="Classify", class_names=["a"])},
            r"has \(1, 1\)",
        ),
    ],
)
def test_file_contradicting_its_metadata_is_refused(tmp_path, write, changes, text):
    path = write(tmp_path / "a.onnx", **changes)
    with pytest.raises(UserError, match=text) as found:
        open_runtime(path, 1)
    assert len(str(found.value)) < 1000


@pytest.mark.parametrize("head", ["Detect", "Conv", "Nothing", "Classify"])
def test_head_without_masks_is_refused_for_mask_rows(tmp_path, head):
    texts = own_texts(output="mask_rows", head=head)
    runtime = OnnxRuntime(write_segmenter(tmp_path / "a.onnx", texts=texts), 1)
    with pytest.raises(UserError, match=f"a.onnx: .* head '{head}' and output mask_rows"):
        ExportedPredictor(runtime, "a.onnx")
