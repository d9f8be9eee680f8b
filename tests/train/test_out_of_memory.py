"""A run whose memory does not suffice for a batch ends with the flags against it."""

import pytest

from duet.models.detector import images_to_tensor
from duet.models.training import step
from duet.utils.errors import LoaderError, UserError
from duet.utils.weights.checkpoint import load_checkpoint
from tests.out_of_memory import run_out
from tests.train.short_runs import folder_of, short_flags, start


def test_memory_that_ran_out_names_flags_and_the_run_goes_on_with_them(
    tmp_path, monkeypatch, caplog
):
    flags = [*short_flags(tmp_path), "--save-steps", "1", "--name", "crowded"]
    seen = []

    def memory_for_two(images, *arguments):
        seen.append(len(images))
        return run_out() if len(seen) == 3 else images_to_tensor(images, *arguments)

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
        LoaderError("worker 0 died; if the machine ran out of memory, use fewer"),
    ],
)
def test_other_errors_stay_what_they_are(tmp_path, monkeypatch, error):
    def broken(*arguments):
        raise error

    monkeypatch.setattr(step, "images_to_tensor", broken)
    with pytest.raises(type(error), match=str(error)):
        start(short_flags(tmp_path))
