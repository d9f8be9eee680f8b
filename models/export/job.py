"""The main function of export.py: weights -> ONNX graph or trace -> verified files."""

import dataclasses
import logging
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from duet import backend
from duet.backend import nn, ops
from duet.backend.checks import CPU
from duet.backend.contract import Tensor
from duet.backend.select import FRAMEWORKS
from duet.models.detector import Detector, check_image_size
from duet.models.evaluation.evaluate import DEFAULT_SUPPRESSION
from duet.models.export.dataset import (
    Dataset,
    Score,
    calibration_images,
    fault_of_score,
    images_to_list,
    score,
    table,
)
from duet.models.export.exported import ExportedPredictor, exported_kind, form_of
from duet.models.export.graph_process import write_graph
from duet.models.export.raw import raw_metadata
from duet.models.export.verify import Trial, chosen_images, make_trials, verify
from duet.models.heads.base import Head
from duet.models.inference.classes import scored_classes
from duet.models.inference.predictor import class_names_of, input_size, warn_of_other_size
from duet.models.stored import fold_batch_norm, load_detector
from duet.utils.data.sources.samples import table_of
from duet.utils.errors import UserError
from duet.utils.export.config import ExportConfig
from duet.utils.export.formats import (
    FORMATS,
    GRAPH,
    Format,
    exported_path,
    format_named,
    require_free_place,
    size_of,
)
from duet.utils.export.metadata import (
    MASKS,
    MOST_MASKS,
    RAW,
    Metadata,
    metadata_as_json,
    output_names,
)
from duet.utils.export.opening import open_runtime
from duet.utils.export.quantization import write_calibration_list
from duet.utils.geometry.detections import SuppressionSettings
from duet.utils.processes.start import ending_at_termination
from duet.utils.project import command_line, from_here
from duet.utils.text import as_message, count, say
from duet.utils.weights.checkpoint import Checkpoint

log = logging.getLogger("export")

# Of weights in an ONNX graph: protobuf ends at 2**31, and cells of large images take 180 MB.
MOST_BYTES = 2**31 - 2**28
NOTHING_FOUND = (
    "nothing is found in these images; give --data with images that show the model's classes"
)


@dataclass
class Export:
    """The source of all files, and the model's predictions to compare them with."""

    config: ExportConfig
    metadata: Metadata
    graph: Path
    model: Detector
    trials: list[Trial]
    dataset: Dataset | None
    settings: SuppressionSettings  # for metrics on --data
    scores: list[Score]  # these metrics, the model's first; [] without --data


class Exports(NamedTuple):
    """Files written by an export, and formats that failed; their errors were printed."""

    files: tuple[Path, ...]
    failed: tuple[str, ...]


def run_export(config: ExportConfig, checkpoint: Checkpoint, dataset: Dataset | None) -> Exports:
    require_room_in_graph(checkpoint, config.half)
    model = load_detector(checkpoint, CPU)
    if config.sizes:
        warn_of_other_size(max(config.sizes), [checkpoint])
    else:
        config = dataclasses.replace(config, sizes=(input_size(None, model, [checkpoint]),))
    metadata = metadata_for(config, checkpoint, model)
    if dataset is not None:
        dataset = scored_dataset(config.weights, checkpoint, model, dataset)
    model.require_memory((config.batch_size, 3, *config.image_size), trains=False)
    if config.int8:  # calibration holds all maps, as training does
        model.require_memory((metadata.smallest_batch, 3, *config.image_size), trains=True)
    warn_of_limits(config.device)
    images = chosen_images(dataset and dataset.samples)
    trials = make_trials(model, images, metadata)
    source = f" of --data {dataset.name}" if dataset else ": photographs and the built-in dataset"
    if dataset is not None and config.calibration_list:
        write_calibration_list(Path(config.calibration_list), images_to_list(dataset.samples))
    if config.raw:
        dataset = None  # nothing is detected that could be scored
    with ending_at_termination(), tempfile.TemporaryDirectory(prefix="duet-export-") as place:
        folder = Path(place)
        graph = folder / "graph.onnx"
        write_graph(config, graph)
        say(f"files are compared with the model on {count(len(images), 'image')}{source}")
        settings = config.suppression if config.nms else DEFAULT_SUPPRESSION
        export = Export(config, metadata, graph, model, trials, dataset, settings, [])
        if dataset is not None:
            export.scores.append(score("model", model, dataset, metadata, settings))
        formats = [format_named(name) for name in dict.fromkeys(config.include)]
        done = {row: exported(export, row) for row in formats}
    if export.scores:
        say(*table(export.scores, model.head))
    files = (exported_path(config.weights, row, config.suffix) for row in formats if done[row])
    return Exports(tuple(files), tuple(row.name for row in formats if not done[row]))


def require_room_in_graph(checkpoint: Checkpoint, half: bool) -> None:
    size = sum(array.nbytes for array in checkpoint.ema.values()) // (1 + half)
    if size > MOST_BYTES:
        raise UserError(
            f"the weights have {size:,} bytes; an ONNX file holds at most {MOST_BYTES:,}: use "
            "--half, or export a smaller model"
        )


def scored_dataset(
    weights: str, checkpoint: Checkpoint, model: Detector, dataset: Dataset
) -> Dataset:
    """Return --data with the model's classes; UserError if its labels or classes do not fit."""
    head, samples = model.head, table_of(dataset.samples)
    head.task.check_labels(samples, dataset.name, dataset.is_of_folders, weights)
    known = checkpoint.class_names and class_names_of(checkpoint, head.num_classes)
    data, file = f"--data {dataset.name}", f"--weights {weights}"
    classes = scored_classes(data, dataset.class_names, file, known, head.num_classes)
    return dataset._replace(class_names=classes.names, samples=classes.renumbered(samples))


def warn_of_limits(device: str) -> None:
    if device not in ("", CPU):
        log.warning("--device %s: only --include engine uses it; other formats use the CPU", device)
    if not FRAMEWORKS[backend.use()].trains:
        log.warning(
            "backend onnx runs the model: files are compared with their own graph, unoptimized"
        )


def next_commands(config: ExportConfig, files: Sequence[Path]) -> list[str]:
    """Return the commands that use the first of the files that can be run here; [] for none."""
    rows = [row for row in FORMATS if not row.is_program and not row.why_not_run()]
    able = [path for path in files if any(row.has_written(path) for row in rows)]
    if not able or config.raw:
        return []
    weights = "--weights", from_here(able[0])
    commands = [command_line("val", *weights, "--data", config.data)] if config.data else []
    commands.append(command_line("detect", *weights, "--source", "images/"))
    commands.append(command_line("serve", *weights))
    return ["next:", *(f"  {command}" for command in commands)]


def metadata_for(config: ExportConfig, checkpoint: Checkpoint, model: Detector) -> Metadata:
    """Return the metadata of the files; UserError for a size that does not fit the model."""
    for side in config.image_size:
        check_image_size(side, model.stride, "--imgsz")
    return Metadata(
        class_names=class_names_of(checkpoint, model.head.num_classes),
        stride=model.stride,
        image_size=config.image_size,
        batch_size=config.batch_size,
        dynamic=config.dynamic,
        output=output_kind(config, type(model.head)),
        precision=config.precision,
        head=model.spec.layers[-1].block,
        suppression=vars(config.suppression) if config.nms else {},
        trained_size=checkpoint.trained_size,
        raw=raw_metadata(model.head, config.raw) if config.raw else {},
    )


def output_kind(config: ExportConfig, head: type[Head]) -> str:
    """Return the kind of output; UserError for flags or formats that do not fit the head."""
    kind = RAW if config.raw else exported_kind(head, config.nms)
    if kind == MASKS and config.top_all > MOST_MASKS:
        raise UserError(
            f"--topk-all {config.top_all}: at most {MOST_MASKS:,} masks per image are read; use "
            "a smaller number"
        )
    for name in config.include:
        if len(output_names(kind)) > 1 and not format_named(name).several_outputs:
            fit = ", ".join(row.name for row in FORMATS if row.several_outputs)
            raise UserError(
                f"--include {name}: files of this task have 2 outputs, and that "
                f"format is written with only one; formats with several: {fit}"
            )
    return kind


def exported(export: Export, row: Format) -> bool:
    """Write and verify the file of a format; return whether that succeeded.

    It is written to a temporary folder beside its path, and moved there once verified.
    """
    path = exported_path(export.config.weights, row, export.config.suffix)
    with tempfile.TemporaryDirectory(prefix=".duet-export-", dir=path.parent) as folder:
        made = Path(folder, path.name)
        try:
            shown = make_and_verify(export, row, made)
            size = megabytes(made)
            move(made, path, row)
        except (UserError, OSError) as error:
            lines = as_message(f"error: {row.title}: {error}\n{path} is not written").split("\n")
            say(*lines, file=sys.stderr)
            return False
    say(f"{row.title}: {path}, {size} MB; {shown}")
    return True


def make_and_verify(export: Export, row: Format, made: Path) -> str:
    """Write and verify a file; return the outcome to print, or raise UserError for a wrong file."""
    metadata, calibration = export.metadata, None
    if export.config.int8:
        assert export.dataset is not None, "the flags ask for --data"
        view = export.model.head.task.view.load()
        calibration = calibration_images(export.dataset.samples, metadata, view)
    row.convert(source_of(export, row), made, metadata, calibration)
    if why := row.why_not_run():
        return f"not verified: {why}"
    runtime = open_runtime(made, runtime=row.name, is_trusted=True)
    result = verify(runtime, metadata, export.trials, export.config)
    if result.fault:
        raise UserError(f"it differs from the model: {result.fault}")
    if export.dataset is not None:
        predictor, model = ExportedPredictor(runtime), export.scores[0]
        found = score(made.name, predictor, export.dataset, metadata, export.settings)
        if fault := fault_of_score(found, model, metadata):
            raise UserError(fault)
        difference = result.differences
        export.scores.append(found._replace(megabytes=megabytes(made), difference=difference))
    if metadata.suppression and not result.num_matched:
        return f"not verified: {NOTHING_FOUND}"
    return f"{result.matches} matched; largest difference: {result.differences}"


def source_of(export: Export, row: Format) -> Path:
    """Return the file that a format converts: the graph, or a trace written when first needed."""
    if row.source == GRAPH:
        return export.graph
    trace = export.graph.with_name("trace.pt")
    if not trace.exists():
        write_trace(export.model, export.metadata, trace)
    return trace


class Decoded(nn.Module):
    """A model that returns all predictions, like a file without NMS."""

    def __init__(self, model: Detector) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, ...]:
        outputs = form_of(self.model.head).outputs(self.model.head, self.model(images))
        return outputs if len(outputs) > 1 else outputs[0]


def write_trace(model: Detector, metadata: Metadata, path: Path) -> None:
    """Write the TorchScript trace of a model with BatchNorm folded, for one size and batch."""
    folded = nn.frozen_copy(model)
    fold_batch_norm(folded)
    shape = metadata.batch_size, 3, *metadata.image_size
    example = ops.tensor(np.zeros(shape, np.float32))
    content = nn.to_torchscript(Decoded(folded).eval(), example, metadata_as_json(metadata))
    path.write_bytes(content)


def move(made: Path, path: Path, row: Format) -> None:
    """Move a file or folder to its path, replacing an older export; UserError for anything else."""
    require_free_place(path, row)
    if row.folder and path.exists():  # rename replaces no folder
        path.replace(made.with_name(f"{made.name}.old"))  # removed with the temporary folder
    made.replace(path)


def megabytes(path: Path) -> str:
    size = size_of(path) / 1e6
    return f"{size:.1f}" if size >= 1 else f"{size:.2g}"
