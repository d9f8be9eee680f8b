"""OpenVINO's folders: written, run, and refused where something is wrong with them."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.doubling import DYNAMIC, METADATA, random_images, rows_of, write_doubling
from utils.errors import UserError
from utils.export.openvino import write_openvino
from utils.runtimes.metadata import Metadata
from utils.runtimes.openvino_runtime import OpenVinoRuntime


def written(folder: Path, metadata: Metadata = METADATA, factor: float = 2) -> Path:
    """A folder that doubles images."""
    graph = write_doubling(folder / "graph.onnx", factor, metadata.dynamic)
    write_openvino(graph, folder / "made", metadata, None)
    return folder / "made"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("openvino"))


def test_it_computes_what_the_graph_does_and_has_its_metadata(made):
    runtime, images = OpenVinoRuntime(made, threads=1), random_images()
    np.testing.assert_array_equal(runtime(images)[0], rows_of(images))
    assert runtime.metadata == METADATA
    assert runtime.name.startswith("OpenVINO 20") and runtime.name.endswith(", CPU")


def test_numbers_are_not_rounded_to_bfloat16(tmp_path):
    """Which has 8 bits: 1.001 would be 1."""
    images = random_images()
    (found,) = OpenVinoRuntime(written(tmp_path, factor=1.001))(images)
    np.testing.assert_allclose(found, rows_of(images, 1.001), rtol=2e-7)


def test_a_dynamic_folder_takes_any_number_and_size_of_images(tmp_path):
    runtime = OpenVinoRuntime(written(tmp_path, DYNAMIC))
    for images in (random_images(), random_images(3, 64, 32)):
        np.testing.assert_array_equal(runtime(images)[0], rows_of(images))


def test_half_precision_halves_the_weights(tmp_path, made):
    half = written(tmp_path, dataclasses.replace(METADATA, precision="float16"))
    sizes = [(folder / "model.bin").stat().st_size for folder in (half, made)]
    assert sizes[0] < 0.6 * sizes[1]
    np.testing.assert_array_equal(
        OpenVinoRuntime(half)(random_images())[0], rows_of(random_images())
    )


def test_equal_graphs_give_equal_bytes(tmp_path, made):
    again = written(tmp_path)
    for name in ("model.xml", "model.bin"):
        assert (again / name).read_bytes() == (made / name).read_bytes()


def test_threads_that_share_a_runtime_get_their_own_results(made):
    runtime = OpenVinoRuntime(made)
    batches = [random_images() + number for number in range(8)]
    with ThreadPoolExecutor(4) as pool:
        for images, (found,) in zip(batches, pool.map(runtime, batches), strict=True):
            np.testing.assert_array_equal(found, rows_of(images))


def test_it_runs_onnx_files_too(tmp_path):
    graph = write_doubling(tmp_path / "graph.onnx")
    model = onnx.load(graph)
    onnx.helper.set_model_props(model, METADATA.texts())
    onnx.save(model, graph)
    runtime = OpenVinoRuntime(graph)
    assert runtime.metadata == METADATA
    np.testing.assert_array_equal(runtime(random_images())[0], rows_of(random_images()))


def cut(name: str, size: int) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def exchanged(before: str, after: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / "model.xml").read_text(encoding="utf-8")
        assert before in text
        (folder / "model.xml").write_text(text.replace(before, after), encoding="utf-8")

    return change


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "model.bin").unlink(), "lacks model.bin"),
        (lambda folder: (folder / "model.xml").unlink(), "lacks model.xml"),
        (lambda folder: [path.unlink() for path in folder.iterdir()], "lacks model.xml"),
        (cut("model.xml", 0), "OpenVINO cannot read it"),
        (cut("model.xml", 900), "OpenVINO cannot read it"),
        (cut("model.bin", 100), "OpenVINO cannot read it"),
        (exchanged('type="Multiply"', 'type="Foreign"'), "OpenVINO cannot read it"),
        (exchanged('offset="0"', 'offset="99999999999"'), "OpenVINO cannot read it"),
        (lambda folder: (folder / "model.xml").write_bytes(b"<net \xff>"), "not UTF-8"),
        (lambda folder: (folder / "model.xml").write_text("é" * 1000), "OpenVINO cannot read it"),
        (exchanged('value="&quot;Detect&quot;"', "><a/><"), "OpenVINO cannot|lacks head"),
        (exchanged("<framework>", "<other>"), "OpenVINO cannot read it"),
        (exchanged("class_names", "other_names"), "metadata lacks class_names"),
        (exchanged('value="[32, 32]"', 'value="[64, 64]"'), "takes .1, 3, 32, 32., and its"),
    ],
)
def test_damage_is_a_clear_error(tmp_path, made, damage, message):
    shutil.copytree(made, tmp_path / "copy")
    damage(tmp_path / "copy")
    with pytest.raises(UserError, match=message):
        OpenVinoRuntime(tmp_path / "copy")


def test_metadata_of_another_model_is_a_clear_error(tmp_path):
    other = dataclasses.replace(METADATA, class_names=("a", "b"))
    with pytest.raises(UserError, match=r"returns \(1, 512, 6\).*says \(1, any, 7\)"):
        OpenVinoRuntime(written(tmp_path, other))


def saved(folder: Path, taken: str = "f32", inputs: int = 1, outputs: int = 1) -> Path:
    """A folder with other inputs and outputs than a detector has, and a detector's metadata."""
    openvino = pytest.importorskip("openvino")
    ops = openvino.opset13
    images = ops.parameter([1, 3, 32, 32], getattr(openvino.Type, taken))
    rows = ops.reshape(ops.convert(images, "f32"), ops.constant([1, 512, 6]), False)
    others = [ops.parameter([1, 512, 6], np.float32) for _ in range(inputs - 1)]
    for other in others:
        rows = ops.add(rows, other)
    returned = [rows, *(ops.relu(rows) for _ in range(outputs - 1))]
    model = openvino.Model(returned, [images, *others], "model")
    for name, text in METADATA.texts().items():
        model.set_rt_info(text, ["framework", name])
    openvino.save_model(model, folder / "model.xml")
    return folder


@pytest.mark.parametrize(
    ("counts", "message"),
    [((2, 1), "it has 2 inputs and 1 output,"), ((1, 2), "it has 1 input and 2 outputs,")],
)
def test_a_folder_with_several_inputs_or_outputs_is_a_clear_error(tmp_path, counts, message):
    with pytest.raises(UserError, match=message):
        OpenVinoRuntime(saved(tmp_path, "f32", *counts))


@pytest.mark.parametrize("taken", ["i64", "u8", "boolean"])
def test_a_folder_that_would_cut_values_of_0_to_1_to_whole_ones_is_refused(tmp_path, taken):
    with pytest.raises(UserError, match="it takes images of type .*, and its metadata says float"):
        OpenVinoRuntime(saved(tmp_path, taken))


def test_a_folder_that_takes_half_precision_is_given_it(tmp_path):
    images = random_images().astype(np.float16)
    (found,) = OpenVinoRuntime(saved(tmp_path, "f16"))(images.astype(np.float32))
    np.testing.assert_array_equal(found, images.astype(np.float32).reshape(1, 512, 6))


def test_a_file_in_place_of_the_folder_is_a_clear_error(tmp_path):
    (tmp_path / "x_openvino_model").write_bytes(b"text")
    with pytest.raises(UserError, match="it is no ONNX file|no ONNX"):
        OpenVinoRuntime(tmp_path / "x_openvino_model")


def test_the_package_is_named_where_it_is_absent(monkeypatch, made):
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(UserError, match="needs openvino: pip install openvino=="):
        OpenVinoRuntime(made)
