"""The model as several ranks train it; `state.py::build_state` before, `train_step` after."""

from __future__ import annotations

import logging
from typing import Any

from backend import device, dist, nn, use
from backend.processes import this_process
from models.detector import Detector
from utils.cli.train_config import TrainConfig
from utils.errors import UserError

log = logging.getLogger("train")


def parallelize(config: TrainConfig, model: Detector) -> Any:
    """Return what is called in place of the model; --sync-bn joins its BatchNorm layers.

    In one process these stay as they are: what joins them would take longer for the same numbers.

    Raises:
        UserError: --half-gradients on a backend that cannot send them.
    """
    if config.half_gradients and not device.supports("half_gradients"):
        raise UserError(
            f"--half-gradients: the {use()} backend cannot send bfloat16 gradients; leave it out, "
            "or train with --backend torch"
        )
    if this_process().world_size > 1:
        if config.sync_bn:
            nn.synchronize_batch_norm(model)
        return dist.data_parallel(model, config.half_gradients)
    for flag, asked in (("--sync-bn", config.sync_bn), ("--half-gradients", config.half_gradients)):
        if asked:
            log.info("%s has no effect: there is one process", flag)
    return model
