"""Whether the device skipped an update, which the host learns later.

Before: `step.py::update_weights` queues an update, which the device itself leaves out where a
number is not finite. After: the host counts it, before the next update, a checkpoint or the end of
the epoch.
"""

from __future__ import annotations

from models.training.state import TrainState


def settle(state: TrainState) -> None:
    """Read whether the last update happened, unless that is known, and take it back if not.

    Raises:
        UserError: too many updates in a row were left out; see `StepWatch.settle`.
    """
    happened = state.watch.settle(state.loss_scale.can_fall)
    if happened is None:
        return
    state.loss_scale.update(happened)
    if not happened:
        state.optimizer.uncount_step()
        state.ema.uncount_update()
