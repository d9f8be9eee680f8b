"""--weights where nothing is trained: the file's name, or --runtime, says what runs it."""

import numpy as np
import pytest

from duet.backend import cores
from duet.models.detect.settings import num_lanes
from duet.utils.detect.media.finding import are_several
from duet.utils.errors import UserError
from duet.utils.export import opening
from duet.utils.export.formats import FORMATS
from duet.utils.weights import load as detecting
from duet.utils.weights.load import (
    EXPORTED,
    ExportedWeights,
    load_all_to_detect,
    load_to_detect,
)
from tests.onnx_files import ROW, SIDE, write_detector
from tests.tiny_weights import write_tiny_weights


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


def test_an_absent_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(UserError, match="gone.onnx: no such file"):
        load_to_detect(tmp_path / "gone.onnx")
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(UserError, match="folder.onnx: is a folder, not a regular file"):
        load_to_detect(tmp_path / "folder.onnx")


# Threads.


@pytest.mark.parametrize("asked, expected", [("3", 3), ("64", 20), ("0", 20), ("x", 20), ("", 20)])
def test_fewer_threads_can_be_asked_for(monkeypatch, asked, expected):
    for module in (cores, opening):
        monkeypatch.setattr(module, "cores_of_rank", lambda: 20)
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert opening.usable_threads() == expected


def test_batches_overlap_in_a_single_file_that_can_be_called_side_by_side(tmp_path, monkeypatch):
    """Each call has the cores that the lanes leave it: a lane for each core, or one with all."""
    monkeypatch.setattr(opening, "usable_threads", lambda: 4)
    asked = []
    real = opening.open_runtime
    monkeypatch.setattr(opening, "open_runtime", lambda *a: asked.append(a[1]) or real(*a))
    one, two = (str(write_detector(tmp_path / name)) for name in ("a.onnx", "b.onnx"))
    for paths, runtime, several, threads, lanes in [
        ([one], "", True, [1], 4),
        ([one], "", False, [4], 1),
        ([one, two], "", True, [4, 4], 1),
        ([one], "openvino", True, [4], 1),
    ]:
        asked.clear()
        weights = load_all_to_detect(paths, runtime, several)
        assert (asked, num_lanes("cpu", weights)) == (threads, lanes)
        assert num_lanes("cuda:0", weights) == lanes


def test_the_endings_of_exported_files_are_those_of_the_formats():
    assert tuple(row.ending for row in FORMATS) == EXPORTED


def test_without_the_wing_an_exported_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(detecting, "WINGS", ("duet.utils.absent.opening",))
    with pytest.raises(UserError, match="--weights .*a.onnx needs utils/absent, which is missing"):
        load_to_detect(write_detector(tmp_path / "a.onnx"))


class Image:
    kind = "image"


def test_an_only_image_and_tiles_have_all_cores():
    assert not are_several([Image()], None)
    assert are_several([Image(), Image()], None)
    assert not are_several([Image(), Image()], object())
