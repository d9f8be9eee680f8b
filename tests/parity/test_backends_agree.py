"""Both backends, each in its own environment, from the same seed on the same images."""

import numpy as np
import pytest

from tests.environments import BACKENDS, python_of, run_python
from tests.small import write_small_dataset, write_small_model
from utils.checkpoint import load_checkpoint

STEPS = 20
# float32: sums in another order, fed back through 20 updates at learning rates rising to 2e-3;
# measured 2e-5 for the worst term. float64: OneFlow keeps BatchNorm's momentum and eps as
# float32 attributes, 1e-8 relative; measured 1e-8.
TOLERANCES = {"float32": 1e-3, "float64": 1e-6}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    for backend in BACKENDS:
        python_of(backend)
    folder = tmp_path_factory.mktemp("inputs")
    return folder, write_small_dataset(folder), write_small_model(folder)


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_losses_of_the_first_steps_and_the_average_agree(inputs, dtype):
    folder, data, model = inputs
    results = []
    for backend in BACKENDS:
        out = folder / f"{backend}-{dtype}.npz"
        run_python(backend, "-m", "tests.parity.worker", out, data, model, dtype, STEPS)
        results.append(np.load(out))
    torch, oneflow = results
    assert torch["losses"].shape == (STEPS, 4)
    assert (torch["losses"][:, :3] > 0).all()
    np.testing.assert_allclose(oneflow["losses"], torch["losses"], rtol=TOLERANCES[dtype])
    for name in torch.files:
        largest = np.abs(torch[name]).max()
        difference = np.abs(oneflow[name] - torch[name]).max()
        assert difference <= TOLERANCES[dtype] * max(largest, 1e-3), name


def validate(backend, weights, data, project):
    """(mAP50, mAP50-95) over all classes that val.py prints."""
    printed = run_python(
        backend, "val.py", "--weights", weights, "--data", data, "--img", 64, "--task", "train",
        "--workers", 0, "--project", project, "--device", "cpu",
    )  # fmt: skip
    row = next(line.split() for line in printed.splitlines() if line.split()[:1] == ["all"])
    return np.array(row[-2:], float)


def test_weights_of_either_backend_validate_alike_under_both(inputs):
    folder, data, model = inputs
    common = ["--data", data, "--img", 64, "--batch", 4, "--workers", 0, "--project", folder]
    run_python(
        "torch", "train.py", *common, "--cfg", model, "--epochs", 40, "--name", "torch",
        "--hyp", "data/hyps/hyp.demo.yaml", "--device", "cpu",
    )  # fmt: skip
    weights = folder / "torch" / "weights" / "last.safetensors"
    run_python(
        "oneflow", "train.py", *common, "--weights", weights, "--epochs", 1, "--name", "oneflow",
        "--device", "cpu",
    )  # fmt: skip
    for writer in BACKENDS:
        weights = folder / writer / "weights" / "last.safetensors"
        assert load_checkpoint(weights).header.backend == writer
        scores = [validate(backend, weights, data, folder / "val") for backend in BACKENDS]
        assert scores[0][0] > 0.05  # it has learnt enough for a difference to show
        np.testing.assert_allclose(scores[0], scores[1], rtol=0, atol=1e-4)
