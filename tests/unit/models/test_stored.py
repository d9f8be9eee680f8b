"""A checkpoint whose header describes another model than that of its arrays: it is not made."""

import dataclasses
import tracemalloc

import numpy as np
import pytest

from duet.models import detector
from duet.models.graph import parse_model
from duet.models.stored import load_detector, stored_spec
from duet.models.training.checkpointing import rebuild_model
from duet.models.training.start import build_model
from duet.utils.cli.hyperparameters import read_hyperparameters
from duet.utils.cli.train_config import parse_train_flags
from duet.utils.errors import UserError
from duet.utils.weights.__main__ import main
from duet.utils.weights.checkpoint import Checkpoint, Header, load_checkpoint, save_checkpoint
from duet.utils.weights.load import load_weights
from tests.foreign_files import SMALL_DOCUMENT, small_arrays

DOCUMENT = {**SMALL_DOCUMENT, "nc": 2, "anchors": [[1, 2, 3, 4]]}
ARRAYS = small_arrays()
HEADER = Header(DOCUMENT, class_names=("a", "b"))


def write(path, document=DOCUMENT, **settings):
    header = dataclasses.replace(HEADER, model=document, settings=settings)
    save_checkpoint(path, Checkpoint(header, ARRAYS, ARRAYS, {}))
    return path


def start(path):
    config = parse_train_flags(["--data", "x.yaml", "--weights", str(path), "--img", "64"])
    hyp = read_hyperparameters(config.hyp)
    return build_model(config, hyp, load_weights(path), ("a", "b", "c"))


WAYS = {
    "val.py": lambda path: load_detector(load_weights(path), "cpu"),
    "train.py": start,
    "--resume": lambda path: rebuild_model(load_checkpoint(path)),
    "convert": lambda path: main(["convert", str(path), str(path.with_name("out.safetensors"))]),
}
HOSTILE = {
    "wide": ({"width_multiple": 10.0}, "needs 2,480 weights, but the file has 248"),
    "deep": ({"backbone": [[-1, 900, "C3", [4_000]]]}, "layer 0, C3"),
    "of many classes": ({"nc": 900}, "Detect .900, .* needs 16,294 weights, but the file has 130"),
    "of a huge number": ({"nc": 10**40}, "is beyond 64 bits"),
}


@pytest.mark.parametrize("way", WAYS)
def test_model_matching_its_arrays_is_built(tmp_path, way):
    WAYS[way](write(tmp_path / "own.safetensors"))


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("way", WAYS)
def test_hostile_model_is_refused_before_a_layer_is_made(tmp_path, monkeypatch, way, name):
    changes, reason = HOSTILE[name]
    path = write(tmp_path / "own.safetensors", {**DOCUMENT, **changes})

    def made(*arguments):
        raise AssertionError("layers were made")

    monkeypatch.setattr(detector.nn, "ModuleList", made)
    monkeypatch.setattr(detector.Detector, "__init__", made)
    tracemalloc.start()
    with pytest.raises(UserError, match=reason) as caught:
        WAYS[way](path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000 and len(str(caught.value)) < 600
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_missing_arrays_are_counted():
    less = {name: array for name, array in ARRAYS.items() if not name.endswith("conv.weight")}
    with pytest.raises(UserError, match="layer 0, .* needs 248 weights, but the file has 32"):
        stored_spec(DOCUMENT, less)
    assert stored_spec(DOCUMENT, ARRAYS) == parse_model(DOCUMENT)


@pytest.mark.parametrize("strides", [[4], 7, "2", [[2]], {"a": 1}])
def test_strides_of_another_type_are_refused(tmp_path, strides):
    with pytest.raises(UserError, match="strides"):
        load_detector(load_weights(write(tmp_path / "own.safetensors", strides=strides)), "cpu")


@pytest.mark.parametrize(
    "changes",
    [
        {"backbone": 3}, {"backbone": [3, [], [1, 2]], "head": {"a": 1}}, {"anchors": "\x1b[2J"},
        {"backbone": [[-1, 1, "\x1b[2J", []]]},
    ],
)  # fmt: skip
def test_show_escapes_any_header(tmp_path, capsys, changes):
    settings = {"stored_dtypes": 3, "converted_from": ["\x1b[2J"], "strides": {"a": "\r"}}
    main(["show", str(write(tmp_path / "own.safetensors", {**DOCUMENT, **changes}, **settings))])
    printed = capsys.readouterr().out
    assert "tensors: 9 with" in printed and "\x1b" not in printed and "\r" not in printed


def test_array_of_another_dtype_is_refused(tmp_path):
    for array, reason in ((np.zeros(2, np.complex64), "as C64"), (np.zeros(2, np.uint16), "as U1")):
        header = dataclasses.replace(HEADER)
        save_checkpoint(tmp_path / "x.safetensors", Checkpoint(header, {"w": array}, {}, {}))
        with pytest.raises(UserError, match=f"x.safetensors: it holds 'model/w' {reason}"):
            load_weights(tmp_path / "x.safetensors")
