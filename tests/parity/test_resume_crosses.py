"""A run that one backend began is resumed by the other: the same samples, state, and rounding."""

import json
import shutil

import numpy as np
import pytest

from duet.utils.weights.checkpoint import load_checkpoint
from tests.environments import BACKENDS, run_python
from tests.small import write_small_dataset, write_tiny_model

# The rates of the warm-up are small; measured: 5e-7 over the four batches that differ.
TOLERANCE = 1e-5
# Of the largest value; sums in another order, which Adam divides by their size.
STATE_TOLERANCE = {"SGD": 1e-3, "Adam": 1e-2}


@pytest.mark.parametrize(
    ("writer", "optimizer"),
    [("torch", "SGD"), ("torch", "AdamW"), ("oneflow", "SGD"), ("oneflow", "Adam")],
)
def test_the_other_backend_goes_on_with_the_same_samples_and_state(writer, optimizer, tmp_path):
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
