"""models/heads/anchor/balance.py: the levels' weights follow their losses, and are state."""

import math

import numpy as np
import pytest

from duet.backend import ops
from duet.models.heads.anchor.balance import LevelBalance
from tests.losses import loss_settings
from tests.unit.models.heads.anchor.test_loss import ONE_TARGET, raw_maps
from tests.unit.models.heads.anchor.test_padded import padded
from tests.unit.models.heads.test_seam import AnchorHead, build


def follow(balance, losses):
    balance.weights("float32", "cpu")
    balance.see([ops.tensor(np.array(loss, np.float32)) for loss in losses])
    balance.follow()
    return values_of(balance)


def values_of(learning):
    """What a balance, or the loss that has one, has learnt."""
    return ops.to_numpy(learning.state()["balance"]).tolist()


@pytest.mark.parametrize("bad", [0.0, math.inf, math.nan, 1e-38])
def test_a_loss_of_nothing_or_not_finite_leaves_the_weights_as_they_are(bad):
    balance = LevelBalance(3, 1)
    before = follow(balance, (0.5, 0.25, 0.125))
    for place in range(3):
        losses = [0.5, 0.25, 0.125]
        losses[place] = bad
        assert follow(balance, losses) == before
    assert follow(balance, (0.5, 0.25, 0.125)) != before


def test_a_restored_balance_goes_on_bit_for_bit():
    balance, again = LevelBalance(3, 1), LevelBalance(3, 1)
    follow(balance, (0.3, 0.7, 0.11))
    again.restore({"balance": values_of(balance)})
    assert values_of(again) == values_of(balance)
    assert follow(again, (0.2, 0.1, 0.9)) == follow(balance, (0.2, 0.1, 0.9))


@pytest.mark.parametrize(
    "state",
    [{}, {"balance": [1.0, 1.0]}, {"balance": [4.0, 1.0, math.nan]}, {"balance": [4.0, 0.0, 1.0]},
     {"balance": [4.0, 1.0, 0.4], "more": [1.0]}, {"other": [1.0, 1.0, 1.0]}],
)  # fmt: skip
def test_a_state_of_another_loss_is_refused(state):
    with pytest.raises(ValueError, match="balance"):
        LevelBalance(3, 1).restore(state)
    if state:
        with pytest.raises(ValueError, match="balance"):
            LevelBalance(3).restore(state)


def test_a_validation_changes_no_weight_and_the_compiled_form_shares_them():
    head = build(AnchorHead).head
    loss = head.make_loss(loss_settings(64, {"autobalance": True}))
    step_loss = padded(loss)
    maps = raw_maps(5)[:2]
    before = values_of(loss)
    step_loss(maps, ONE_TARGET)
    assert values_of(loss) == before
    loss.end_batch()
    learnt = values_of(loss)
    assert learnt != before and values_of(step_loss) == learnt
