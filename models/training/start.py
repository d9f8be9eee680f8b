"""The model that a run starts from: fitted to the labels, with the weights that fit it."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable, Sequence

from backend import nn
from models.blocks.registry import find_block
from models.detector import Detector, require_image_size
from models.graph import (
    ModelSpec,
    coarsest_stride,
    parse_model,
    plan_layers,
    read_model_yaml,
)
from models.heads.base import Head
from models.stored import spec_of_weights
from utils.cli.train_config import TrainConfig
from utils.data.anchors.fit import label_sizes
from utils.json_files import parse_json
from utils.state.job import Job
from utils.tasks.table import find_task
from utils.text import count
from utils.weights.checkpoint import Checkpoint
from utils.weights.transfer import match_classes, transfer_arrays

NEW_HEAD = "the head starts from new weights; --remap-classes keeps those that fit, class by class"
SAME_HEAD = "equally many, so the head keeps them in order; --remap-classes pairs them by name"

log = logging.getLogger("train")


def build_model(
    config: TrainConfig,
    start: Checkpoint | None,
    class_names: Sequence[str],
    fit: Callable[[ModelSpec], ModelSpec] | None = None,
) -> Detector:
    """Return the model of --cfg or of --weights, drawn from the seed, with the weights that fit.

    fit: gives the model that is made in place of that of --cfg or --weights.
    """
    spec = spec_to_train(config, start, len(class_names))
    require_image_size(config.image_size, coarsest_stride(plan_layers(spec)), trains=True)
    asked, spec = spec, fit(spec) if fit else spec
    model = Detector(spec)
    model.initialize(config.seed)
    if start is not None:
        # A model YAML that was asked for decides on the anchors, or the labels, else the weights.
        keep_anchors = bool(config.cfg) or spec is not asked
        transfer_weights(model, start, class_names, keep_anchors, config.remap_classes)
    return model


def fit_to_labels(spec: ModelSpec, job: Job) -> ModelSpec:
    """Return the model as its head wants it for the labels of a new training; all ranks get one.

    Raises:
        UserError: the flags do not go with what the head needs.
    """
    head: type[Head] = find_block(spec.layers[-1].block).kind
    plans = plan_layers(spec)
    strides = [plans[source].stride for source in spec.layers[-1].sources]
    fitted, world = "", job.session.world
    if world.process.is_main:  # one process decides: another's processor may round otherwise
        sizes_wh = label_sizes(job.data.train, job.config.image_size)
        fitted = json.dumps(head.fitted(spec.document, strides, sizes_wh, job.hyp, job.config))
    document = parse_json(world.of_main(fitted))
    return spec if document == spec.document else parse_model(document)


def spec_to_train(config: TrainConfig, start: Checkpoint | None, num_classes: int) -> ModelSpec:
    """Return the model of --cfg, of --weights or of the task, with the head of the task."""
    task = find_task(config.task, config.cfg, start.header.model if start else {})
    if config.cfg or start is None:
        if not config.cfg:
            log.info("no --weights and no --cfg: %s from scratch", task.model)
        given = read_model_yaml(config.cfg or task.model)
    else:
        given = spec_of_weights(start)
    return parse_model(task.adopted(given.document, config.cutoff), num_classes)


def transfer_weights(
    model: Detector,
    start: Checkpoint,
    class_names: Sequence[str],
    keep_anchors: bool,
    remap_classes: bool = False,
) -> None:
    """Take over the arrays that fit, and log which did not.

    remap_classes: take over the head too, class by class.
    """
    if start.header.settings.get("fused"):
        log.warning(
            "--weights: BatchNorm was folded into their convolutions, which training cannot undo: "
            "it starts from worse weights; give the checkpoint from before fusing"
        )
    head = model.head_name
    rows = classes = None
    if remap_classes:
        own = model.head.class_rows()
        rows = dataclasses.replace(own, prefix=head + own.prefix)
        classes = match_classes(class_names, start.header.class_names)
        found = len(classes.new_index)
        wanted = count(len(class_names), "class", "classes")
        log.info("%d of %s found by name; the others start from new weights", found, wanted)
    kept = (f"{head}anchors",) if keep_anchors else ()
    transfer = transfer_arrays(nn.state_arrays(model), start.ema, kept, rows, classes)
    nn.load_state_arrays(model, transfer.state)
    log.info("transferred %d/%d tensors", transfer.taken, len(transfer.state))
    for line in transfer.left:
        log.info("  not transferred: %s", line)
    known = start.header.class_names
    if known and known != tuple(class_names) and not remap_classes:
        anchors = f"{head}anchors"
        left = any(line.startswith(head) and not line.startswith(anchors) for line in transfer.left)
        log.info("the weights are for other classes: %s", NEW_HEAD if left else SAME_HEAD)
