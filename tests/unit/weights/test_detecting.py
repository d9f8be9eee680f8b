"""--weights where nothing is trained: the file's name, or --runtime, says what runs it."""

import dataclasses

import numpy as np
import pytest

from backend import openmp
from backend.openmp import runtime_lanes, usable_threads
from models.detection.pipeline import num_lanes
from tests.onnx_files import ROW, SIDE, write_detector
from tests.tiny_weights import write_tiny_weights
from utils.detect.media.finding import are_several
from utils.errors import UserError
from utils.export import formats, opening
from utils.weights import detecting
from utils.weights.checkpoint import Checkpoint
from utils.weights.detecting import ExportedWeights, load_all_to_detect, load_to_detect
from utils.weights.load import load_weights


def test_an_exported_file_is_opened_by_its_name(tmp_path):
    found = load_to_detect(write_detector(tmp_path / "a.onnx"))
    assert isinstance(found, ExportedWeights) and found.path.endswith("a.onnx")
    (rows,) = found.runtime(np.zeros((1, 3, SIDE, SIDE), np.float32))
    np.testing.assert_array_equal(rows, ROW)
    assert "ONNX Runtime" in found.runtime.name


def test_endings_in_capitals_are_those_of_exported_files(tmp_path):
    path = write_detector(tmp_path / "A.ONNX")
    assert "ONNX Runtime" in load_to_detect(path).runtime.name
    pytest.importorskip("openvino")
    assert "OpenVINO" in load_to_detect(path, "openvino").runtime.name
    with pytest.raises(UserError, match="give --runtime torchscript"):
        load_to_detect(tmp_path / "A.TorchScript")


def test_another_runtime_that_reads_it_can_be_asked_for(tmp_path):
    pytest.importorskip("openvino")
    found = load_to_detect(write_detector(tmp_path / "a.onnx"), "openvino")
    assert "OpenVINO" in found.runtime.name
    images = np.full((1, 3, SIDE, SIDE), 0.5, np.float32)
    expected = ROW.copy()
    expected[..., 4] = 0.5
    (rows,) = found.runtime(images)
    np.testing.assert_allclose(rows, expected, rtol=1e-5)


def test_a_runtime_that_does_not_read_it_is_refused(tmp_path):
    path = write_detector(tmp_path / "a.onnx")
    with pytest.raises(UserError, match="--runtime ncnn does not read .*a.onnx; accepted: onnx, o"):
        load_to_detect(path, "ncnn")
    with pytest.raises(UserError, match="--runtime onnx runs exported files, and .* is none"):
        load_to_detect(write_tiny_weights(tmp_path), "onnx")


def test_ordinary_weights_are_read_as_ever(tmp_path):
    assert isinstance(load_to_detect(write_tiny_weights(tmp_path)), Checkpoint)


def test_training_refuses_an_exported_file(tmp_path):
    with pytest.raises(UserError, match="a.onnx: an exported file, .* give the weights"):
        load_weights(write_detector(tmp_path / "a.onnx"))


def test_an_absent_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(UserError, match="gone.onnx: no such file"):
        load_to_detect(tmp_path / "gone.onnx")
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(UserError, match="folder.onnx: is a folder; a regular file is needed"):
        load_to_detect(tmp_path / "folder.onnx")


# Threads.


def have_cores(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(openmp, "cores_of_rank", lambda: number)


def test_several_batches_share_the_cores(monkeypatch, tmp_path):
    have_cores(monkeypatch, 20)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert (usable_threads(), runtime_lanes()) == (20, 8)
    assert openmp.runtime_threads(side_by_side=True) == 2
    assert openmp.runtime_threads(side_by_side=False) == 20


@pytest.mark.parametrize("asked, expected", [("3", 3), ("64", 20), ("0", 20), ("x", 20), ("", 20)])
def test_fewer_threads_can_be_asked_for(monkeypatch, asked, expected):
    have_cores(monkeypatch, 20)
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert usable_threads() == expected


def test_only_what_can_overlap_runs_side_by_side(tmp_path):
    path = write_detector(tmp_path / "a.onnx")
    assert load_to_detect(path, several=True).side_by_side
    assert not load_to_detect(path, several=False).side_by_side
    pytest.importorskip("openvino")
    assert not load_to_detect(path, "openvino", several=True).side_by_side


def test_weights_of_which_some_cannot_overlap_have_all_cores_one_after_another(
    tmp_path, monkeypatch
):
    """Each call has the cores that the lanes leave it: a lane for each core, or one with all."""
    monkeypatch.setattr(openmp, "usable_threads", lambda: 4)
    asked = []
    real = detecting.open_runtime

    def open_runtime(path, threads, runtime):
        asked.append(threads)
        return real(path, threads, runtime)

    monkeypatch.setattr(detecting, "open_runtime", open_runtime)
    one, two = (str(write_detector(tmp_path / name)) for name in ("a.onnx", "b.onnx"))
    for paths, runtime, threads, lanes in [
        ([one, two], "", [1, 1], 4),
        ([one, str(write_tiny_weights(tmp_path))], "", [4], 1),
        ([one, two], "openvino", [4, 4], 1),
    ]:
        asked.clear()
        weights = load_all_to_detect(paths, runtime, several=True)
        assert (asked, num_lanes("cpu", weights)) == (threads, lanes)
        assert num_lanes("cuda:0", weights) == lanes


def test_a_file_that_can_overlap_does_not_beside_one_that_cannot(tmp_path, monkeypatch):
    class Alone:
        def __init__(self, path, threads):
            self.threads = threads

    row = dataclasses.replace(formats.format_named("tflite"), open=Alone, is_tried=False)
    monkeypatch.setattr(opening, "FORMATS", (row, *opening.FORMATS))
    monkeypatch.setattr(formats, "FORMATS", (row, *formats.FORMATS))
    monkeypatch.setattr(openmp, "usable_threads", lambda: 4)
    (tmp_path / "b.tflite").touch()
    paths = [str(write_detector(tmp_path / "a.onnx")), str(tmp_path / "b.tflite")]
    weights = load_all_to_detect(paths, several=True)
    assert [each.side_by_side for each in weights] == [False, False]
    assert (weights[1].runtime.threads, num_lanes("cpu", weights)) == (4, 1)


class Image:
    kind = "image"


def test_an_only_image_and_tiles_have_all_cores():
    assert not are_several([Image()], None)
    assert are_several([Image(), Image()], None)
    assert not are_several([Image(), Image()], object())
