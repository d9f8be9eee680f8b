"""States that earlier code wrote resume."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import train
from duet.utils.weights.checkpoint import load_checkpoint
from tests.equal_runs import rows
from tests.train.old_state import FLAGS, write_inputs

STATES = sorted((Path(__file__).parent / "states").glob("*/*.safetensors"))
# Between machines and frameworks float32 sums round differently; two epochs at small rates.
TOLERANCE = 1e-4


def run_training(folder, *flags):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("sys.argv", ["train.py", *FLAGS, *flags])
        train.main()


@pytest.mark.parametrize("state", STATES, ids=lambda path: path.parent.name)
def test_a_stored_state_resumes_to_the_end_of_an_uninterrupted_run(tmp_path, state):
    write_inputs(tmp_path, state.parent / "shapes")
    run_training(tmp_path, "--name", "whole")
    run = tmp_path / "runs" / "old"
    (run / "weights").mkdir(parents=True)
    shutil.copyfile(state, run / "weights" / "state-00000001.safetensors")
    run_training(tmp_path, "--resume", "runs/old")
    found, expected = (
        load_checkpoint(folder / "weights" / "last.safetensors")
        for folder in (run, tmp_path / "runs" / "whole")
    )
    assert found.header.batch_number == expected.header.batch_number
    assert found.header.ema_updates == expected.header.ema_updates
    assert found.header.progress["work"] == expected.header.progress["work"]
    for section in ("model", "ema", "optimizer"):
        arrays = getattr(expected, section)
        assert getattr(found, section).keys() == arrays.keys()
        for name, array in getattr(found, section).items():
            np.testing.assert_allclose(array, arrays[name], 0, TOLERANCE, err_msg=name)
    for row, of_whole in zip(rows(run), rows(tmp_path / "runs" / "whole"), strict=True):
        assert row.keys() == of_whole.keys()
