"""A training that one backend began goes on under the other, its optimizer's state included."""

import numpy as np
import pytest

from tests.environments import BACKENDS, python_of, run_python
from tests.small import write_small_dataset, write_small_model
from utils.cli.recipe_config import OPTIMIZERS
from utils.state.checkpoint import load_checkpoint

STEPS = 2
# Of the largest value of an array, after one step in float64 from equal states. BatchNorm's
# running variances are 3e-8 apart (measured): OneFlow's kernel keeps the share in float32.
TOLERANCE = 1e-7


@pytest.fixture(scope="module", params=BACKENDS)
def continued(request, tmp_path_factory):
    """A writer of checkpoints, and the folder with its next step and that of the other backend."""
    for backend in BACKENDS:
        python_of(backend)
    writer = request.param
    (reader,) = set(BACKENDS) - {writer}
    folder = tmp_path_factory.mktemp(writer)
    data, model = write_small_dataset(folder), write_small_model(folder)
    for backend, steps in ((writer, STEPS), (reader, 0)):
        run_python(backend, "-m", "tests.parity.continue_worker", folder, data, model, steps)
    return writer, reader, folder


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_next_step_is_the_same_under_the_other_backend(continued, optimizer):
    writer, reader, folder = continued
    checkpoint = load_checkpoint(folder / f"{optimizer}.safetensors")
    assert (checkpoint.header.backend, checkpoint.header.ema_updates) == (writer, STEPS)
    wanted, found = (np.load(folder / f"{optimizer}-{name}.npz") for name in (writer, reader))
    assert set(found.files) == set(wanted.files)
    # Momenta that had been lost would show in those after the step.
    assert {f"optimizer/{name}" for name in checkpoint.optimizer} <= set(wanted.files)
    assert all(np.any(array) for array in checkpoint.optimizer.values())
    for name in wanted.files:
        scale = max(np.abs(wanted[name]).max(), 1e-6)
        assert np.abs(found[name] - wanted[name]).max() <= TOLERANCE * scale, name
