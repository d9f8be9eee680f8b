"""Both backends, each in its own environment, from the same seed on the same images."""

import numpy as np
import pytest
import yaml

from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS
from duet.utils.weights.checkpoint import load_checkpoint
from tests.environments import BACKENDS, python_of, run_python
from tests.small import write_outlined_dataset, write_small_dataset, write_small_model

# To weights that find something within seconds: no augmentation, and a warm-up that lasts, since
# it takes fewer batches an update.
EPOCHS = 200
OVERFIT = {"lr0": 0.05, "warmup_epochs": 100, "warmup_bias_lr": 0.02, "cls": 5.0} | dict.fromkeys(
    ("hsv_h", "hsv_s", "hsv_v", "translate", "scale", "fliplr", "mosaic"), 0.0
)
STEPS = {"detect": 20, "detect-anchor-free": 8, "segment": 8}
IMAGE_SIZE, BATCH_SIZE = 64, 16
# The first steps of the public recipe double any difference: PyTorch's own float32 and float64
# losses are 1e-2 apart after 20 of them, whatever the image size. So the recipe itself is compared
# in float64, where rounding of 1e-16 has become 2e-9 (measured), and float32 at a tenth of its
# rates, where sums in another order have become 3e-5 (measured).
CASES = {"float64": ({}, 1e-6), "float32": ({"lr0": 0.001, "warmup_bias_lr": 0.01}, 1e-3)}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    for backend in BACKENDS:
        python_of(backend)
    folder = tmp_path_factory.mktemp("inputs")
    return folder, write_small_dataset(folder), write_small_model(folder)


@pytest.fixture(scope="module")
def tasks(inputs):
    """A dataset, a model and its number of losses for each task."""
    folder, data, model = inputs
    outlined, masks = write_outlined_dataset(folder), write_small_model(folder, "yolov5n-seg")
    free = write_small_model(folder, "yolov8n")
    return {
        "detect": (data, model, 3),
        "detect-anchor-free": (data, free, 3),
        "segment": (outlined, masks, 4),
    }


def write_hyperparameters(folder, **changes):
    document = yaml.safe_load(DEFAULT_HYPERPARAMETERS.read_text(encoding="utf-8"))
    path = folder / "hyp.yaml"
    path.write_text(yaml.safe_dump({**document, **changes}), encoding="utf-8")
    return path


@pytest.mark.parametrize("task", STEPS)
@pytest.mark.parametrize("dtype", CASES)
def test_losses_and_average_of_the_first_steps_agree(inputs, tasks, task, dtype):
    folder, (data, model, num_losses) = inputs[0], tasks[task]
    changes, tolerance = CASES[dtype]
    hyp = write_hyperparameters(folder, **changes)
    results = []
    for backend in BACKENDS:
        out = folder / f"{backend}-{task}-{dtype}.npz"
        run_python(
            backend, "-m", "tests.parity.worker", out, data, model, hyp, dtype, STEPS[task],
            IMAGE_SIZE, BATCH_SIZE,
        )  # fmt: skip
        results.append(np.load(out))
    torch, oneflow = results
    assert torch["losses"].shape == (STEPS[task], num_losses + 1)
    assert (torch["losses"] > 0).all()
    np.testing.assert_allclose(oneflow["losses"], torch["losses"], rtol=tolerance)
    for name in torch.files:
        # Of what a tensor changed by or holds, whichever is more; new biases start at zero.
        scale = max(np.abs(torch[name]).max(), 0.1)
        assert np.abs(oneflow[name] - torch[name]).max() <= tolerance * scale, name


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
        "torch", "train.py", *common, "--cfg", model, "--epochs", EPOCHS, "--name", "torch",
        "--hyp", write_hyperparameters(folder, **OVERFIT), "--device", "cpu", "--noplots",
        "--noval",
    )  # fmt: skip
    weights = folder / "torch" / "weights" / "last.safetensors"
    run_python(
        "oneflow", "train.py", *common, "--weights", weights, "--epochs", 1, "--name", "oneflow",
        "--hyp", write_hyperparameters(folder, lr0=1e-5), "--device", "cpu", "--noplots",
    )  # fmt: skip
    for writer in BACKENDS:
        weights = folder / writer / "weights" / "last.safetensors"
        assert load_checkpoint(weights).header.backend == writer
        scores = [validate(backend, weights, data, folder / "val") for backend in BACKENDS]
        assert scores[0][0] > 0.1  # it has learnt enough for a difference to show
        np.testing.assert_allclose(scores[0], scores[1], rtol=0, atol=1e-4)
