"""`python -m tests.parity` on equal and unequal backends; a run resumed by the other backend.

A narrow model at 64 px; the training steps come from the same functions as in the long form.
"""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from duet.utils.errors import UserError
from duet.utils.weights.checkpoint import load_checkpoint
from tests.environments import BACKENDS, python_of, run_python
from tests.parity.__main__ import (
    FLOAT64,
    Row,
    Settings,
    compare,
    compare_sides,
    difference,
    formatted,
    main,
    run_sides,
)
from tests.small import write_small_dataset, write_small_model, write_tiny_model

STEPS = 3
LAYERS = [f"layer {index:02d}" for index in range(25)]


@pytest.fixture(scope="module")
def agreeing(tmp_path_factory):
    """A folder with what both sides wrote, and the settings that they were given."""
    for backend in BACKENDS:
        python_of(backend)
    folder = tmp_path_factory.mktemp("sides")
    settings = Settings(
        data=str(write_small_dataset(folder)),
        cfg=str(write_small_model(folder)),
        image_size=64,
        batch_size=16,
        steps=STEPS,
    )
    run_sides(settings, folder, *BACKENDS)
    return folder, settings


def differing(lines):
    return {(line.section, line.row) for line in lines if not line.agrees}


def test_both_backends_agree_in_every_row(agreeing):
    lines = compare_sides(agreeing[0])
    text = list(formatted(lines))
    assert differing(lines) == set(), "\n".join(text)
    assert text[-1] == f"{len(lines)} rows, all agree"
    for section in ("float64", "float32"):
        rows = {line.row for line in lines if line.section == section}
        assert rows >= {*LAYERS, "decoded boxes", "gradients", "batchnorm"}
        assert rows >= {f"loss {n}" for n in ("box", "objectness", "classification", "total")}
        for optimizer in ("SGD", "Adam", "AdamW"):
            groups = ("losses", "parameters", "batchnorm", "ema", "state")
            assert rows >= {f"{optimizer} {group}" for group in groups}
    assert {"weights", "batches", "nms of drawn boxes"} < {line.row for line in lines}
    assert ("float64", "nms") in {(line.section, line.row) for line in lines}


def test_compared_values_are_not_trivial(agreeing):
    side = np.load(agreeing[0] / "torch.npz")
    kept = [len(side[name]) for name in side.files if name.endswith("scores")]
    assert min(kept) > 0 and max(kept) > 20
    assert all(side[f"float64/loss {name}/"] > 0 for name in ("box", "objectness"))
    for optimizer in ("SGD", "Adam", "AdamW"):
        losses = side[f"float64/{optimizer} losses/all"]
        assert len(losses) >= STEPS and len(np.unique(losses[:, 3])) == len(losses)
    updates = [side[f"float64/{optimizer} state/updates"] for optimizer in ("Adam", "AdamW")]
    assert updates == [STEPS, STEPS]


def test_nudged_weight_is_reported_from_the_first_layer_on(agreeing, tmp_path):
    folder, settings = agreeing
    shutil.copy(folder / "oneflow.npz", tmp_path)
    run_sides(dataclasses.replace(settings, nudge=1e-3), tmp_path, "torch")
    lines = compare_sides(tmp_path)
    found = differing(lines)
    # In float32 a thousandth of one weight still shows where nothing has been averaged yet.
    wanted = {("exact", "weights"), ("float32", "layer 00"), ("float64", "gradients")}
    wanted |= {("float64", layer) for layer in LAYERS}
    wanted |= {
        ("float64", f"{optimizer} {group}")
        for optimizer in ("SGD", "Adam", "AdamW")
        for group in ("losses", "parameters", "batchnorm", "ema")
    }
    assert wanted <= found
    assert ("exact", "batches") not in found
    assert list(formatted(lines))[-1] == f"{len(lines)} rows, {len(found)} differ"


@pytest.mark.parametrize(
    ("change", "relative"),
    [
        (lambda x: x, 0.0),
        (lambda x: x + 1e-6, 0.5e-6),
        (lambda x: x * np.nan, np.inf),
        (lambda x: x[:1], np.inf),
        (lambda x: x.astype(np.float32), np.inf),
        (lambda x: None, np.inf),
    ],
)
def test_reported_difference_is_the_worst_number(change, relative):
    reference = np.array([[0.5, -2.0], [1.0, 0.0]])
    assert difference(change(reference), reference, floor=0.0)[1] == pytest.approx(relative)
    (line,) = compare("x", [Row("a", 1e-7)], {"a/b": reference, "a/c": reference}, {
        "a/b": reference, "a/c": reference + 1e-6
    })  # fmt: skip
    assert (line.item, line.agrees) == ("c", False)


def test_empty_row_disagrees():
    lines = compare("float64", FLOAT64, {}, {})
    assert len(lines) == len(FLOAT64) and not any(line.agrees for line in lines)
    (line,) = compare("x", [Row("a", 1.0)], {"a/b": np.zeros(2)}, {})
    assert not line.agrees


@pytest.fixture
def canned(agreeing, tmp_path, monkeypatch):
    """The command over sides that have run already; returns the folder of their files."""
    for backend in BACKENDS:
        shutil.copy(agreeing[0] / f"{backend}.npz", tmp_path)
    monkeypatch.setattr("tests.parity.__main__.run_sides", lambda *arguments: None)
    monkeypatch.setattr("tests.parity.__main__.compare_sides", lambda _: compare_sides(tmp_path))
    return tmp_path


def test_parity_exits_with_1_on_a_difference(canned, capsys):
    assert main(["--steps", str(STEPS)]) == 0
    head, *_, last = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["compared", "row", "worst"] and last.endswith("all agree")
    arrays = dict(np.load(canned / "oneflow.npz"))
    arrays["float64/AdamW parameters/model.24.m.0.bias"][0] += 1e-6
    np.savez(canned / "oneflow.npz", **arrays)
    assert main([]) == 1
    marked = [line for line in capsys.readouterr().out.splitlines() if "DIFFERS" in line]
    assert len(marked) == 1 and "model.24.m.0.bias" in marked[0]


def test_user_error_of_a_side_is_reported_without_traceback(agreeing, tmp_path):
    settings = dataclasses.replace(agreeing[1], cfg="absent.yaml")
    with pytest.raises(UserError, match=r"the side of torch failed:\nerror: --cfg absent\.yaml"):
        run_sides(settings, tmp_path, "torch")


# The rates of the warm-up are small; measured: 5e-7 over the four batches that differ.
TOLERANCE = 1e-5
# Of the largest value; sums in another order, which Adam divides by their size.
STATE_TOLERANCE = {"SGD": 1e-3, "Adam": 1e-2}


@pytest.mark.parametrize(("writer", "optimizer"), [("torch", "AdamW"), ("oneflow", "SGD")])
def test_other_backend_resumes_with_same_samples_and_state(writer, optimizer, tmp_path):
    data, model = write_small_dataset(tmp_path), write_tiny_model(tmp_path)
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    run_python(
        writer, "train.py", "--data", data, "--cfg", model, "--img", 64, "--batch", 4, "--epochs",
        2, "--workers", 0, "--device", "cpu", "--project", tmp_path, "--name", "whole", "--keep", 9,
        "--save-steps", 2, "--noplots", "--optimizer", optimizer,
    )  # fmt: skip
    shutil.copytree(whole, resumed)
    (reader,) = set(BACKENDS) - {writer}
    state = resumed / "weights" / "state-00000002.safetensors"
    printed = run_python(reader, "train.py", "--resume", state)
    assert f"the state was saved by {writer}; {reader} rounds differently" in printed
    works = [json.loads((folder / "work.json").read_text()) for folder in (whole, resumed)]
    assert works[0]["work"]["batches_sha1"] == works[1]["work"]["batches_sha1"]
    losses = [np.array(work["losses"]) for work in works]
    assert len(losses[0]) == 6
    np.testing.assert_array_equal(losses[0][:2], losses[1][:2])
    assert not np.array_equal(losses[0], losses[1])  # the other one did compute
    np.testing.assert_allclose(losses[0], losses[1], rtol=TOLERANCE)
    last = load_checkpoint(resumed / "weights" / "last.safetensors")
    assert (last.header.backend, last.header.batch_number) == (reader, 6)
    # Momenta that had been lost would show in those at the end.
    ends = [load_checkpoint(x / "weights" / "state-00000006.safetensors") for x in (whole, resumed)]
    wanted, found = (end.optimizer for end in ends)
    assert set(found) == set(wanted) and wanted
    for name, array in wanted.items():
        assert np.any(array)
        scale = max(np.abs(array).max(), 1e-6)
        assert np.abs(found[name] - array).max() <= STATE_TOLERANCE[optimizer[:4]] * scale, name
