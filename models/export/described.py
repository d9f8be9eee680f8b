"""What the flags of export.py ask of the files of a model: their size, output and metadata."""

from __future__ import annotations

import dataclasses

from models.graph import coarsest_stride, plan_layers
from models.heads.base import Head
from models.inference.predictor import class_names_of, trained_size
from models.registry import find_block
from models.stored import spec_of_weights
from utils.cli.export_config import ExportConfig
from utils.errors import UserError
from utils.export.formats import FORMATS, format_named
from utils.export.metadata import FLOATS, PIXELS, Metadata
from utils.export.outputs import KINDS
from utils.state.checkpoint import Checkpoint
from utils.state.start_checks import check_image_size


def with_size(config: ExportConfig, checkpoint: Checkpoint) -> ExportConfig:
    """Return flags with the size of the task's images where --imgsz was left out."""
    if config.is_size_given:
        return config
    task = find_block(spec_of_weights(checkpoint).layers[-1].block).kind.task
    size = task.input_size(trained_size(checkpoint))
    return dataclasses.replace(config, sizes=(size,), is_size_given=True)


def metadata_of_weights(config: ExportConfig, checkpoint: Checkpoint) -> Metadata:
    """Return the metadata of the files; UserError for a size that does not fit the model."""
    spec = spec_of_weights(checkpoint)
    stride = coarsest_stride(plan_layers(spec))
    for side in config.image_size:
        check_image_size(side, stride, "--imgsz")
    return Metadata(
        class_names=class_names_of(checkpoint, spec.num_classes),
        stride=stride,
        image_size=config.image_size,
        batch_size=config.batch_size,
        dynamic=config.dynamic,
        image=PIXELS if config.letterbox else FLOATS,
        output=kind_of_flags(find_block(spec.layers[-1].block).kind, config),
        precision=config.precision,
        head=spec.layers[-1].block,
        suppression=vars(config.suppression) if config.nms else {},
    )


def kind_of_flags(head: type[Head], config: ExportConfig) -> str:
    """Return the kind of output; UserError for flags or formats that do not go with the head."""
    kind = head.exported_kind(config.nms, config.efficient_nms, config.letterbox)
    most = KINDS[kind].most
    if most is not None and config.top_all > most:
        raise UserError(
            f"--topk-all {config.top_all}: at most {most:,} masks per image are read; use "
            "a smaller number"
        )
    number = len(KINDS[kind].outputs)
    for name in config.include:
        if number > 1 and KINDS[kind].runs_here and not format_named(name).several_outputs:
            fit = ", ".join(row.name for row in FORMATS if row.several_outputs)
            raise UserError(
                f"--include {name}: files of this task have {number} outputs, and that format is "
                f"written with only one; formats with several: {fit}"
            )
    return kind
