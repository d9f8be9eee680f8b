"""The model that a run starts from: drawn from the seed, with the weights that fit.

Before: flags and `utils/weights/load.py`. After: `state.py::build_state`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from backend import nn
from backend.words import count
from models.detector import Detector, require_image_size
from models.graph import (
    ModelSpec,
    coarsest_stride,
    parse_model,
    plan_layers,
    read_model_yaml,
)
from models.stored import spec_of_weights
from utils.cli.train_config import TrainConfig
from utils.state.checkpoint import Checkpoint
from utils.weights.transfer import match_classes, transfer_arrays

DEFAULT_MODEL = "models/yolov5s.yaml"  # that of the public commands

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
    if config.cfg or start is None:
        if not config.cfg:
            log.info("no --weights and no --cfg: %s from scratch", DEFAULT_MODEL)
        spec = read_model_yaml(config.cfg or DEFAULT_MODEL, len(class_names))
    else:
        spec = parse_model(spec_of_weights(start).document, len(class_names))
    require_image_size(config.image_size, coarsest_stride(plan_layers(spec)), trains=True)
    asked, spec = spec, fit(spec) if fit else spec
    model = Detector(spec)
    model.initialize(config.seed)
    if start is not None:
        # A model YAML that was asked for decides on the anchors, or the labels, else the weights.
        keep_anchors = bool(config.cfg) or spec is not asked
        transfer_weights(config, model, start, class_names, keep_anchors)
    return model


def transfer_weights(
    config: TrainConfig,
    model: Detector,
    start: Checkpoint,
    class_names: Sequence[str],
    keep_anchors: bool,
) -> None:
    """Take over the arrays that fit, with --remap-classes class by class, and say which did not."""
    if start.header.settings.get("fused"):
        log.warning(
            "--weights: BatchNorm was folded into their convolutions, which training cannot undo: "
            "it starts from worse weights; give the checkpoint from before fusing"
        )
    head = f"model.{len(model.spec.layers) - 1}."
    classes = None
    known = start.header.class_names
    if known and known != tuple(class_names) and not config.remap_classes:
        log.info("the weights are for other classes: --remap-classes keeps what fits of their head")
    if config.remap_classes:
        classes = match_classes(class_names, start.header.class_names)
        found = len(classes.new_index)
        wanted = count(len(class_names), "class", "classes")
        log.info("%d of %s found by name; the others start anew", found, wanted)
    kept = (f"{head}anchors",) if keep_anchors else ()
    transfer = transfer_arrays(nn.state_arrays(model), start.ema, kept, f"{head}m.", classes)
    nn.load_state_arrays(model, transfer.state)
    log.info("transferred %d/%d tensors", transfer.taken, len(transfer.state))
    for line in transfer.left:
        log.info("  not transferred: %s", line)
