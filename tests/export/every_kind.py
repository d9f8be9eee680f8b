"""Files of every kind of a detector, a segmenter and a classifier, written by one process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from duet.backend import ops
from duet.backend.checks import CPU
from duet.models.export.job import metadata_for
from duet.models.export.verify import Comparison, make_trials, verify
from duet.models.stored import load_detector
from duet.utils.export.config import parse_export_flags
from duet.utils.export.onnx import write_onnx
from duet.utils.export.opening import open_runtime
from duet.utils.project import PROJECT
from duet.utils.weights.load import load_weights
from tests.small import (
    noise,
    tiny_classifier,
    tiny_segmenter,
    write_checkpoint,
    write_tiny_weights,
)

MODULES = "modules.json"
# Writes several graphs in one process, because each takes a second to start: FOLDER/NAME.onnx, from
# a JSON object that maps the name of each to flags of export.py; and what it imported.
RECORD = f"""
import json, sys
from pathlib import Path
from duet import backend
backend.use("onnx")  # before the models, whose classes derive from the backend's
from duet.models.export.recorded import recorded_graph
from duet.utils.export.config import parse_export_flags
from duet.utils.weights.load import load_weights
folder = Path(sys.argv[1])
for name, words in json.load(sys.stdin).items():
    config = parse_export_flags(words)
    (folder / f"{{name}}.onnx").write_bytes(recorded_graph(config, load_weights(config.weights)))
(folder / "{MODULES}").write_text(json.dumps(sorted(sys.modules)))
"""
SQUARE, WIDE = ["--imgsz", "64"], ["--imgsz", "64", "96"]
FLAGS = {
    "plain": WIDE,
    "batch": [*WIDE, "--batch-size", "3"],
    "dynamic": [*WIDE, "--dynamic"],
    "half": [*WIDE, "--half"],
    "nms": [*WIDE, "--nms", "--conf", "0.2", "--topk-all", "7", "--topk-per-class", "3"],
    "agnostic": [*WIDE, "--nms", "--agnostic-nms"],
    "other": WIDE,
    "mask rows": WIDE,
    "mask batch": [*WIDE, "--batch-size", "2"],
    "mask dynamic": [*WIDE, "--dynamic"],
    "mask half": [*WIDE, "--half"],
    "mask nms": [*WIDE, "--nms", "--conf", "0.2", "--topk-all", "20"],
    "mask dynamic nms": [*WIDE, "--nms", "--dynamic", "--agnostic-nms"],
    "mask half nms": [*WIDE, "--nms", "--half"],
    "class plain": SQUARE,
    "class batch": [*SQUARE, "--batch-size", "2"],
    "class dynamic": [*SQUARE, "--dynamic"],
    "class half": [*SQUARE, "--half"],
    "class oldest": [*SQUARE, "--opset", "13"],
    "class newest": [*SQUARE, "--opset", "21"],
}
IMAGES = [noise(64, 96, 1), noise(50, 96, 2), noise(64, 70, 3)]
SQUARES = [noise(64, 64, seed) for seed in range(3)]


def write_graphs(folder: Path, flags: Mapping[str, Sequence[str]]) -> dict[str, Path]:
    """Write a graph of each line of flags, by name, into a folder; return the files."""
    done = subprocess.run(
        [sys.executable, "-c", RECORD, str(folder)],
        cwd=PROJECT, input=json.dumps(flags), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {name: folder / f"{name}.onnx" for name in flags}


def write_every_kind(folder: Path) -> Callable[[str], Exported]:
    """Write all graphs; return what makes the file of a name, new each time."""
    weights = {
        "mask": write_checkpoint(folder / "mask.safetensors", tiny_segmenter(folder)),
        "class": write_checkpoint(folder / "class.safetensors", tiny_classifier(folder)),
        "other": write_tiny_weights(folder, seed=1),
    }
    plain = write_tiny_weights(folder)
    words = {
        name: ["--weights", str(weights.get(name.split()[0], plain)), *flags]
        for name, flags in FLAGS.items()
    }
    graphs = write_graphs(folder, words)

    def make(name: str) -> Exported:
        task = name.split()[0]
        compared = plain if task == "other" else weights.get(task, plain)
        images = SQUARES if task == "class" else IMAGES
        return Exported(graphs[name], compared, words[name], images)

    return make


def change_constant(path: Path, name: str, change: Callable[[np.ndarray], object]) -> None:
    """Change a constant of an ONNX file in place."""
    content = onnx.load_model(path)
    (tensor,) = [tensor for tensor in content.graph.initializer if tensor.name == name]
    values = numpy_helper.to_array(tensor).copy()
    change(values)
    tensor.CopyFrom(numpy_helper.from_array(values, name))
    onnx.save_model(content, path)


class Exported:
    """An ONNX file, and what the model predicts in the images of its trials."""

    def __init__(
        self, graph: Path, weights: Path, words: Sequence[str], images: Sequence[np.ndarray]
    ) -> None:
        self.config = parse_export_flags(words)
        checkpoint = load_weights(str(weights))
        self.model = load_detector(checkpoint, CPU)
        self.metadata = metadata_for(self.config, checkpoint, self.model)
        self.trials = make_trials(self.model, images, self.metadata)
        self.path = graph.with_name(f"{graph.stem}-file.onnx")
        write_onnx(graph, self.path, self.metadata, None)

    def runtime(self, name: str = "onnx"):
        return open_runtime(self.path, 1, name, is_trusted=True)

    def verify(self, runtime: str = "onnx") -> Comparison:
        return verify(self.runtime(runtime), self.metadata, self.trials, self.config)

    def anchors(self) -> str:
        """Return the name of the first level's anchors in the graph, whatever unit they have."""
        wanted = ops.to_numpy(self.model.head.anchors)[0].ravel()
        for tensor in onnx.load_model(self.path).graph.initializer:
            values = numpy_helper.to_array(tensor).ravel()
            if values.size == wanted.size and np.ptp(values / wanted) < 1e-4:
                return tensor.name
        raise AssertionError("no such constant")
