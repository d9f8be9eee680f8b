"""What a training step reads and changes, built from flags and a model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backend import device as devices
from backend import dist, nn, use
from backend.contract import Optimizer, Tensor
from backend.processes import this_process
from models.detector import Detector
from models.heads.base import Loss, LossTerms
from models.training.ema import ModelEMA
from models.training.execution import Execution, choose_execution
from models.training.multi_scale import MultiScale
from models.training.optimizer import build_optimizer, freeze_layers, parameter_groups
from models.training.schedule import NOMINAL_BATCH, Schedule
from models.training.step_watch import LossScale, StepWatch
from models.training.updates import choose_updates
from utils.cli.hyperparameters import Hyperparameters
from utils.cli.train_config import TrainConfig
from utils.data.loading.quads import QUAD
from utils.errors import UserError
from utils.report.console import EpochTable
from utils.report.stage_timer import StageTimer

GRADIENT_NORM_LIMIT = 10.0

log = logging.getLogger("train")


@dataclass
class TrainState:
    """What a training step reads and changes."""

    model: Detector
    ema: ModelEMA
    loss: Loss
    optimizer: Optimizer
    schedule: Schedule
    device: str
    dtype: str  # of weights and images
    execution: Execution
    parallel: Any  # the model as several ranks train it together
    forward: Callable[[Tensor], Sequence[Tensor]]  # that, and
    step_loss: Callable[..., LossTerms]  # the loss, as a step runs them
    loss_scale: LossScale
    means: Mapping[str, Any]  # that were chosen, for work.json
    watch: StepWatch
    table: EpochTable  # of the epochs, on screen
    seed: int = 0  # of the run
    multi_scale: MultiScale | None = None  # None: batches keep their size
    timer: StageTimer = field(default_factory=StageTimer)  # of the epoch
    seconds_before: Mapping[str, float] | None = None  # that it took before a resumption
    batch_number: int = 0  # batches since the start of training
    last_update: int = -1  # number of the batch of the last optimizer step
    micro_batch: int = 0  # images that this rank computes at a time; 0: all of a batch
    epoch: int = 0  # finished epochs
    best_fitness: float = -1.0
    best_epoch: int = 0  # finished epochs at the last one of which none before was better
    # With --image-weights: (C,) of the validation before an epoch, from that of the last update on.
    class_scores: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    learnt: Mapping[str, Any] = field(default_factory=dict)  # what the loss had at the last update


def build_state(
    config: TrainConfig,
    hyp: Hyperparameters,
    model: Detector,
    batches: int,
    device: str,
    dtype: str = "float32",
) -> TrainState:
    """Build EMA, loss, optimizer and schedule of a new run, for so many batches per epoch."""
    nominal = NOMINAL_BATCH if model.head.task.accumulates else config.batch_size
    schedule = Schedule(hyp, config.epochs, batches, config.batch_size, config.cosine, nominal)
    model = nn.place(model, device, dtype)
    drops = config.dropout > 0
    execution = choose_execution(device, dtype, config.amp, config.layout, config.compile, drops)
    if execution.channels_last:
        nn.lay_channels_last(model)
    freeze_layers(model, len(model.spec.layers), config.freeze)
    if drops:
        model.head.drop(config.dropout)
    number = len(nn.float_tensors(model)())
    together = config.multi_tensor_optimizer and choose_updates(
        config.optimizer, number, device, dtype
    )
    ema = ModelEMA(model, together)
    parallel = parallelize(model, config.sync_bn, config.half_gradients)
    fused_on = device if config.bbox_iou_optim else None
    strengths = config.label_smoothing, config.autobalance
    loss = model.head.make_loss(hyp, config.image_size, fused_on, *strengths)
    groups = parameter_groups(model, schedule.weight_decay)
    loss_scale = LossScale.of_precision(execution.dtype)
    how = "fast" if together else "plain"
    multi_scale = None
    if config.multi_scale:
        multi_scale = MultiScale.of_model(config.image_size, model.stride, config.seed)
    return TrainState(
        model=model,
        ema=ema,
        loss=loss,
        optimizer=build_optimizer(config.optimizer, groups, hyp, together),
        schedule=schedule,
        device=device,
        dtype=dtype,
        execution=execution,
        parallel=parallel,
        forward=execution.forward_of(parallel),
        # A total is for as many images as those of --quad were made of.
        step_loss=loss_scale.scaled(execution.loss_of(loss), QUAD if config.quad else 1),
        loss_scale=loss_scale,
        means={"compiled": execution.compiled, **loss.means, "optimizer": how, "average": how},
        watch=StepWatch(model.head.loss_names),
        table=EpochTable(model.head.loss_names, model.head.row_names()),
        seed=config.seed,
        multi_scale=multi_scale,
        micro_batch=config.micro_batch,
        learnt=loss.state(),
    )


def parallelize(model: Any, sync_bn: bool, half_gradients: bool) -> Any:
    """Return what is called in place of the model; --sync-bn joins its BatchNorm layers.

    In one process these stay as they are: what joins them would take longer for the same numbers.

    Raises:
        UserError: --half-gradients on a backend that cannot send them.
    """
    if half_gradients and not devices.supports("half_gradients"):
        raise UserError(
            f"--half-gradients: the {use()} backend cannot send bfloat16 gradients; leave it out, "
            "or train with --backend torch"
        )
    if this_process().world_size > 1:
        if sync_bn:
            nn.synchronize_batch_norm(model)
        return dist.data_parallel(model, half_gradients)
    for flag, asked in (("--sync-bn", sync_bn), ("--half-gradients", half_gradients)):
        if asked:
            log.info("%s has no effect: there is one process", flag)
    return model
