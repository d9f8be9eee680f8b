"""OpenVINO's folders, and ONNX files, run by OpenVINO on the CPU."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np

from utils.errors import UserError, brief
from utils.files.regular import read_bytes, read_text
from utils.optional import import_optional
from utils.runtimes.metadata import Metadata, metadata_of
from utils.runtimes.onnx_reading import read_onnx
from utils.runtimes.onnx_sizes import GraphSizes
from utils.runtimes.outputs import Shape
from utils.runtimes.runtime import Outputs
from utils.runtimes.shapes import require_numbers, require_shapes, require_types

MODEL, WEIGHTS = "model.xml", "model.bin"  # in a folder
OPENVINO_FILES = MODEL, WEIGHTS
MAX_WEIGHT_BYTES = 1 << 32
SECTION = "framework"  # where OpenVINO keeps the metadata of an ONNX file
# Where a CPU has bfloat16, OpenVINO takes it unless told otherwise: boxes of a YOLOv5n at 640 px
# were up to 12 px elsewhere.
PRECISION = {"INFERENCE_PRECISION_HINT": "f32"}


class OpenVinoRuntime:
    """A model that OpenVINO has compiled; `runtime.py` says what its names mean."""

    def __init__(self, path: Path, threads: int | None = None) -> None:
        openvino = import_optional("openvino", f"--weights {path}")
        core = openvino.Core()
        settings = {**PRECISION, "PERFORMANCE_HINT": "LATENCY"}
        if threads:
            settings["INFERENCE_NUM_THREADS"] = str(threads)
        self._sizes: GraphSizes | None = None  # of an ONNX file
        try:
            if path.is_dir():
                model, self.metadata = read_folder(core, path)
            else:
                model, self.metadata, self._sizes = of_onnx(core, path)
            require_numbers(self.metadata, model.inputs, model.outputs)
            self._type = type_of(model.input())
            require_types(self.metadata, self._type, *map(type_of, model.outputs))
            self._compiled = core.compile_model(model, "CPU", settings)
        except (RuntimeError, UnicodeDecodeError) as error:  # the latter of a message
            raise UserError(f"OpenVINO cannot read it: {reason(error)}") from error
        require_shapes(self.metadata, shape_of(model.input()), *map(shape_of, model.outputs))
        self.name = f"OpenVINO {openvino.__version__.partition('-')[0]}, CPU"
        self._own = threading.local()

    def __call__(self, images: np.ndarray) -> Outputs:
        if self._sizes:
            self._sizes.check(images.shape)
        if not hasattr(self._own, "request"):
            self._own.request = self._compiled.create_infer_request()
        try:
            given = images.astype(self._type, copy=False)
            found = self._own.request.infer([given], share_inputs=True)
        except RuntimeError as error:
            raise UserError(f"OpenVINO failed: {reason(error)}") from error
        return tuple(np.asarray(found[place], np.float32) for place in range(len(found)))


def read_folder(core: Any, folder: Path) -> tuple[Any, Metadata]:
    """Return the model of a folder and its metadata."""
    for name in (MODEL, WEIGHTS):
        if not (folder / name).exists():
            raise UserError(f"the folder lacks {name}; export it with export.py")
    weights = read_bytes(folder / WEIGHTS, MAX_WEIGHT_BYTES)
    try:
        text = read_text(folder / MODEL)  # OpenVINO's errors and metadata quote it
    except UnicodeDecodeError as error:
        raise UserError(f"its {MODEL} is not UTF-8") from error
    model = core.read_model(text.encode(), weights)
    return model, metadata_of(texts_of(model))


def of_onnx(core: Any, path: Path) -> tuple[Any, Metadata, GraphSizes]:
    """Return the model of an ONNX file, its metadata and its nodes; UserError as `read_onnx`."""
    file = read_onnx(path)
    return core.read_model(file.content), file.metadata, file.sizes


def reason(error: Exception) -> str:
    """Return the last line of an error of OpenVINO: those before it name places in its source."""
    *_, last = str(error).strip().splitlines() or [""]
    return brief(last)


def texts_of(model: Any) -> dict[str, str]:
    """Return the metadata that a model holds."""
    if not model.has_rt_info([SECTION]):
        return {}
    section = model.get_rt_info([SECTION]).astype(dict)
    values = {name: getattr(value, "value", None) for name, value in section.items()}
    return {name: value for name, value in values.items() if isinstance(value, str)}


def type_of(port: Any) -> np.dtype:
    """Return the type of an input or output; RuntimeError for one that NumPy lacks."""
    return np.dtype(port.get_element_type().to_dtype())


def shape_of(port: Any) -> Shape:
    """Return the shape of an input or output; None for a size that is free."""
    sizes = port.get_partial_shape()
    return tuple(size.get_length() if size.is_static else None for size in sizes)
