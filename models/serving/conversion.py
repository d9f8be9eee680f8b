"""Weights -> an exported file of them, which a CPU runs faster under load.

Before: `job.py` read the weights. After: a worker that runs the file, without a framework.

Of YOLOv5n at 640x480 px, on four cores that others used too, ONNX Runtime needed 51 ms of processor
time an image in four lanes of one thread, and 62 ms on four threads; OpenVINO 58 ms in lanes, and
80 to 117 ms on four threads.
"""

from __future__ import annotations

from pathlib import Path

import backend
from models.export.job import run_export, write_snapshot
from models.inference.predictor import with_size
from models.registry import find_block
from models.serving.model import detect_config
from models.stored import spec_of_weights
from utils.cli.export_config import ExportConfig
from utils.errors import UserError
from utils.export.formats import format_named
from utils.export.place import exported_path
from utils.serve.messages import WorkerSettings
from utils.state.checkpoint import Checkpoint

USUAL_FORMAT = "onnx"


def converted(settings: WorkerSettings, checkpoint: Checkpoint, folder: Path) -> Path:
    """Write the exported file of a checkpoint into a folder, verified as export.py does.

    It takes images of any size, where its format can.

    Raises:
        UserError: the format cannot be written here, or the file differs from the model.
    """
    row = format_named(settings.runtime or USUAL_FORMAT)
    task = find_block(spec_of_weights(checkpoint).layers[-1].block).kind.task
    size = with_size(detect_config(settings), task, [checkpoint]).image_size
    config = ExportConfig(
        weights=str(write_snapshot(checkpoint, folder)),
        include=(row.name,),
        sizes=(size,),
        dynamic=row.dynamic,
        backend=backend.use(),
    )
    if run_export(config, checkpoint, None):
        raise UserError(f"--weights {settings.weights}: no {row.title} file could be made of it")
    return exported_path(config.weights, row)
