"""A graph with its metadata, the flags and weights that it is made from, and the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from backend.checks import CPU
from models.export.compared import TOLERANCES
from models.export.differences import Verified
from models.export.job import metadata_of_weights
from models.export.matched import Limits
from models.export.trials import make_trials
from models.export.verify import verify
from models.inference.predictor import load_detector
from utils.cli.export_config import parse_export_flags
from utils.export.onnx_file import write_onnx
from utils.export.opening import open_runtime
from utils.weights.load import load_weights


class Exported:
    """An ONNX file, and what the model predicts in the images of its trials."""

    def __init__(
        self, graph: Path, weights: Path, words: Sequence[str], images: Sequence[np.ndarray]
    ) -> None:
        self.config = parse_export_flags(words)
        checkpoint = load_weights(str(weights))
        self.metadata = metadata_of_weights(self.config, checkpoint)
        self.model = load_detector(checkpoint, CPU)
        self.trials = make_trials(self.model, images, self.metadata)
        self.path = graph.with_name(f"{graph.stem}-file.onnx")
        write_onnx(graph, self.path, self.metadata, None)

    def verify(self, runtime: str = "onnx") -> Verified:
        limits, tolerance = Limits.of(self.config), TOLERANCES[self.config.precision]
        opened = open_runtime(self.path, 1, runtime)
        return verify(opened, self.metadata, self.trials, limits, tolerance)

    def change(self, name: str, change: Callable[[np.ndarray], object]) -> None:
        """Change a constant of the file's graph in place."""
        content = onnx.load_model(self.path)
        (tensor,) = [tensor for tensor in content.graph.initializer if tensor.name == name]
        values = numpy_helper.to_array(tensor).copy()
        change(values)
        tensor.CopyFrom(numpy_helper.from_array(values, name))
        onnx.save_model(content, self.path)
