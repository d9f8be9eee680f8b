"""Which losses of a run are kept, which count in the means, and how float16 scales them."""

import json

import numpy as np
import pytest

from duet.backend import ops
from duet.models.heads.anchor.head import AnchorHead
from duet.models.heads.base import LossTerms
from duet.models.training import step_watch
from duet.models.training.step_watch import BatchName, StepWatch
from duet.utils.errors import UserError


def add(watch, step, losses):
    terms = [ops.tensor(np.array(loss, np.float32)) for loss in losses]
    by_name = dict(zip(watch.loss_names, terms, strict=True))
    watch.add(BatchName(1, step, np.array([step])), LossTerms(by_name, terms[0]))


def test_non_finite_losses_are_left_out_of_the_means():
    watch = StepWatch(AnchorHead.loss_names)
    add(watch, 1, (1, 1, 1))
    add(watch, 2, (np.nan, 1, 1))
    assert watch.end_epoch().tolist() == [1, 1, 1]
    assert np.isnan(watch.end_epoch()).all()


def number(value):
    return ops.tensor(np.array(value, np.float32))


def update_applied(watch, norm, scale_can_fall=False):
    """What the host reads of an update, which must be what the device decided."""
    lost = float(ops.to_numpy(watch.close_update(norm)))
    happened = watch.settle(scale_can_fall)
    assert lost == (0 if happened else 1)
    assert watch.settle() is None  # until the next update
    return happened


def test_skipped_update_names_lost_batches_or_all_of_them(caplog):
    watch = StepWatch(AnchorHead.loss_names)
    for step, loss in ((1, 1), (2, np.nan), (3, 1)):
        add(watch, step, (loss, 1, 1))
    assert not update_applied(watch, number(1))
    for step in (4, 5):
        add(watch, step, (1, 1, 1))
    assert not update_applied(watch, number(np.inf))
    of_losses, of_gradient = caplog.messages
    assert "the loss is not finite: box nan" in of_losses
    assert [f"step {step}," in of_losses for step in (1, 2, 3)] == [False, True, False]
    assert "losses are finite, but a gradient is not finite: box 1.0000" in of_gradient
    assert [f"step {step}," in of_gradient for step in (3, 4, 5)] == [False, True, True]


def test_stop_request_travels_with_the_losses():
    watch = StepWatch(AnchorHead.loss_names)
    requests = [False, True]
    watch.carry_requests(requests.pop)
    found = [watch.asked]
    for step in (1, 2):
        add(watch, step, (1, 2, 3))
        assert update_applied(watch, number(1))
        found.append(watch.asked)
    assert found == [False, True, False]
    assert watch.means().tolist() == [1, 2, 3]


def test_epoch_counts_its_skipped_updates_and_lost_batches(caplog):
    watch = StepWatch(AnchorHead.loss_names)
    for lost in (np.nan, np.inf):
        for loss in (1, lost, lost):
            add(watch, 1, (loss, 1, 1))
        assert not update_applied(watch, number(1))
    assert watch.skipped == 2
    caplog.clear()
    watch.end_epoch()
    assert [message.split()[0] for message in caplog.messages] == ["2", "4"]
    assert watch.skipped == 0
    caplog.clear()
    add(watch, 1, (1, 1, 1))
    assert update_applied(watch, number(1))
    watch.end_epoch()
    assert not caplog.messages


def test_finite_update_resets_the_skip_count():
    watch = StepWatch(AnchorHead.loss_names)
    for _ in range(3):
        for _ in range(9):
            assert not update_applied(watch, number(np.nan))
        assert update_applied(watch, number(1))


def test_overflows_are_fatal_only_at_the_lowest_loss_scale():
    watch, overflow = StepWatch(AnchorHead.loss_names), ops.tensor(np.array(np.inf, np.float32))
    for step in range(30):
        add(watch, step, (1, 1, 1))
        assert not update_applied(watch, overflow, scale_can_fall=True)
    for step in range(step_watch.MOST_IN_A_ROW - 1):
        add(watch, step, (1, 1, 1))
        assert not update_applied(watch, overflow)
    add(watch, 0, (1, 1, 1))
    with pytest.raises(UserError, match="10 updates in a row"):
        update_applied(watch, overflow)


def run_updates(restarts):
    """Six batches, an update after each second one; the watch is stored and restored in between.

    Batches since the last update are added again, as a run that goes on computes them again.
    """
    watch, one = StepWatch(AnchorHead.loss_names), ops.tensor(np.array(1, np.float32))
    answers = []
    for step in range(1, 7):
        losses = step / 3, np.nan if step == 3 else 0.1, 0.7
        add(watch, step, losses)
        if step in restarts:
            stored = json.loads(json.dumps(watch.state()))
            watch = StepWatch(AnchorHead.loss_names)
            watch.restore(stored)
            if step % 2:
                add(watch, step, losses)
                watch.restore(stored)
        if step % 2 == 0:
            answers.append(update_applied(watch, one))
    return answers, watch.state(), watch.end_epoch().tolist()


@pytest.mark.parametrize("restarts", [{1}, {1, 3, 5}])
def test_restored_watch_continues_identically(restarts, caplog):
    answers, state, means = run_updates(restarts)
    again = [record.message for record in caplog.records]
    caplog.clear()
    expected = run_updates(set())
    assert answers == expected[0] == [True, False, True]
    assert str(state) == str(expected[1])  # NaN is not equal to itself
    assert means == expected[2]
    assert again == [record.message for record in caplog.records]


def test_update_is_lost_by_a_loss_read_before_it():
    watch = StepWatch(AnchorHead.loss_names)
    add(watch, 1, (np.nan, 1, 1))
    watch.state()
    add(watch, 2, (1, 1, 1))
    assert not update_applied(watch, number(1))
    assert update_applied(watch, number(1))
