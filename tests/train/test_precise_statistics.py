"""--precise-bn in a run: what is validated is what is kept, also across interruptions."""

import numpy as np
import pytest

from duet.utils.processes.suspend import Suspended
from duet.utils.weights.checkpoint import load_checkpoint
from tests.equal_runs import assert_equal_runs
from tests.train.short_runs import StopAt, folder_of, short_flags, start


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    return [*short_flags(tmp_path_factory.mktemp("inputs")), "--precise-bn", "2"]


@pytest.fixture(scope="module")
def whole(flags):
    """The folder of a run without interruption."""
    start([*flags, "--name", "whole"])
    return folder_of(flags, "whole")


@pytest.mark.parametrize("stop", [4, 7])  # in the validation, in the next epoch
def test_a_run_that_was_stopped_ends_as_one_that_was_not(flags, whole, stop):
    name = f"stopped{stop}"
    with pytest.raises(Suspended):
        start([*flags, "--name", name], StopAt(stop))
    start([*flags, "--resume", str(folder_of(flags, name))])
    assert_equal_runs(folder_of(flags, name), whole)


def test_training_itself_is_the_same_without_it(flags, whole):
    start([*flags, "--name", "without", "--precise-bn", "0"])
    with_it, without = (
        load_checkpoint(folder / "weights" / "last.safetensors")
        for folder in (whole, folder_of(flags, "without"))
    )
    for name, array in without.model.items():
        np.testing.assert_array_equal(with_it.model[name], array, name)
    differing = {
        name for name, x in without.ema.items() if not np.array_equal(with_it.ema[name], x)
    }
    assert differing == {name for name in without.ema if "running" in name}
