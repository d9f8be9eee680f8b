"""The work of export.py: weights -> an ONNX graph -> a file of each format, verified.

Before: `export.py` read flags, weights and images, and chose the backend of the model. After: the
files, beside the weights.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from backend.checks import CPU
from backend.words import count
from models.detector import Detector
from models.export.by_layer import where_they_part
from models.export.compared import TOLERANCES
from models.export.matched import Limits
from models.export.trials import Trial, chosen_images, make_trials
from models.export.verify import verify
from models.graph import coarsest_stride, plan_layers
from models.inference.predictor import load_detector
from models.stored import spec_of_weights
from utils.cli.export_config import ExportConfig
from utils.cli.flags import as_words
from utils.data.sources.samples import SampleTable
from utils.errors import UserError
from utils.export.formats import Format, format_named
from utils.files.project import PROJECT
from utils.processes.start import EXIT_USER_ERROR
from utils.runtimes.metadata import (
    DETECTIONS,
    EFFICIENT,
    FLOATS,
    PIXELS,
    ROWS,
    Metadata,
)
from utils.screen.text import as_message, say
from utils.state.checkpoint import Checkpoint


class Dataset(NamedTuple):
    """The images of --data."""

    class_names: tuple[str, ...]
    samples: SampleTable


class Export(NamedTuple):
    """What the files of all formats are made from, and held against."""

    config: ExportConfig
    metadata: Metadata
    graph: Path
    model: Detector
    trials: list[Trial]


def run_export(config: ExportConfig, checkpoint: Checkpoint, dataset: Dataset | None) -> int:
    """Write and verify a file of each format that --include names.

    Returns:
        How many formats failed: they leave no file, and say why.

    Raises:
        UserError: the model cannot be built, or takes no such size.
    """
    metadata = metadata_of_weights(config, checkpoint)
    model = load_detector(checkpoint, CPU)
    images = chosen_images(dataset and dataset.samples)
    trials = make_trials(model, images, metadata)
    with tempfile.TemporaryDirectory(prefix="duet-export-") as folder:
        graph = Path(folder, "graph.onnx")
        write_graph(config, graph)
        source = f"--data {config.data}" if config.data else "the built-in dataset"
        say(f"each file is held against the model on {count(len(images), 'image')} of {source}")
        export = Export(config, metadata, graph, model, trials)
        return sum(not exported(export, format_named(name)) for name in config.include)


def exported(export: Export, row: Format) -> bool:
    """Make and verify the file of a format; return whether it is there now.

    It is made in a folder beside its place: under its own name there is never a wrong one.
    """
    path = exported_path(export.config.weights, row)
    with tempfile.TemporaryDirectory(prefix=".duet-export-", dir=path.parent) as folder:
        made = Path(folder, path.name)
        try:
            fault, shown = _make_and_verify(export, row, made)
        except UserError as error:
            fault, shown = str(error), ""
        if fault:
            say(
                *as_message(f"error: {row.title}: {fault}; no file is left").splitlines(),
                file=sys.stderr,
            )
            return False
        size = size_of(made) / 1e6
        move(made, path)
    say(f"{row.title}: {path}, {size:.1f} MB; {shown}")
    return True


def _make_and_verify(export: Export, row: Format, made: Path) -> tuple[str, str]:
    """Write a file; return what is wrong with it, and what to say of it."""
    assert row.convert is not None
    row.convert(export.graph, made, export.metadata, None)
    config = export.config
    tolerance = TOLERANCES[config.precision]
    result = verify(
        row.open(made, None), export.metadata, export.trials, Limits.of(config), tolerance
    )
    if not result.fault:
        return "", result.line()
    graph = made if row.name == "onnx" else export.graph
    part = where_they_part(graph, export.model, export.trials[0].images, export.metadata)
    return f"it differs from the model: {result.fault}; {part}", ""


def move(made: Path, path: Path) -> None:
    """Put a file or folder in its place; an older one goes, in one step where it is a file."""
    if path.is_dir() and not path.is_symlink():
        older = made.with_name("older")
        path.rename(older)
    made.replace(path)


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files of a folder."""
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return sum(file.stat().st_size for file in files)


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


def write_graph(config: ExportConfig, path: Path) -> None:
    """Write the ONNX graph in a process of its own, which is bound to the backend that records."""
    config = dataclasses.replace(config, weights=str(Path(config.weights).absolute()))
    words = as_words(config, leave_out=("backend",))
    command = [sys.executable, "-m", "models.export.graph_file", str(path), *words]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    if done.returncode == EXIT_USER_ERROR:
        raise UserError(done.stderr.strip().removeprefix("error: "))
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")


def exported_path(weights: str, row: Format) -> Path:
    """Return where the file of a format goes: beside the weights, under their name."""
    path = Path(weights)
    return path.with_name(path.stem + row.ending)
