"""Which layer of an ONNX graph is the first that differs from the model, on the same images.

Before: `verify.py` found that a file differs. After: the message says which layer is the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from backend import autograd, ops
from backend.checks import CPU
from models.detector import Detector, images_to_tensor
from utils.optional import import_optional
from utils.runtimes.metadata import PIXELS, Metadata

LAYER = "layer_{}"  # what a layer returns, in the graph that `recorded.py` writes
# Of the largest number that a layer returns. Float32 layers of the public YOLOv5n differ by 1e-6.
SAME = {"float32": 1e-4, "float16": 2e-2}


class Layer(NamedTuple):
    """What a layer returns, by the model and by a graph."""

    number: int
    block: str
    ours: np.ndarray
    theirs: np.ndarray

    @property
    def difference(self) -> float:
        """The largest difference as a fraction of the model's largest number; NaN if one is NaN."""
        if self.ours.shape != self.theirs.shape:
            return np.inf
        apart = np.abs(self.theirs - self.ours).max()
        return float(apart / max(np.abs(self.ours).max(), np.finfo(np.float32).tiny))

    def text(self) -> str:
        if self.ours.shape != self.theirs.shape:
            return (
                f"layer {self.number}, {self.block}, which returns the shape {self.theirs.shape}, "
                f"in the model {self.ours.shape}"
            )
        worst = np.unravel_index(np.abs(self.theirs - self.ours).argmax(), self.ours.shape)
        place = ", ".join(map(str, worst))
        return (
            f"layer {self.number}, {self.block}, which returns {self.theirs[worst]:.6g} at "
            f"({place}), in the model {self.ours[worst]:.6g}"
        )


def where_they_part(graph: Path, model: Detector, images: np.ndarray, metadata: Metadata) -> str:
    """Return in words which layer of a graph is the first that differs from the model.

    Args:
        graph: an ONNX file whose tensors `recorded.py` named.
        images: (B, 3, H, W) uint8, of a size that the graph takes.
    """
    last = -1
    for layer in layers(graph, model, images, metadata):
        if not layer.difference <= SAME[metadata.precision]:
            return f"the first layer that differs is {layer.text()}"
        last = layer.number
    if last < 0:
        return "its graph names no layer, so the first one that differs is not known"
    end = len(model.spec.layers) - 1
    return (
        f"layers 0 to {last} agree; the difference is in layer {end}, {metadata.head}, or after it"
    )


def layers(graph: Path, model: Detector, images: np.ndarray, metadata: Metadata) -> Iterator[Layer]:
    """Yield what each layer returns, of those that both have; the head is left out, because it
    returns several maps.
    """
    if not metadata.dynamic:  # it takes no fewer images: they are repeated
        images = images[np.arange(metadata.batch_size) % len(images)]
    pixels = images_to_tensor(images, CPU)
    names = {LAYER.format(index) for index in range(len(model.spec.layers))}
    taken = images[0].transpose(1, 2, 0) if metadata.image == PIXELS else ops.to_numpy(pixels)
    found = values_of(graph, names, taken)
    with autograd.no_grad():
        for index, output in enumerate(model.run_layers(pixels)):
            theirs = found.get(LAYER.format(index))
            if theirs is not None:
                block = model.spec.layers[index].block
                yield Layer(index, block, ops.to_numpy(output), theirs.astype(np.float32))


def values_of(graph: Path, names: set[str], pixels: np.ndarray) -> dict[str, np.ndarray]:
    """Run a copy of an ONNX graph that returns its tensors of these names; absent ones are left."""
    onnx = import_optional("onnx", "--include onnx")
    runtime = import_optional("onnxruntime", "--include onnx")
    model = onnx.load_model(graph)
    there = [name for node in model.graph.node for name in node.output if name in names]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in there)
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = runtime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    values = session.run(there, {session.get_inputs()[0].name: pixels})
    return dict(zip(there, values, strict=True))
