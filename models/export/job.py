"""The work of export.py: weights -> an ONNX graph -> a file of each format, verified.

Before: `export.py` read flags and weights and chose the backend of the model. After: the files,
beside the weights.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from models.export.graph_process import write_graph
from models.graph import coarsest_stride, plan_layers
from models.stored import spec_of_weights
from utils.cli.export_config import ExportConfig
from utils.errors import UserError
from utils.export.formats import Format, format_named
from utils.export.onnx_file import require_below_limit
from utils.runtimes.metadata import DETECTIONS, EFFICIENT, FLOATS, PIXELS, ROWS, Metadata
from utils.screen.text import say
from utils.state.checkpoint import Checkpoint


def run_export(config: ExportConfig, checkpoint: Checkpoint) -> None:
    """Write and verify a file of each format that --include names.

    Raises:
        UserError: the model cannot be built or takes no such size, or a file differs from it.
    """
    require_below_limit(checkpoint.ema, config.half)
    metadata = metadata_of_weights(config, checkpoint)
    with tempfile.TemporaryDirectory(prefix="duet-export-") as folder:
        graph = Path(folder, "graph.onnx")
        write_graph(config, graph)
        for name in config.include:
            row = format_named(name)
            path = exported_path(config.weights, row)
            assert row.convert is not None
            row.convert(graph, path, metadata, None)
            say(f"{row.title}: {path}")


def metadata_of_weights(config: ExportConfig, checkpoint: Checkpoint) -> Metadata:
    """Return what the files say of themselves; UserError for a size that does not fit the model."""
    spec = spec_of_weights(checkpoint)
    stride = coarsest_stride(plan_layers(spec))
    for side in config.image_size:
        if side % stride:
            fitting = -(-side // stride) * stride
            raise UserError(
                f"--imgsz {side} is no multiple of the model's stride {stride}; use {fitting}"
            )
    names = checkpoint.header.class_names
    numbered = (f"class{number}" for number in range(len(names), spec.num_classes))
    return Metadata(
        class_names=(*names, *numbered),
        stride=stride,
        image_size=config.image_size,
        batch_size=config.batch_size,
        dynamic=config.dynamic,
        image=PIXELS if config.letterbox else FLOATS,
        output=output_kind(config),
        precision=config.precision,
        head=spec.layers[-1].block,
        suppression=vars(config.suppression) if config.nms else {},
    )


def output_kind(config: ExportConfig) -> str:
    """Return which kind of output the flags ask for, as metadata names it."""
    if config.efficient_nms:
        return EFFICIENT
    return DETECTIONS if config.nms else ROWS


def exported_path(weights: str, row: Format) -> Path:
    """Return where the file of a format goes: beside the weights, under their name."""
    path = Path(weights)
    return path.with_name(path.stem + row.ending)
