"""Both backends, each in its own environment, from the same seed on the same images."""

import json

import numpy as np
import pytest
import yaml

from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS
from duet.utils.weights.checkpoint import load_checkpoint
from tests.environments import BACKENDS, run_python, run_several
from tests.small import (
    write_outlined_dataset,
    write_small_dataset,
    write_small_model,
    write_tiny_model,
)

# To weights that find something within seconds: no augmentation, and a warm-up that lasts, since
# it takes fewer batches an update.
EPOCHS = 150
OVERFIT = {"lr0": 0.05, "warmup_epochs": 100, "warmup_bias_lr": 0.02, "cls": 5.0} | dict.fromkeys(
    ("hsv_h", "hsv_s", "hsv_v", "translate", "scale", "fliplr", "mosaic"), 0.0
)
STEPS = {"detect": 20, "detect-anchor-free": 8, "segment": 8}
IMAGE_SIZE, BATCH_SIZE = 64, 8
# The first steps of the public recipe double any difference: PyTorch's own float32 and float64
# losses are 1e-2 apart after 20 of them, whatever the image size. So the recipe itself is compared
# in float64, where rounding of 1e-16 has become 4e-12 (measured), and float32 at a tenth of its
# rates, where sums in another order have become 2e-5 (measured).
CASES = {"float64": ({}, 1e-6), "float32": ({"lr0": 0.001, "warmup_bias_lr": 0.01}, 1e-3)}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What each backend wrote of each case; a process of each trains all."""
    folder = tmp_path_factory.mktemp("inputs")
    data, outlined = write_small_dataset(folder), write_outlined_dataset(folder)
    files = {
        "detect": (data, write_small_model(folder)),
        "detect-anchor-free": (data, write_small_model(folder, "yolov8n")),
        "segment": (outlined, write_small_model(folder, "yolov5n-seg")),
    }
    hyps = {name: write_hyperparameters(folder, name, **case[0]) for name, case in CASES.items()}
    for backend in BACKENDS:
        cases = [
            (folder / f"{backend}-{task}-{dtype}.npz", *files[task], hyps[dtype], dtype, steps)
            for task, steps in STEPS.items()
            for dtype in CASES
        ]
        lines = json.dumps(cases, default=str)
        run_python(backend, "-m", "tests.parity.side", IMAGE_SIZE, BATCH_SIZE, lines)
    return folder


def write_hyperparameters(folder, name, **changes):
    document = yaml.safe_load(DEFAULT_HYPERPARAMETERS.read_text(encoding="utf-8"))
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({**document, **changes}), encoding="utf-8")
    return path


@pytest.mark.parametrize("task", STEPS)
@pytest.mark.parametrize("dtype", CASES)
def test_losses_and_averages_of_first_steps_agree(results, task, dtype):
    tolerance = CASES[dtype][1]
    torch, oneflow = (np.load(results / f"{name}-{task}-{dtype}.npz") for name in BACKENDS)
    num_losses = 4 if task == "segment" else 3
    assert torch["losses"].shape == (STEPS[task], num_losses + 1)
    assert (torch["losses"] > 0).all()
    np.testing.assert_allclose(oneflow["losses"], torch["losses"], rtol=tolerance)
    for name in torch.files:
        # Of what a tensor changed by or holds, whichever is more; new biases start at zero.
        scale = max(np.abs(torch[name]).max(), 0.1)
        assert np.abs(oneflow[name] - torch[name]).max() <= tolerance * scale, name


def validation(weights, data, project):
    return ("val", "--weights", weights, "--data", data, "--img", 64, "--task", "train",
            "--workers", 0, "--project", project, "--device", "cpu")  # fmt: skip


def scores(printed):
    """(mAP50, mAP50-95) over all classes that val.py prints."""
    row = next(line.split() for line in printed.splitlines() if line.split()[:1] == ["all"])
    return np.array(row[-2:], float)


def test_weights_of_either_backend_validate_equally(tmp_path):
    data = write_small_dataset(tmp_path)
    common = ("train", "--data", data, "--img", 64, "--batch", 4, "--workers", 0, "--noplots",
              "--project", tmp_path, "--device", "cpu")  # fmt: skip
    files = [tmp_path / name / "weights" / "last.safetensors" for name in BACKENDS]
    validations = [validation(weights, data, tmp_path / "val") for weights in files]
    hyp = write_hyperparameters(tmp_path, "overfit", **OVERFIT)
    start = ("--cfg", write_tiny_model(tmp_path), "--epochs", EPOCHS, "--hyp", hyp, "--noval")
    _, first = run_several("torch", (*common, *start, "--name", "torch"), validations[0])
    still = write_hyperparameters(tmp_path, "still", lr0=1e-5)
    start = ("--weights", files[0], "--epochs", 1, "--hyp", still)
    _, *others = run_several("oneflow", (*common, *start, "--name", "oneflow"), *validations)
    (last,) = run_several("torch", validations[1])
    assert [load_checkpoint(weights).header.backend for weights in files] == list(BACKENDS)
    for torch, oneflow in ((first, others[0]), (last, others[1])):
        assert scores(torch)[0] > 0.1  # it has learnt enough for a difference to show
        np.testing.assert_allclose(scores(torch), scores(oneflow), rtol=0, atol=1e-4)
