"""Checkpoints: what is written comes back, whole or not at all."""

import dataclasses
import json
import math

import numpy as np
import pytest
from safetensors.numpy import save_file

from duet.utils.errors import UserError, naming_weights
from duet.utils.weights.checkpoint import Checkpoint, Header, load_checkpoint, save_checkpoint

HEADER = Header(
    model={"nc": 2, "anchors": [[10, 13]]},
    class_names=("cell", "Zelle ä"),
    epoch=3,
    batch_number=57,
    last_update=56,
    ema_updates=30,
    best_fitness=0.25,
    hyperparameters={"lr0": 0.01},
    settings={"data": "x.yaml", "seed": 0},
    backend="torch",
)


@pytest.fixture
def checkpoint():
    generator = np.random.default_rng(0)
    weights = {
        "model.0.conv.weight": generator.normal(size=(4, 3, 2, 2)).astype(np.float32),
        "model.0.bn.num_batches_tracked": np.array(7, np.int64),
    }
    momentum = {"model.0.conv.weight.momentum": np.ones((4, 3, 2, 2), np.float32)}
    ema = {name: array + 1 for name, array in weights.items()}
    return Checkpoint(HEADER, weights, ema, momentum)


def test_checkpoint_round_trips_bit_for_bit(tmp_path, checkpoint):
    path = tmp_path / "last.safetensors"
    save_checkpoint(path, checkpoint)
    loaded = load_checkpoint(path)
    assert loaded.header == checkpoint.header
    for section in ("model", "ema", "optimizer"):
        saved, read = getattr(checkpoint, section), getattr(loaded, section)
        assert set(saved) == set(read)
        for name in saved:
            assert saved[name].dtype == read[name].dtype and saved[name].shape == read[name].shape
            assert np.array_equal(saved[name], read[name])


def test_failed_write_leaves_only_the_old_file(tmp_path, checkpoint, monkeypatch):
    path = tmp_path / "last.safetensors"
    save_checkpoint(path, checkpoint)
    before = path.read_bytes()

    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    newer = dataclasses.replace(checkpoint, header=dataclasses.replace(HEADER, epoch=4))
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(path, newer)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["last.safetensors"]


def test_flipped_bit_is_detected_anywhere(tmp_path, checkpoint):
    path = tmp_path / "last.safetensors"
    header = dataclasses.replace(HEADER, progress={"world_size": 1})
    save_checkpoint(path, dataclasses.replace(checkpoint, header=header))
    content = path.read_bytes()
    names_end = 8 + int.from_bytes(content[:8], "little")
    generator = np.random.default_rng(0)
    head_end = len(content[:names_end].rstrip(b" "))
    inside = generator.integers(names_end, len(content), 100).tolist()
    for position in [*range(0, head_end, 5), head_end - 1, *inside, len(content) - 1]:
        changed = bytearray(content)
        changed[position] ^= 1 << int(generator.integers(8))
        path.write_bytes(changed)
        with pytest.raises(UserError):
            load_checkpoint(path)


NUMBERS = ("epoch", "batch_number", "last_update", "ema_updates", "best_fitness", "loss_scale")


@pytest.mark.parametrize(
    ("name", "lie"),
    [
        *((name, lie) for name in NUMBERS for lie in (math.nan, "3", None, True, [])),
        *((name, lie) for name in NUMBERS[:4] for lie in (-2, 10**30, 1.5)),
        *((name, []) for name in ("model", "hyperparameters", "settings", "progress", "backend")),
        *(("class_names", lie) for lie in ("cell", [1], None)),
    ],
)
def test_false_header_is_refused(tmp_path, checkpoint, name, lie):
    path = tmp_path / "last.safetensors"
    header = dataclasses.replace(HEADER, **{name: lie})
    save_checkpoint(path, dataclasses.replace(checkpoint, header=header))
    with pytest.raises(UserError, match="not written by train.py"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {"duet": "no json"},
        {"duet": json.dumps({"format": "other", "version": 1})},
        {"duet": json.dumps({"format": "duet-checkpoint", "version": 1})},
        {"duet": json.dumps([1])},
        {"duet": "[" * 100_000},
    ],
)
def test_file_without_our_header_is_refused(tmp_path, metadata):
    path = tmp_path / "other.safetensors"
    save_file({"a": np.zeros(2, np.float32)}, path, metadata=metadata)
    with pytest.raises(UserError, match="not written by train.py"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("class 'a --weights b' is unknown", "--weights x.pt: class 'a --weights b' is unknown"),
        ("--weights x.pt: damaged", "--weights x.pt: damaged"),
    ],
)
def test_weights_error_names_its_file_once(text, expected):
    with pytest.raises(UserError) as error, naming_weights("x.pt"):
        raise UserError(text)
    assert str(error.value) == expected
