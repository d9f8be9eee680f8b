"""Runs with --batch-size -1, and runs whose memory does not suffice for a batch."""

import pytest

from duet.models.detector import images_to_tensor
from duet.models.training import batch_size, step
from duet.models.training.batch_size import fitting_batch
from duet.utils.errors import UserError, WorkerError
from duet.utils.files.yaml_files import read_yaml
from duet.utils.processes.suspend import Suspended
from duet.utils.state.resume import load_state
from duet.utils.weights.checkpoint import load_checkpoint
from tests.frameworks import run_out_of_memory
from tests.train.short_runs import StopAt, folder_of, short_flags, start

IMAGES = 12  # of the small dataset: fewer than the 16 of a CPU


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    return [*short_flags(tmp_path_factory.mktemp("inputs")), "--batch-size", "-1"]


def test_cpu_batch_size_is_chosen_once_and_kept(flags, caplog, monkeypatch):
    with caplog.at_level("INFO"), pytest.raises(Suspended):
        start([*flags, "--name", "measured"], StopAt(1))
    folder = folder_of(flags, "measured")
    assert f"--batch-size -1: using {IMAGES}; larger batches are no faster on a CPU" in caplog.text
    assert read_yaml("--hyp", folder / "opt.yaml", "")["batch_size"] == IMAGES
    state = load_state(folder / "weights" / "last.safetensors")
    assert state.header.settings["batch_size"] == IMAGES
    monkeypatch.setattr(batch_size, "with_batch_size", None)  # is not called
    start([*flags, "--resume", str(folder)])
    assert (folder / "work.json").exists()


def test_less_memory_gives_smaller_batches_or_an_error(flags, monkeypatch):
    seen = []

    def measured(job):  # as on a GPU
        seen.append(fitting_batch(job, "cpu", IMAGES))
        raise Suspended("enough")

    monkeypatch.setattr(batch_size, "with_batch_size", measured)
    monkeypatch.setattr(
        batch_size.backend.device, "peak_memory", lambda run, device: run() or 1000 + peak()
    )
    monkeypatch.setattr(batch_size.backend.device, "free_memory", lambda device: 10_000)
    step = batch_size.train_step
    images, validated = [], []
    monkeypatch.setattr(
        batch_size,
        "train_step",
        lambda state, batch, stage: (images.append(len(batch.images)), step(state, batch, stage)),
    )

    predict = batch_size.network_input
    monkeypatch.setattr(
        batch_size,
        "network_input",
        lambda model, images, *given: (
            validated.append(len(images)),
            predict(model, images, *given),
        )[1],
    )

    def peak():
        return 2000 * images[-1] if images else 0

    with pytest.raises(Suspended):
        start([*flags, "--name", "little"])
    # 1,000 bytes are there and 8,000 of the 10,000 free may be taken: four images of 2,000.
    assert seen == [4]
    assert images == [1, 1, 2, 2, 4, 4]
    assert validated == [2, 4, 8]  # twice as many, in a measured validation
    images.clear()
    monkeypatch.setattr(batch_size.backend.device, "free_memory", lambda device: 2000)
    with pytest.raises(UserError, match="with 1 image .*smaller --img or model"):
        start([*flags, "--name", "none"])


def test_out_of_memory_names_flags_and_resumes_with_them(tmp_path, monkeypatch, caplog):
    flags = [*short_flags(tmp_path), "--save-steps", "1", "--name", "crowded"]
    seen = []

    def memory_for_two(images, *arguments):
        seen.append(len(images))
        return run_out_of_memory() if len(seen) == 3 else images_to_tensor(images, *arguments)

    monkeypatch.setattr(step, "images_to_tensor", memory_for_two)
    with pytest.raises(UserError, match="out of memory with 4 images per pass") as error:
        start(flags)
    assert "--batch-size 4" in str(error.value) and "--micro-batch 2" in str(error.value)
    start([*flags, "--resume", str(folder_of(flags, "crowded")), "--micro-batch", "2"])
    assert seen == [4, 4, 4] + [2, 2] * 4
    state = load_checkpoint(folder_of(flags, "crowded") / "weights" / "last.safetensors")
    assert state.header.batch_number == 6


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("an illegal memory access"),
        WorkerError("worker 0 died; if the machine ran out of memory, use fewer"),
    ],
)
def test_other_errors_are_not_rewritten(tmp_path, monkeypatch, error):
    def broken(*arguments):
        raise error

    monkeypatch.setattr(step, "images_to_tensor", broken)
    with pytest.raises(type(error), match=str(error)):
        start(short_flags(tmp_path))
