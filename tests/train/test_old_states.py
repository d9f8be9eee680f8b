"""States that earlier versions wrote go on under this one."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import train
from duet.utils.data.image.decoding import choose_reduction
from duet.utils.data.image.letterbox import fit_letterbox, reduced_size
from duet.utils.data.loading.items import BoxItems
from duet.utils.weights.checkpoint import load_checkpoint
from tests.equal_runs import rows
from tests.train.old_state import FLAGS, write_inputs

DATE = Path(__file__).parent / "states" / "2026-11-21"
STATES = sorted(DATE.glob("*.safetensors"))
# Their version rounded the sides of a resized image to the nearest pixel, and resized and warped an
# image in one step. So the digest of the batches that each state holds, and the weights, are those
# of other pixels than today's.
LOADER = (
    "duet.utils.data.loading.items.fit_long_side",
    "duet.utils.data.loading.order.fit_long_side",
    "duet.utils.data.augment.canvas.fit_long_side",
)
# Between machines and frameworks float32 sums round differently; two epochs at small rates.
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder with an uninterrupted run of today's code on those pixels in it, runs/whole."""
    folder = tmp_path_factory.mktemp("old")
    write_inputs(folder, DATE / "shapes")
    run_training(folder, "--name", "whole")
    return folder


def run_training(folder, *flags):
    with pytest.MonkeyPatch.context() as patch:
        for name in LOADER:
            patch.setattr(name, round_to_nearest)
        patch.setattr(BoxItems, "kept_size", as_decoded)
        patch.chdir(folder)
        patch.setattr("sys.argv", ["train.py", *FLAGS, *flags])
        train.main()


def round_to_nearest(original_size, long_side, input_size):
    return fit_letterbox(original_size, input_size, long_side / max(original_size))


def as_decoded(items, size, image_size):
    return reduced_size(size, choose_reduction(size, image_size))


@pytest.mark.parametrize("state", STATES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_state_of_an_earlier_version_goes_on_to_the_same_end(whole, state):
    run = whole / "runs" / state.stem
    (run / "weights").mkdir(parents=True)
    shutil.copyfile(state, run / "weights" / "state-00000001.safetensors")
    run_training(whole, "--name", state.stem, "--resume", f"runs/{state.stem}")
    found, expected = (
        load_checkpoint(folder / "weights" / "last.safetensors")
        for folder in (run, whole / "runs" / "whole")
    )
    assert found.header.batch_number == expected.header.batch_number
    assert found.header.ema_updates == expected.header.ema_updates
    assert found.header.progress["work"] == expected.header.progress["work"]
    for section in ("model", "ema", "optimizer"):
        arrays = getattr(expected, section)
        assert getattr(found, section).keys() == arrays.keys()
        for name, array in getattr(found, section).items():
            np.testing.assert_allclose(array, arrays[name], 0, TOLERANCE, err_msg=name)
    for row, of_whole in zip(rows(run), rows(whole / "runs" / "whole"), strict=True):
        assert row.keys() == of_whole.keys()
