"""The work of export.py: weights -> an ONNX graph -> a file of each format, verified.

Before: `export.py` read flags, weights and images, and chose the backend of the model. After: the
files, beside the weights.
"""

from __future__ import annotations

import dataclasses
import logging
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import backend
from backend.checks import CPU
from backend.select import FRAMEWORKS
from backend.words import count
from models.detector import Detector
from models.evaluation import DEFAULT_SUPPRESSION
from models.export.by_layer import where_they_part
from models.export.calibration import batch_of, calibration_images
from models.export.compared import TOLERANCES
from models.export.graph_process import write_graph
from models.export.kinds import kind_of_flags
from models.export.matched import Limits
from models.export.scoring import (
    Dataset,
    Score,
    fault_of_matches,
    fault_of_score,
    require_same_classes,
    score,
    table,
    warning_of_score,
)
from models.export.traced import write_trace
from models.export.trials import Trial, chosen_images, make_trials
from models.export.verify import verify
from models.graph import coarsest_stride, plan_layers
from models.inference.exported import ExportedPredictor
from models.inference.predictor import class_names_of, load_detector, trained_size
from models.registry import find_block
from models.stored import spec_of_weights
from utils.cli.export_config import ExportConfig
from utils.data.sources.samples import table_of
from utils.errors import UserError
from utils.evaluation.nms import SuppressionSettings
from utils.export.formats import GRAPH, Format, format_named
from utils.export.onnx_file import require_below_limit, write_onnx
from utils.export.opening import open_runtime
from utils.export.place import exported_path, require_free_place, size_of
from utils.export.ranges import Calibration
from utils.processes.termination import ending_at_termination, ending_later
from utils.runtimes.metadata import FLOATS, PIXELS, Metadata, only_tensorrt_runs
from utils.runtimes.outputs import KINDS
from utils.screen.text import as_message, say
from utils.state.checkpoint import Checkpoint, save_checkpoint
from utils.state.start_checks import check_image_size

log = logging.getLogger("export")

NOTHING_FOUND = (
    "nothing is found in these images; give --data with images that show the model's classes"
)
OLDER = "older"  # of a folder whose name the new one takes


@dataclass
class Export:
    """What the files of all formats are made from, and compared with.

    Attributes:
        settings: of NMS, for the figures on --data.
        scores: those figures, the model's first; [] without --data.
    """

    config: ExportConfig
    metadata: Metadata
    graph: Path
    model: Detector
    trials: list[Trial]
    dataset: Dataset | None
    settings: SuppressionSettings
    scores: list[Score]


def run_export(config: ExportConfig, checkpoint: Checkpoint, dataset: Dataset | None) -> int:
    """Write and verify a file of each format that --include names.

    Returns:
        How many formats failed: they leave no file, and say why.

    Raises:
        UserError: the model cannot be built, takes no such size or has other classes than --data.
    """
    require_below_limit(checkpoint.ema, config.half)
    config = with_size(config, checkpoint)
    metadata = metadata_of_weights(config, checkpoint)
    model = load_detector(checkpoint, CPU)
    if dataset is not None:
        samples = table_of(dataset.samples)
        model.head.task.check_to_score(samples, dataset.name, config.weights, dataset.is_of_folders)
        require_same_classes(dataset, model.head)
    model.require_memory((config.batch_size, 3, *config.image_size), trains=False)
    if config.int8:  # calibration holds all maps, as training does
        model.require_memory((batch_of(metadata), 3, *config.image_size), trains=True)
    if config.device not in ("", CPU):
        log.warning(
            "--device %s: only --include engine uses it; other formats use the CPU", config.device
        )
    if not FRAMEWORKS[backend.use()].trains:
        log.warning(
            "backend onnx runs the model: files are compared with their own graph, unoptimized"
        )
    images = chosen_images(dataset and dataset.samples)
    trials = make_trials(model, images, metadata)
    source = f"--data {dataset.name}" if dataset else "the built-in dataset"
    with ending_at_termination(), tempfile.TemporaryDirectory(prefix="duet-export-") as folder:
        graph = Path(folder, "graph.onnx")
        snapshot = write_snapshot(checkpoint, Path(folder))
        write_graph(dataclasses.replace(config, weights=str(snapshot)), graph)
        say(f"files are compared with the model on {count(len(images), 'image')} of {source}")
        settings = config.suppression if config.nms else DEFAULT_SUPPRESSION
        export = Export(config, metadata, graph, model, trials, dataset, settings, [])
        if dataset is not None:
            export.scores.append(score("model", model, dataset, metadata, settings))
        formats = [format_named(name) for name in dict.fromkeys(config.include)]
        failed = sum(not exported(export, row) for row in formats)
    if export.scores:
        say(*table(export.scores, model.head))
    return failed


def write_snapshot(checkpoint: Checkpoint, folder: Path) -> Path:
    """Write what an export needs of the weights, for the process of the graph; return the file.

    A training may replace those of --weights at any time.
    """
    path = folder / "weights.safetensors"
    header = dataclasses.replace(checkpoint.header, hyperparameters={}, settings={}, progress={})
    save_checkpoint(path, Checkpoint(header, model={}, ema=checkpoint.ema, optimizer={}))
    return path


def exported(export: Export, row: Format) -> bool:
    """Make and verify the file of a format; return whether it is there now.

    It is made in a folder beside its place: under its own name there is never a wrong one.
    """
    path = exported_path(export.config.weights, row)
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


def calibration_of(export: Export) -> Calibration | None:
    """Return the images that choose the ranges of --int8; None without the flag."""
    if not export.config.int8:
        return None
    assert export.dataset is not None, "the flags ask for --data"
    task = export.model.head.task
    return calibration_images(export.dataset.samples, export.metadata, task.view)


def make_and_verify(export: Export, row: Format, made: Path) -> str:
    """Write a file; return what to say of it, or raise UserError with what is wrong with it."""
    row.convert(source_of(export, row), made, export.metadata, calibration_of(export))
    if why := why_not_run(row, export.metadata):
        return f"not verified: {why}"
    runtime = open_runtime(made, runtime=row.name)
    limits, tolerance = Limits.of(export.config), TOLERANCES[export.config.precision]
    result = verify(runtime, export.metadata, export.trials, limits, tolerance)
    if result.fault:
        part = result.failing and part_of(export, row, made, result.failing)
        lines = (f"it differs from the model: {result.fault}", part)
        raise UserError("\n".join(filter(None, lines)))
    precision = export.config.precision
    fault = fault_of_matches(result.num_matched, result.num_found, precision, result.things)
    if fault:
        raise UserError(fault)
    if export.dataset is not None:
        found = score(
            made.name, ExportedPredictor(runtime), export.dataset, export.metadata, export.settings
        )
        output = export.metadata.output
        if fault := fault_of_score(found, export.scores[0], precision, output):
            raise UserError(fault)
        if text := warning_of_score(found, export.scores[0], precision):
            log.warning(text)
        difference = result.differences
        export.scores.append(found._replace(megabytes=megabytes(made), difference=difference))
    if KINDS[export.metadata.output].has_nms and not result.num_matched:
        return f"not verified: {NOTHING_FOUND}"
    return f"{result.matches} matched; largest difference: {result.differences}"


def part_of(export: Export, row: Format, made: Path, trial: Trial) -> str:
    """Return in words where a wrong file differs from the model, in the trial that shows it.

    "" for a trace, and for 8 bits, which change what every layer returns.
    """
    if row.source != GRAPH or export.config.int8:
        return ""
    is_graph = row.name == "onnx"
    if not is_graph and graph_agrees(export, trial):
        return "the ONNX graph that it is made from agrees with the model; its conversion does not"
    if trial.is_resized:
        return "images of the network's size agree; the file resizes other sizes in another way"
    graph = made if is_graph else export.graph
    part = where_they_part(graph, export.model, trial.images, export.metadata)
    return part if is_graph else f"of the ONNX graph that it is made from: {part}"


def graph_agrees(export: Export, trial: Trial) -> bool:
    """Return whether the graph, before its conversion, predicts what the model does in a trial."""
    metadata, path = export.metadata, export.graph.with_name("described.onnx")
    write_onnx(export.graph, path, metadata, None)
    runtime = open_runtime(path, runtime="onnx")
    limits = Limits.of(export.config)
    tolerance = TOLERANCES["float16" if metadata.precision == "float16" else "float32"]
    return not verify(runtime, metadata, [trial], limits, tolerance).fault


def why_not_run(row: Format, metadata: Metadata) -> str:
    """Return why a file cannot be run on this machine; "" if it can."""
    if only_tensorrt_runs(metadata):
        return "only TensorRT has its operator EfficientNMS_TRT"
    return row.why_not_run()


def source_of(export: Export, row: Format) -> Path:
    """Return the file of which that of a format is made; a trace is written when first needed."""
    if row.source == GRAPH:
        return export.graph
    trace = export.graph.with_name("trace.pt")
    if not trace.exists():
        write_trace(export.model, export.metadata, trace)
    return trace


def move(made: Path, path: Path, row: Format) -> None:
    """Put a file or folder in its place; an older one goes only if that succeeds.

    Rename replaces no folder that has files in it. So the older one is first moved to beside the
    new one, and moved back if the new one cannot take its place. Only a kill between the two
    leaves both there.

    Raises:
        UserError: something else is in the way.
    """
    require_free_place(path, row)
    older = made.with_name(OLDER)
    with ending_later():
        if row.folder and path.exists():
            path.rename(older)
        try:
            made.replace(path)
        except BaseException:
            if older.exists():
                older.rename(path)
            raise


def megabytes(path: Path) -> str:
    """Return the size of a file, or of all files of a folder."""
    size = size_of(path) / 1e6
    return f"{size:.1f}" if size >= 1 else f"{size:.2g}"


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
