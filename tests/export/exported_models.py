"""Graphs with their metadata, the flags and weights that they are made from, and the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from duet.utils.weights.load import load_weights


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

    def change(self, name: str, change: Callable[[np.ndarray], object]) -> None:
        """Change a constant of the file's graph in place."""
        content = onnx.load_model(self.path)
        (tensor,) = [tensor for tensor in content.graph.initializer if tensor.name == name]
        values = numpy_helper.to_array(tensor).copy()
        change(values)
        tensor.CopyFrom(numpy_helper.from_array(values, name))
        onnx.save_model(content, self.path)

    def anchors(self) -> str:
        """Return the name of the first level's anchors in the graph, whatever unit they have."""
        wanted = ops.to_numpy(self.model.head.anchors)[0].ravel()
        for tensor in onnx.load_model(self.path).graph.initializer:
            values = numpy_helper.to_array(tensor).ravel()
            if values.size == wanted.size and np.ptp(values / wanted) < 1e-4:
                return tensor.name
        raise AssertionError("no such constant")
