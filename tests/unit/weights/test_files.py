"""Weights files of other programs: stored ones, small ones made here, damaged and hostile ones."""

import json
import os
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest

from duet.backend import nn
from duet.models.stored import detector_of_weights, load_detector
from duet.utils.errors import UserError
from duet.utils.weights.__main__ import describe, main
from duet.utils.weights.checkpoint import load_checkpoint
from duet.utils.weights.load import load_weights
from tests.environments import shared_path
from tests.foreign_files import (
    SMALL_DOCUMENT,
    Call,
    Global,
    TorchFile,
    dump,
    small_arrays,
    small_model,
    write_zip,
)


def write_small(path, seed=0, **changes):
    file = TorchFile()
    root = {"epoch": 4, "model": None, "ema": small_model(file, small_arrays(seed), **changes)}
    return file.write_zip(path, root)


def assert_equal_arrays(actual, expected):
    assert list(actual) == list(expected)
    for name, array in expected.items():
        assert actual[name].dtype == array.dtype and np.array_equal(actual[name], array), name


def test_half_precision_file_holds_the_stored_weights():
    checkpoint = load_weights(shared_path("golden/yolov5n/yolov5n_fp16.pt"))
    stored = np.load(shared_path("golden/yolov5n/state_fp32.npz"))
    halved = {
        name: stored[name].astype(np.float16).astype(np.float32)
        if stored[name].dtype == np.float32
        else stored[name]
        for name in stored.files
    }
    assert_equal_arrays(checkpoint.ema, halved)


FOLDERS = {
    "golden/checkpoints": (
        *("train_epoch0", "stripped", "fitness_numpy", "p6", "seg", "cls"),
        *("state_dict", "state_dict_dataparallel"),
    ),
    "golden/anchor_free/checkpoints": tuple(
        f"{model}_{form}"
        for model in ("yolov5u", "yolov8")
        for form in ("train_epoch1", "stripped")
    ),
}


@pytest.mark.parametrize(
    ("folder", "name"), [(folder, name) for folder, names in FOLDERS.items() for name in names]
)
def test_public_files_load_with_their_names_and_shapes(folder, name):
    file = json.loads(shared_path(f"{folder}/expected.json").read_text())[f"{name}.pt"]
    stored = file.get("ema") or file.get("model") or file
    weights = load_weights(shared_path(f"{folder}/{name}.pt"))
    arrays = {key.removeprefix("module."): array for key, array in stored["arrays"].items()}
    assert list(weights.ema) == list(arrays)
    for key, array in arrays.items():
        assert list(weights.ema[key].shape) == array["shape"]
        norm = np.sqrt(np.sum(weights.ema[key].astype(np.float64) ** 2))
        assert norm == pytest.approx(array["l2"], rel=1e-12)
    if "names" in stored:
        names = stored["names"]
        names = names.values() if isinstance(names, dict) else names
        assert list(weights.header.class_names) == list(names)
        assert weights.header.settings["stored_epoch"] == file["epoch"]
        assert list(nn.state_arrays(detector_of_weights(weights))) == list(weights.ema)


@pytest.mark.parametrize(
    ("path", "strides", "size", "task"),
    [
        ("checkpoints/p6", [8, 16, 32, 64], 128, "detect"),
        ("checkpoints/seg", [8, 16, 32], 64, "segment"),
        ("anchor_free/checkpoints/yolov8_stripped", [8, 16, 32], 128, "detect-anchor-free"),
    ],
)
def test_public_files_carry_strides_size_and_task(path, strides, size, task):
    weights = load_weights(shared_path(f"golden/{path}.pt"))
    settings, model = weights.header.settings, detector_of_weights(weights)
    assert settings["strides"] == strides == list(model.head.strides)
    assert settings["image_size"] == size
    assert f"task: {task}\n" in describe(weights)


def test_small_file_gives_arrays_and_description(tmp_path):
    checkpoint = load_weights(write_small(tmp_path / "small.pt"))
    assert_equal_arrays(checkpoint.ema, small_arrays())
    assert_equal_arrays(checkpoint.model, small_arrays())
    header = checkpoint.header
    assert (header.epoch, header.class_names) == (5, ("cat", "dog"))
    assert header.hyperparameters == {"lr0": 0.02, "box": 0.05}
    assert header.settings["stored_epoch"] == 4 and header.settings["strides"] == [2]
    assert not header.settings["fused"]
    assert header.model["nc"] == 2
    anchors = small_arrays()["model.1.anchors"].astype(np.float64) * 2  # cells of stride 2
    assert header.model["anchors"] == [anchors.reshape(-1).tolist()]


def test_ema_precedes_model(tmp_path):
    file = TorchFile()
    root = {
        "model": small_model(file, small_arrays(1)),
        "ema": small_model(file, small_arrays(2)),
    }
    checkpoint = load_weights(file.write_zip(tmp_path / "both.pt", root))
    assert_equal_arrays(checkpoint.ema, small_arrays(2))


def test_names_in_a_dict_are_read(tmp_path):
    path = write_small(tmp_path / "names.pt", names={0: "a", 1: "b"})
    assert load_weights(path).header.class_names == ("a", "b")


def write_state_dict(path, key="state_dict", arrays=None, prefix=""):
    file, arrays = TorchFile(), arrays or small_arrays()
    state = {f"{prefix}{name}": file.tensor(array) for name, array in arrays.items()}
    return file.write_zip(path, {key: state} if key else state)


@pytest.mark.parametrize("key", ["", "model", "state_dict"])
def test_plain_state_dict_gives_arrays_and_requires_a_model(tmp_path, key):
    checkpoint = load_weights(write_state_dict(tmp_path / "state.pt", key))
    assert_equal_arrays(checkpoint.ema, small_arrays())
    with pytest.raises(UserError, match="convert FILE OUT.safetensors --cfg YAML"):
        load_detector(checkpoint, "cpu")


@pytest.mark.parametrize(
    ("name", "content", "reported"),
    [
        ("pipe.pt", os.mkfifo, "is a FIFO"),
        ("pipe.safetensors", os.mkfifo, "is a FIFO"),
        ("device.pt", lambda path: path.symlink_to("/dev/zero"), "is a device"),
        ("folder", os.mkdir, "not written by oneflow.save, .* one pickled_data [(]found: 0"),
        ("empty.pt", b"", "unknown format; accepted: a .safetensors of a training"),
        ("page.pt", b"<!DOCTYPE html>", "unknown format; accepted: a .safetensors of a training"),
        ("bare.pt", dump({"model": 1}), "a bare pickle"),
        ("cut.pt", b"PK\x03\x04", "damaged zip"),
        ("long.safetensors", struct.pack("<Q", 2**62) + b"{}", r"damaged or .*header too large"),
        ("long.pt", struct.pack("<Q", 90_000_000) + b"{ }", "damaged or not a safetensors file"),
    ],
)
def test_show_describes_an_odd_file(tmp_path, name, content, reported):
    path = tmp_path / name
    if callable(content):
        content(path)
    else:
        path.write_bytes(content)
    with pytest.raises(UserError, match=f"{name}: {reported}"):
        main([str(path)])  # as "show"


@pytest.mark.parametrize("given", ["exp", "exp/weights"])
def test_training_folder_is_refused_naming_its_weights(tmp_path, given):
    weights = tmp_path / "exp" / "weights"
    weights.mkdir(parents=True)
    for name in ("last", "best"):
        (weights / f"{name}.safetensors").touch()
        answer = f"{given}: the folder of a training; give {weights / name}.safetensors"
        with pytest.raises(UserError, match=answer):
            load_weights(tmp_path / given)


def test_missing_or_wrong_subcommand_lists_accepted_ones(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "show").mkdir()
    for words, answer in (
        ([], "show . convert"),
        (["nowhere"], "command nowhere; accepted: show, convert"),
        (["show"], "weights"),  # which is missing, whatever folders there are
    ):
        with pytest.raises(UserError, match=answer):
            main(words)


def test_convert_adds_a_model_to_a_state_dict(tmp_path, capsys):
    source, out = write_state_dict(tmp_path / "state.pt"), tmp_path / "new" / "out.safetensors"
    cfg = tmp_path / "small.yaml"
    cfg.write_text(json.dumps({**SMALL_DOCUMENT, "nc": 2}), encoding="utf-8")
    main(["convert", str(source), str(out), "--cfg", str(cfg)])
    checkpoint = load_checkpoint(out)
    assert_equal_arrays(checkpoint.ema, dict(sorted(small_arrays().items())))
    assert (checkpoint.header.model["nc"], checkpoint.header.class_names) == (2, ("0", "1"))
    load_detector(checkpoint, "cpu")
    main([str(out)])  # as "show"
    printed = capsys.readouterr().out
    assert "PyTorch zip archive, plain state dict\nstored as: float32\n" in printed
    assert "layers: Conv Detect" in printed


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["STATE", "out.pt"], "must end with .safetensors"),
        (["STATE", "out.safetensors"], "describes no model"),
        (["STATE", "out.safetensors", "--cfg", "gone.yaml"], "gone.yaml"),
        *((["STATE", "out.safetensors", "--cfg", f"models/yolov5n{task}.yaml"], "cannot be built")
          for task in ("", "-seg", "-cls")),
        (["SMALL", "out.safetensors", "--cfg", "models/yolov5n.yaml"], "describe their model"),
    ],
)  # fmt: skip
def test_convert_refuses_unsuitable_arguments(tmp_path, arguments, reason):
    files = {
        "STATE": write_state_dict(tmp_path / "state.pt"),
        "SMALL": write_small(tmp_path / "small.pt"),
        "out.pt": tmp_path / "out.pt",
        "out.safetensors": tmp_path / "out.safetensors",
    }
    with pytest.raises(UserError, match=reason):
        main(["convert", *(str(files.get(argument, argument)) for argument in arguments)])
    assert not (tmp_path / "out.safetensors").exists()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"activation": "LeakyReLU"}, "layer model.0 uses the activation LeakyReLU"),
        ({"norm_eps": 1e-5}, "layer model.0.bn has eps 1e-05"),
        ({"head": "models.yolo.Segment"}, "its last layer is Segment; by its model YAML 'Detect'"),
        ({"head": "models.common.Classify"}, "its Classify has no linear layer"),
        ({"yaml": None}, "its DetectionModel describes no model"),
        ({"yaml": {**SMALL_DOCUMENT, "x": Global("torch.Size")}}, "more than text and finite"),
        ({"yaml": {**SMALL_DOCUMENT, "x": json.loads("[" * 99 + "]" * 99)}}, "nested deeper"),
    ],
)
def test_model_that_would_compute_differently_is_refused(tmp_path, changes, reason):
    path = write_small(tmp_path / "other.pt", **changes)
    with pytest.raises(UserError, match=f"--weights .*other.pt: .*{reason}"):
        load_weights(path)


def described(**changes):
    return {"yaml": {**SMALL_DOCUMENT, **changes}}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"without": ["bn"]}, "needs 248 weights, but the file has 216"),
        (described(width_multiple=1e9), "width_multiple: 1000000000.0"),
        (described(width_multiple=4.0), "needs 992 weights, but the file has 248"),
        (described(backbone=[[-1, 9, "C3", [8]]]), "layer 0, C3 .8., needs 1,"),
        (described(backbone=[[-1, 1, "Conv", [8, 999]]]), "kernel_size is 999"),
        (described(backbone=[[-1, 1, "Conv", [8, 31, 2]]]), "needs 23,096 weights"),
        (described(backbone=[[-1, 1, "Conv", [10**6]]]), "channels is 1000000"),
        (described(backbone=[[-1, 1, "CrossConv", [8, 3, 2]]]), "unknown block 'CrossConv'; known"),
        ({"nc": 10**9}, "nc: 1000000000"),
        ({"nc": 3}, "layer 1, Detect .3, .* weights, but the file has 130"),
    ],
)
def test_mismatched_description_is_not_built_or_converted(tmp_path, changes, reason):
    path = write_small(tmp_path / "other.pt", **changes)
    with pytest.raises(UserError, match=f"--weights .*: .* cannot be built: .*{reason}"):
        load_detector(load_weights(path), "cpu")
    out = tmp_path / "out.safetensors"
    with pytest.raises(UserError, match=reason):
        main(["convert", str(path), str(out)])
    assert not out.exists()


ONE = np.ones(4, np.float32)


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": (10**9,), "strides": (1,)},
        {"shape": (2**70,), "strides": (1,)},
        {"shape": (-1,), "strides": (1,)},
        {"shape": (4,), "strides": (-1,)},
        {"shape": (4,), "strides": (2,)},
        {"shape": (4,), "offset": 1},
        {"shape": (1,), "strides": (1,), "offset": 4},
        {"shape": (1,) * 9, "strides": (1,) * 9},
        {"shape": [4], "strides": (1,)},
        {"count": 10**12, "shape": (10**12,)},
        {"count": 3},
        {"kind": "torch.DoubleStorage"},
        {"kind": "torch.Size"},
    ],
)
def test_tensor_exceeding_its_storage_is_refused(tmp_path, changes):
    file = TorchFile()
    state = {"weight": file.tensor(ONE, **changes)}
    path = file.write_zip(tmp_path / "absurd.pt", state)
    tracemalloc.start()
    with pytest.raises(UserError, match=r"--weights .*absurd.pt"):
        load_weights(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000  # what an open zip and a few records take


def test_strided_view_of_a_storage_is_read(tmp_path):
    file = TorchFile()
    storage = np.arange(12, dtype=np.float32)
    state = {"weight": file.tensor(storage, offset=1, shape=(2, 3), strides=(1, 4))}
    path = file.write_zip(tmp_path / "view.pt", state)
    assert load_weights(path).ema["weight"].tolist() == [[1, 5, 9], [2, 6, 10]]


def test_zip_bomb_is_cut_at_its_claimed_size(tmp_path):
    bomb = write_zip(
        tmp_path / "liar.pt", dump({}) + bytes(20_000_000), compression=zipfile.ZIP_DEFLATED
    )
    data = bytearray(bomb.read_bytes())
    entry = data.index(b"PK\x01\x02")
    struct.pack_into("<I", data, entry + 24, 100)  # uncompressed size in the directory
    bomb.write_bytes(data)
    tracemalloc.start()
    with pytest.raises(UserError, match="damaged|size"):
        load_weights(bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_duplicate_zip_members_are_refused(tmp_path):
    path = write_small(tmp_path / "twice.pt")
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("archive/data.pkl", dump({}))
    with pytest.raises(UserError, match="two of one name"):
        load_weights(path)


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"archive/version": b"3"}, "0 files data.pkl"),
        ({"a/data.pkl": dump({}), "b/data.pkl": dump({})}, "2 files data.pkl"),
        (
            {"a/data.pkl": dump({}), "a/constants.pkl": dump(())},
            "a TorchScript export, a program; give the .pt",
        ),
        ({"a/data.pkl": dump({}), "a/byteorder": b"big"}, "big-endian"),
        ({"a/data.pkl": dump({"epoch": 1})}, "neither a model"),
        ({"a/data.pkl": dump(Call("os.system", ("true",)))}, "asks for os.system"),
    ],
)
def test_foreign_zip_is_refused(tmp_path, members, reason):
    path = tmp_path / "other.pt"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with pytest.raises(UserError, match=reason):
        load_weights(path)


@pytest.mark.parametrize("asked", ["best.pt", "best"])
def test_absent_file_suggests_a_neighbour(tmp_path, asked):
    (tmp_path / "best.safetensors").touch()
    with pytest.raises(UserError, match=f"{asked}: no such file; did you mean .*best.safetensors"):
        load_weights(tmp_path / asked)


@pytest.mark.parametrize(
    ("name", "answer"),
    {
        "gone.pt": "nothing is downloaded; accepted: a .safetensors of a training",
        "yolov5s": "duet fetch yolov5 yolov5s.pt`",
        "yolov5s-seg.pt": "duet fetch yolov5-seg yolov5s-seg.pt`",
        "yolov8n.pt": "`duet fetch` does not have it; download yolov8n.pt from its publisher",
        "yolov5nu": "`duet fetch` does not have it; download yolov5nu.pt from its publisher",
        "yolov8n-seg.pt": "yolov8n-seg is of a family or task that is not supported",
        "yolo11n.pt": "yolo11n is of a family or task that is not supported",
        "rtdetr-l.pt": "rtdetr-l is of a family or task that is not supported",
        "yolov5n-cls.yaml": "a model YAML is given as --cfg yolov5n-cls.yaml",
    }.items(),
)
def test_absent_file_is_reported_with_advice(name, answer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        load_weights(name)
    assert f"--weights {name}: no such file; " in str(caught.value) and answer in str(caught.value)


def test_own_file_is_recognised_by_its_bytes(tmp_path):
    out = tmp_path / "out.safetensors"
    main(["convert", str(write_small(tmp_path / "small.pt")), str(out)])
    renamed = out.rename(tmp_path / "renamed.bin")
    assert_equal_arrays(dict(sorted(load_weights(renamed).ema.items())),
                        dict(sorted(small_arrays().items())))  # fmt: skip
