"""OpenVINO's folders: written, run, and refused where something is wrong with them."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import openvino
import pytest

from duet.utils.errors import UserError
from duet.utils.export.metadata import Metadata
from duet.utils.export.opening import open_runtime
from duet.utils.export.openvino import OpenVinoRuntime, write_openvino
from duet.utils.files.yaml_files import parse_yaml
from tests.onnx_files import METADATA, ODD_NAME, random_images, rows_of, write_doubling


def written(folder: Path, metadata: Metadata = METADATA, factor: float = 2) -> Path:
    """A folder that doubles images."""
    graph = write_doubling(folder / "graph.onnx", factor, metadata.dynamic)
    write_openvino(graph, folder / "made", metadata, None)
    return folder / "made"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("openvino"))


def test_openvino_matches_the_graph_and_has_its_metadata(made):
    runtime, images = OpenVinoRuntime(made, threads=1), random_images()
    np.testing.assert_array_equal(runtime(images)[0], rows_of(images))
    assert runtime.metadata == METADATA
    assert runtime.name.startswith("OpenVINO 20") and runtime.name.endswith(", CPU")


@pytest.mark.parametrize("name", ["model.yaml", "metadata.yaml"])
def test_yolov5_and_ultralytics_find_stride_and_names(made, name):
    found = parse_yaml((made / name).read_bytes())
    assert found == {
        "names": {0: ODD_NAME}, "stride": 32, "task": "detect", "imgsz": [32, 32], "batch": 1
    }  # fmt: skip


@pytest.mark.parametrize("name", ["yolov5s.yaml", "metadata.yaml"])
def test_folder_of_yolov5_or_ultralytics_opens(tmp_path, made, name):
    """YOLOv5 names the files for the weights, and their metadata too."""
    folder = tmp_path / "yolov5s_openvino_model"
    folder.mkdir()
    model = openvino.Core().read_model(write_doubling(tmp_path / "graph.onnx"))
    openvino.save_model(model, folder / "yolov5s.xml", compress_to_fp16=False)
    shutil.copyfile(made / "model.yaml", folder / name)
    runtime, images = open_runtime(folder, 1), random_images()
    assert runtime.metadata == METADATA
    np.testing.assert_array_equal(runtime(images)[0], rows_of(images))
    (folder / name).write_text("stride: 32\n")
    with pytest.raises(UserError, match="has no names"):
        open_runtime(folder, 1)


def cut(name: str, size: int) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def replaced_text(before: str, after: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / "model.xml").read_text(encoding="utf-8")
        assert before in text
        (folder / "model.xml").write_text(text.replace(before, after), encoding="utf-8")

    return change


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "model.bin").unlink(), "lacks model.bin"),
        (cut("model.xml", 900), "OpenVINO cannot read it"),
        (replaced_text('type="Multiply"', 'type="Foreign"'), "OpenVINO cannot read it"),
        (lambda folder: (folder / "model.xml").write_bytes(b"<net \xff>"), "not UTF-8"),
        (replaced_text('value="&quot;Detect&quot;"', "><a/><"), "OpenVINO cannot|lacks head"),
        (replaced_text("class_names", "other_names"), "metadata lacks class_names"),
    ],
)
def test_damaged_folder_is_a_clear_error(tmp_path, made, damage, message):
    shutil.copytree(made, tmp_path / "copy")
    damage(tmp_path / "copy")
    with pytest.raises(UserError, match=message):
        OpenVinoRuntime(tmp_path / "copy")


def saved(folder: Path, taken: str = "f32", inputs: int = 1) -> Path:
    """A folder with other inputs than a detector has, and a detector's metadata."""
    ops = openvino.opset13
    images = ops.parameter([1, 3, 32, 32], getattr(openvino.Type, taken))
    rows = ops.reshape(ops.convert(images, "f32"), ops.constant([1, 512, 6]), False)
    others = [ops.parameter([1, 512, 6], np.float32) for _ in range(inputs - 1)]
    for other in others:
        rows = ops.add(rows, other)
    model = openvino.Model([rows], [images, *others], "model")
    for name, text in METADATA.texts().items():
        model.set_rt_info(text, ["framework", name])
    openvino.save_model(model, folder / "model.xml")
    return folder


@pytest.mark.parametrize(
    ("taken", "inputs", "message"),
    [
        ("dynamic", 1, "its input has a dynamic element type; export it with export.py"),
        ("f32", 2, "it has 2 inputs; a detector has one"),
        ("i64", 1, "it takes numbers of type int64, which is not its metadata's floats"),
    ],
)
def test_folder_with_other_inputs_is_refused(tmp_path, taken, inputs, message):
    """Whole numbers would cut values of 0 to 1."""
    with pytest.raises(UserError, match=message):
        OpenVinoRuntime(saved(tmp_path, taken, inputs))


def test_half_precision_folder_gets_half_precision_images(tmp_path):
    images = random_images().astype(np.float16)
    (found,) = OpenVinoRuntime(saved(tmp_path, "f16"))(images.astype(np.float32))
    np.testing.assert_array_equal(found, images.astype(np.float32).reshape(1, 512, 6))
