"""OpenVINO's folders, and ONNX files, run by OpenVINO on the CPU."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np

from utils.errors import UserError, brief
from utils.files.regular import read_bytes
from utils.optional import import_optional
from utils.runtimes.metadata import metadata_of
from utils.runtimes.onnx_reading import read_onnx
from utils.runtimes.shapes import Shape, require_shapes

MODEL, WEIGHTS = "model.xml", "model.bin"  # in a folder
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
        checked = read_onnx(path) if path.suffix == ".onnx" else None
        contents = (checked.content,) if checked else contents_of(path)
        self._input_type = checked.input_type if checked else "float32"
        try:
            model = core.read_model(*contents)
            self.metadata = checked.metadata if checked else metadata_of(texts_of(model))
            require_shapes(self.metadata, *map(shape_of, (model.input(), model.output())))
            settings = {**PRECISION, "PERFORMANCE_HINT": "LATENCY"}
            if threads:
                settings["INFERENCE_NUM_THREADS"] = str(threads)
            self._compiled = core.compile_model(model, "CPU", settings)
        except RuntimeError as error:
            *_, reason = str(error).strip().splitlines() or [""]
            raise UserError(f"OpenVINO cannot read it: {brief(reason)}") from error
        self.name = f"OpenVINO {openvino.__version__.partition('-')[0]}, CPU"
        self._own = threading.local()

    def __call__(self, images: np.ndarray) -> np.ndarray:
        if not hasattr(self._own, "request"):
            self._own.request = self._compiled.create_infer_request()
        given = images if images.dtype == np.uint8 else images.astype(self._input_type, copy=False)
        found = self._own.request.infer([given], share_inputs=True)
        return np.asarray(found[0], np.float32)


def contents_of(path: Path) -> tuple[bytes, ...]:
    """Return the bytes of model and weights in a folder."""
    if not path.is_dir():
        return (read_bytes(path, MAX_WEIGHT_BYTES),)
    for name in (MODEL, WEIGHTS):
        if not (path / name).exists():
            raise UserError(f"the folder lacks {name}; export it with export.py")
    return read_bytes(path / MODEL), read_bytes(path / WEIGHTS, MAX_WEIGHT_BYTES)


def texts_of(model: Any) -> dict[str, str]:
    """Return the metadata that a model holds."""
    if not model.has_rt_info([SECTION]):
        return {}
    section = model.get_rt_info([SECTION]).astype(dict)
    return {name: str(value.value) for name, value in section.items()}


def shape_of(port: Any) -> Shape:
    """Return the shape of an input or output; None for a size that is free."""
    sizes = port.get_partial_shape()
    return tuple(size.get_length() if size.is_static else None for size in sizes)
