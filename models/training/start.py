"""Build the model of a run, load its weights, and build everything that trains it."""

import dataclasses
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from duet import backend
from duet.backend import amp, dist, multi_tensor, nn
from duet.backend.checks import CPU
from duet.backend.processes import this_process
from duet.models.detector import Detector, require_image_size
from duet.models.graph import (
    ModelSpec,
    coarsest_stride,
    count_gflops,
    parse_model,
    plan_layers,
    read_model_yaml,
)
from duet.models.heads.base import LossSettings
from duet.models.stored import spec_of_weights
from duet.models.training.execution import (
    bfloat16_ratio,
    choose_execution,
    choose_step_threads,
)
from duet.models.training.from_labels import fit_to_labels, with_class_weights
from duet.models.training.multi_scale import MultiScale
from duet.models.training.optimizer import (
    LossScale,
    ModelEMA,
    Schedule,
    build_optimizer,
    freeze_layers,
    parameter_groups,
)
from duet.models.training.step import TrainState
from duet.models.training.step_watch import StepWatch
from duet.utils.cli.hyperparameters import Hyperparameters
from duet.utils.cli.task_flags import adopted, find_task
from duet.utils.cli.train_config import TrainConfig
from duet.utils.memory import keep_freed_images, keep_freed_memory
from duet.utils.processes.ranks import on_main
from duet.utils.processes.start import is_called
from duet.utils.report.console import EpochTable
from duet.utils.state.job import Job
from duet.utils.text import count
from duet.utils.weights.checkpoint import Checkpoint
from duet.utils.weights.transfer import match_classes, transfer_arrays

MOST_LEFT = 5  # names of tensors that are logged
NEW_HEAD = "the head is initialized anew; --remap-classes keeps the classes with matching names"
SAME_HEAD = "the number is equal, so the head keeps their order; --remap-classes matches by name"

log = logging.getLogger("train")


def build(job: Job, batches: int, model: Detector | None = None) -> TrainState:
    """Build the training state for this number of batches per epoch.

    model: the model of a state to resume; None to build one.
    """
    config, ranks = job.config, job.session.world.process.world_size
    device = backend.device.resolve(config.device)
    # glibc has no way back, and the process of a Python caller goes on afterwards.
    if not is_called():
        if device == CPU:
            keep_freed_memory()
        else:  # without workers, images are decoded in this process
            keep_freed_images()
    if model is None:
        fit = partial(fit_to_labels, job=job)
        model = build_model(config, job.hyp, job.start, job.data.class_names, fit)
    gflops = count_gflops(plan_layers(model.spec), config.image_size)
    choose_step_threads(
        images_at_a_time(config.batch_size, config.micro_batch, ranks) * gflops, device
    )
    return build_state(config, with_class_weights(job.hyp, job.data), model, batches, device)


def images_at_a_time(batch_size: int, micro_batch: int, ranks: int) -> int:
    images = -(-batch_size // ranks)
    return min(images, micro_batch or images)


def build_model(
    config: TrainConfig,
    hyp: Hyperparameters,
    start: Checkpoint | None,
    class_names: Sequence[str],
    fit: Callable[[ModelSpec], ModelSpec] | None = None,
) -> Detector:
    """Build the model of --cfg or --weights, initialize it from the seed, and load the weights.

    fit: adapts the spec of --cfg or --weights.
    """
    spec = spec_to_train(config, start, len(class_names))
    require_image_size(config.image_size, coarsest_stride(plan_layers(spec)), trains=True)
    asked, spec = spec, fit(spec) if fit else spec
    model = Detector(spec)
    model.initialize(config.seed)
    if start is not None:
        # Anchors come from the model YAML if given, or from the labels, else from the weights.
        keep_anchors = bool(config.cfg) or spec is not asked
        remap_classes = config.remap_classes or bool(hyp.keep_head)
        transfer_weights(model, start, class_names, keep_anchors, remap_classes)
    return model


@contextmanager
def quietly() -> Iterator[None]:
    """Leave out lines that the run's own model logs again."""
    level = log.level
    log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.setLevel(level)


def spec_to_train(config: TrainConfig, start: Checkpoint | None, num_classes: int) -> ModelSpec:
    """Return the spec of --cfg, --weights or the task's default, with the task's head."""
    task = find_task(config.task, config.cfg, start.header.model if start else {})
    if config.cfg or start is None:
        if not config.cfg:
            log.info("no --weights and no --cfg: training %s from scratch", task.model)
        given = read_model_yaml(config.cfg or task.model)
    else:
        given = spec_of_weights(start)
    return parse_model(adopted(task, given.document, config.cutoff), num_classes)


def transfer_weights(
    model: Detector,
    start: Checkpoint,
    class_names: Sequence[str],
    keep_anchors: bool,
    remap_classes: bool = False,
) -> None:
    """Load the arrays whose shapes match, and log the others.

    remap_classes: load the rows of matching classes in the head too.
    """
    if start.header.settings.get("fused"):
        log.warning(
            "--weights: BatchNorm is fused into the convolutions, which makes them a worse start "
            "for training; use the checkpoint from before fusing"
        )
    head, known = model.head_name, start.header.class_names
    anchors = f"{head}anchors"
    rows = classes = None
    if remap_classes:
        own = model.head.class_rows()
        rows = dataclasses.replace(own, prefixes=tuple(head + prefix for prefix in own.prefixes))
        classes = match_classes(class_names, known)
        found = len(classes.new_index)
        wanted = count(len(class_names), "class", "classes")
        log.info("%d of %s matched by name; the others are initialized anew", found, wanted)
    kept = (anchors,) if keep_anchors else ()
    transfer = transfer_arrays(nn.state_arrays(model), start.ema, kept, rows, classes)
    nn.load_state_arrays(model, transfer.state)
    because, left = "", transfer.left
    if known and known != tuple(class_names) and not remap_classes:
        is_new = any(x.startswith(head) and not x.startswith(anchors) for x in left)
        what = NEW_HEAD if is_new else SAME_HEAD
        because = f"; the weights were trained on other classes: {what}"
        left = tuple(line for line in left if not line.startswith(head))
    log.info("transferred %d/%d tensors%s", transfer.taken, len(transfer.state), because)
    more = [f"{len(left) - MOST_LEFT} more"] if len(left) > MOST_LEFT else []
    for line in (*left[:MOST_LEFT], *more):
        log.info("  not transferred: %s", line)


def build_state(
    config: TrainConfig,
    hyp: Hyperparameters,
    model: Detector,
    batches: int,
    device: str,
    dtype: str = "float32",
) -> TrainState:
    """Build the EMA, loss, optimizer and schedule of a run with this many batches per epoch."""
    accumulates = model.head.task.accumulates
    schedule = Schedule(hyp, config.epochs, batches, config.batch_size, config.cosine, accumulates)
    model = nn.place(model, device, dtype)
    drops = config.dropout > 0
    execution = choose_execution(device, dtype, config.amp, config.layout, config.compile, drops)
    if execution.channels_last:
        nn.lay_channels_last(model)
    freeze_layers(model, len(model.spec.layers), config.freeze)
    model.head.dropout = config.dropout
    together = uses_fused(config.multi_tensor_optimizer, device)
    if together:
        described = multi_tensor.describe(config.optimizer, device)
        log.info("--multi_tensor_optimizer: %s", described)
    ema = ModelEMA(model, together, hyp.ema_share)
    parallel = parallelize(model, config.sync_bn)
    fused = uses_fused(config.bbox_iou_optim, device)
    settings = LossSettings(hyp.loss_gains(), config.image_size, fused, config.label_smoothing)
    loss = model.head.make_loss(settings)
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
        parameters=[parameter for _, parameter in nn.named_parameters(model)],
        forward=execution.forward_of(parallel),
        step_loss=loss_scale.scaled(execution.loss_of(loss)),
        loss_scale=loss_scale,
        implementations={
            "compiled": execution.compiled,
            **loss.implementations,
            "optimizer": how,
            "average": how,
        },
        watch=StepWatch(model.head.loss_names),
        table=EpochTable(model.head.loss_names, model.head.row_names()),
        seed=config.seed,
        multi_scale=multi_scale,
        fixed_shapes=multi_scale is None and not config.rect,
        micro_batch=config.micro_batch,
    )


def uses_fused(asked: bool | None, device: str) -> bool:
    """Return whether to use a fused path: as asked, else on a GPU, whose launches it saves."""
    return device != CPU if asked is None else asked


def parallelize(model: Detector, sync_bn: bool) -> nn.Module:
    """Wrap the model for data parallelism; --sync-bn synchronizes its BatchNorm layers.

    In a single process it is returned unchanged.
    """
    if this_process().world_size > 1:
        if sync_bn:
            nn.synchronize_batch_norm(model)
        return dist.data_parallel(model)
    if sync_bn:
        log.info("--sync-bn has no effect in a single process")
    return model


def with_precision(job: Job) -> Job:
    """Return the job of a new run: instead of a slower bfloat16 it computes as with --amp auto.

    Rank 0 decides for all. A run that resumes keeps what it had.
    """
    config, world = job.config, job.session.world
    device = backend.device.resolve(config.device)
    if device != CPU or "bfloat16" not in amp.supported(device):
        return job
    ratio = 0.0
    if world.process.is_main:
        with quietly():
            spec = spec_to_train(config, job.start, len(job.data.class_names))
        ratio = bfloat16_ratio(*main_sizes(spec, config.image_size))
    if not world.any(ratio > 1):
        return job
    on_main(log.warning)(
        "--amp bf16: bfloat16 is slower than float32 on this CPU (x%.1f); computing in float32; "
        "--amp bf16-always uses it anyway", ratio,
    )  # fmt: skip
    return dataclasses.replace(job, config=dataclasses.replace(config, amp="auto"))


def main_sizes(spec: ModelSpec, image_size: int) -> tuple[int, int]:
    """Return the channels, and the cells along a side, of the maps that take most computation."""
    work = Counter[tuple[int, int]]()
    for layer in plan_layers(spec)[:-1]:  # the head's channels are outputs
        cells = max(image_size // layer.stride, 1)
        for stride, cost in layer.costs:
            work[layer.out_channels, cells] += cost.weights // max(stride, 1) ** 2
    return work.most_common(1)[0][0]
