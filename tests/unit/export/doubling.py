"""The smallest network of an exported file: it doubles its images and calls them rows."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from duet.utils.export.metadata import Metadata

SIDE = 32
ODD_NAME = "é<&\"'\n三"
METADATA = Metadata(class_names=(ODD_NAME,), stride=32, image_size=(SIDE, SIDE))
DYNAMIC = dataclasses.replace(METADATA, dynamic=True)


def write_doubling(path: Path, factor: float = 2, dynamic: bool = False) -> Path:
    """Write an ONNX graph that maps (B, 3, H, W) to (B, H * W / 2, 6), times a factor."""
    sizes = ["b", 3, "h", "w"] if dynamic else [1, 3, SIDE, SIDE]
    factors = np.full((1, 3, 1, 1) if dynamic else (1, 3, SIDE, SIDE), factor, np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Mul", ["images", "factors"], ["product"]),
            helper.make_node("Reshape", ["product", "shape"], ["output0"]),
        ],
        "doubling",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, sizes)],
        [helper.make_tensor_value_info("output0", TensorProto.FLOAT, [sizes[0], None, 6])],
        [
            numpy_helper.from_array(factors, "factors"),
            numpy_helper.from_array(np.array([0, -1, 6]), "shape"),
        ],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


def random_images(batch: int = 1, height: int = SIDE, width: int = SIDE) -> np.ndarray:
    shape = batch, 3, height, width
    return np.random.default_rng(0).random(shape, np.float32)


def rows_of(images: np.ndarray, factor: float = 2) -> np.ndarray:
    """What the network returns."""
    return (images * np.float32(factor)).reshape(len(images), -1, 6)
