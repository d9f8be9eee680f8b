"""Foreign weights that are no plain detection checkpoint: read where that is simple, else named."""

import json
import logging
import struct

import numpy as np
import pytest

from duet.backend import cores
from duet.models.detect.settings import num_lanes
from duet.models.stored import detector_of_weights, load_detector
from duet.models.training.start import transfer_weights
from duet.utils.detect.media.finding import are_several
from duet.utils.errors import UserError
from duet.utils.export import opening
from duet.utils.export.formats import FORMATS
from duet.utils.weights import load as detecting
from duet.utils.weights.__main__ import main
from duet.utils.weights.load import (
    EXPORTED,
    ExportedWeights,
    load_all_to_detect,
    load_to_detect,
    load_weights,
)
from tests.foreign_files import (
    TorchFile,
    dump,
    module,
    small_arrays,
    small_model,
    write_zip,
)
from tests.onnx_files import MEAN, ROW, SIDE, write_detector
from tests.small import write_tiny_weights
from tests.unit.weights.hostile_files import OWN_HEADER
from tests.unit.weights.test_files import assert_equal_arrays

DATA_PARALLEL = "torch.nn.parallel.data_parallel.DataParallel"


def folded(state):
    """Fold each BatchNorm of a state into its convolution, in float64."""
    result = {}
    for name, array in state.items():
        prefix, is_convolution, _ = name.partition("conv.weight")
        if is_convolution and f"{prefix}bn.weight" in state:
            weight, bias, mean, variance = (
                state[f"{prefix}bn.{part}"].astype(np.float64)
                for part in ("weight", "bias", "running_mean", "running_var")
            )
            scale = weight / np.sqrt(variance + 1e-3)
            result[name] = (array * scale.reshape(-1, 1, 1, 1)).astype(np.float32)
            result[f"{prefix}conv.bias"] = (bias - mean * scale).astype(np.float32)
        elif ".bn." not in name:
            result[name] = array
    return result


def write_fused(path, **changes):
    file, arrays = TorchFile(), folded(small_arrays())
    root = {"model": small_model(file, arrays, without=["bn"], **changes)}
    return file.write_zip(path, root)


@pytest.mark.parametrize("method", ["forward_fuse", "fuseforward"])
def test_fused_file_is_read_shown_and_converted(tmp_path, method, capsys):
    path = write_fused(tmp_path / "fused.pt", forward=method)
    weights = load_weights(path)
    expected = folded(small_arrays())
    for name, array in folded(weights.ema).items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-5)  # float32, folded twice
    load_detector(weights, "cpu")
    main(["convert", str(path), str(tmp_path / "out.safetensors")])
    main(["show", str(tmp_path / "out.safetensors")])
    assert "fused: BatchNorm folded in" in capsys.readouterr().out


def test_training_from_a_fused_file_warns(tmp_path, caplog):
    weights = load_weights(write_fused(tmp_path / "fused.pt"))
    with caplog.at_level(logging.WARNING):
        transfer_weights(detector_of_weights(weights), weights, ["cat", "dog"], False)
    assert "BatchNorm is fused into the convolutions" in caplog.text


@pytest.mark.parametrize("key", ["model", "ema", None])
def test_data_parallel_wrapper_is_removed(tmp_path, key):
    file = TorchFile()
    inner = small_model(file, small_arrays())
    wrapped = module(DATA_PARALLEL, {"module": inner}, device_ids=[0], output_device=0)
    path = file.write_zip(tmp_path / "parallel.pt", {key: wrapped} if key else wrapped)
    weights = load_weights(path)
    assert_equal_arrays(weights.ema, small_arrays())
    assert weights.header.class_names == ("cat", "dog")
    detector_of_weights(weights)


def test_partial_name_prefix_is_kept(tmp_path):
    file = TorchFile()
    state = {name: file.tensor(np.ones(2, np.float32)) for name in ("module.a", "b")}
    assert list(load_weights(file.write_zip(tmp_path / "state.pt", state)).ema) == ["module.a", "b"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("models.common.AutoShape", "wrapped for inference; save the model in it"),
        ("models.common.DetectMultiBackend", "wrapped for inference"),
        ("models.experimental.Ensemble", "an ensemble of models; give the file of one"),
    ],
)
def test_file_of_another_kind_is_refused_by_its_kind(tmp_path, name, reason):
    path = write_zip(tmp_path / "other.pt", dump({"model": module(name)}))
    with pytest.raises(UserError, match=f"other.pt: it holds .*{reason}"):
        load_weights(path)


def test_foreign_safetensors_file_is_named(tmp_path):
    path = tmp_path / "other.safetensors"
    own = {"duet": json.dumps(OWN_HEADER)}
    entry = {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}
    for metadata, reason in (({}, "no duet-checkpoint version 1 header"), (own, "as BF16; a file")):
        text = json.dumps({"__metadata__": metadata, "ema/w": entry}).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(4))
        with pytest.raises(UserError, match=f"other.safetensors: .*{reason}"):
            load_weights(path)


@pytest.mark.parametrize("name", ["a.onnx", "A.ONNX"])
@pytest.mark.parametrize(("runtime", "program"), [("", "ONNX Runtime"), ("openvino", "OpenVINO")])
def test_exported_file_opens_by_name_or_in_a_given_runtime(tmp_path, name, runtime, program):
    pytest.importorskip("openvino")
    found = load_to_detect(write_detector(tmp_path / name), runtime)
    assert isinstance(found, ExportedWeights) and found.path.endswith(name)
    assert program in found.runtime.name
    (rows,) = found.runtime(np.full((1, 3, SIDE, SIDE), 0.5, np.float32))
    np.testing.assert_allclose(rows, ROW + MEAN / 2, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "runtime", "text"),
    [
        ("a.onnx", "ncnn", "--runtime ncnn does not read .*a.onnx; accepted: onnx, o"),
        ("tiny0.safetensors", "onnx", "--runtime onnx runs exported files, and .* is not one"),
        ("A.TorchScript", "", "give --runtime torchscript"),
        ("gone.onnx", "", "gone.onnx: no such file"),
        ("folder.onnx", "", "folder.onnx: is a folder, not a regular file"),
    ],
)
def test_file_unreadable_by_the_runtime_is_refused(tmp_path, name, runtime, text):
    write_detector(tmp_path / "a.onnx")
    write_tiny_weights(tmp_path)
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(UserError, match=text):
        load_to_detect(tmp_path / name, runtime)


# Threads.


@pytest.mark.parametrize("asked, expected", [("3", 3), ("64", 20), ("0", 20), ("x", 20), ("", 20)])
def test_thread_variable_may_reduce_runtime_threads(monkeypatch, asked, expected):
    for each in (cores, opening):
        monkeypatch.setattr(each, "cores_of_rank", lambda: 20)
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert opening.usable_threads() == expected


def test_only_a_lone_reentrant_file_overlaps_batches(tmp_path, monkeypatch):
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


def test_exported_suffixes_match_the_formats():
    assert tuple(row.ending for row in FORMATS) == EXPORTED


def test_exported_file_is_refused_without_the_wing(tmp_path, monkeypatch):
    monkeypatch.setattr(detecting, "WINGS", ("duet.utils.absent.opening",))
    with pytest.raises(UserError, match="--weights .*a.onnx needs utils/absent, which is missing"):
        load_to_detect(write_detector(tmp_path / "a.onnx"))


class Image:
    kind = "image"


def test_single_image_and_tiles_use_all_cores():
    assert not are_several([Image()], None)
    assert are_several([Image(), Image()], None)
    assert not are_several([Image(), Image()], object())
