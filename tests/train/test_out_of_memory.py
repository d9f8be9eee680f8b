"""A run whose memory does not suffice for a batch goes on in pieces, also after a stop."""

import pytest

from models.detector import images_to_tensor
from models.training import pieces
from tests.equal_runs import assert_equal_runs
from tests.out_of_memory import run_out
from tests.train.short_runs import StopAt, folder_of, short_flags, start
from utils.processes.suspend import Suspended
from utils.state.checkpoint import load_checkpoint
from utils.state.resume import load_state

FAILS_AT = 2  # batches before the one that does not fit


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    return short_flags(tmp_path_factory.mktemp("inputs"))


@pytest.fixture
def little_memory(monkeypatch):
    """Let a training step run out of memory once, for the third batch."""
    seen = []

    def fail_once(*arguments):
        seen.append(len(arguments[0]))
        return run_out() if len(seen) == FAILS_AT + 1 else images_to_tensor(*arguments)

    monkeypatch.setattr(pieces, "images_to_tensor", fail_once)
    return seen


def test_a_run_in_pieces_that_was_stopped_ends_as_one_that_was_not(flags, little_memory, caplog):
    start([*flags, "--name", "whole"])
    assert little_memory == [4, 4, 4] + [2, 2] * 4
    assert "out of memory with 4 images of 64 x 64 px at a time: from now on 2" in caplog.text
    little_memory.clear()
    with pytest.raises(Suspended):
        start([*flags, "--name", "stopped"], StopAt(5))  # after the first batch of epoch 2
    folder = folder_of(flags, "stopped")
    state = load_state(folder / "weights" / "last.safetensors")
    assert state.header.progress["micro_batches"] == [2]
    little_memory.extend([0] * 9)  # memory suffices from here on, but the run keeps to its pieces
    start([*flags, "--resume", str(folder)])
    assert little_memory[-4:] == [2, 2, 2, 2]
    assert_equal_runs(folder, folder_of(flags, "whole"))


def test_a_run_goes_on_with_fewer_images_at_a_time(flags, little_memory):
    little_memory.extend([0] * 9)
    with pytest.raises(Suspended):
        start([*flags, "--name", "lowered"], StopAt(5))
    folder = folder_of(flags, "lowered")
    start([*flags, "--resume", str(folder), "--micro-batch", "1"])
    assert little_memory[-8:] == [1] * 8
    checkpoint = load_checkpoint(folder / "weights" / "last.safetensors")
    assert checkpoint.header.progress["micro_batches"] == [1]
