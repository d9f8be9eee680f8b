"""LiteRT (TFLite) files, run by LiteRT on the CPU."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np

from utils.errors import UserError, brief
from utils.files.regular import read_bytes
from utils.optional import import_optional
from utils.runtimes.metadata_file import METADATA_FILE, metadata_in_zip
from utils.runtimes.runtime import Outputs
from utils.runtimes.shapes import require_numbers, require_shapes, require_types

MAX_FILE_BYTES = 1 << 31  # of the format: its offsets have 32 bits
PACKAGE = "ai_edge_litert.interpreter"


class LiteRtRuntime:
    """An interpreter of LiteRT; `runtime.py` says what its names mean. One thread at a time."""

    def __init__(self, path: Path, threads: int | None = None) -> None:
        litert = import_optional(PACKAGE, f"--weights {path}")
        content = read_bytes(path, MAX_FILE_BYTES)
        self.metadata = metadata_in_zip(content, METADATA_FILE)
        try:
            self._net: Any = litert.Interpreter(model_content=content, num_threads=threads)
            self._net.allocate_tensors()
        except (RuntimeError, ValueError) as error:
            raise UserError(f"LiteRT cannot read it: {brief(str(error))}") from error
        inputs, outputs = self._net.get_input_details(), self._net.get_output_details()
        require_numbers(self.metadata, inputs, outputs)
        (self._input,), (self._output,) = inputs, outputs
        require_types(self.metadata, *(np.dtype(each["dtype"]) for each in (*inputs, *outputs)))
        taken, returned = (each["shape"].tolist() for each in (*inputs, *outputs))
        channels_first = *taken[:1], *taken[3:], *taken[1:3]  # of (B, H, W, 3)
        require_shapes(self.metadata, channels_first, returned)
        self.name = "LiteRT, CPU"
        self._turn = threading.Lock()

    def __call__(self, images: np.ndarray) -> Outputs:
        with self._turn:
            try:
                pixels = np.ascontiguousarray(images.transpose(0, 2, 3, 1), self._input["dtype"])
                self._net.set_tensor(self._input["index"], pixels)
                self._net.invoke()
                found = self._net.get_tensor(self._output["index"])
                return (np.asarray(found, np.float32),)
            except (RuntimeError, ValueError) as error:
                raise UserError(f"LiteRT failed: {brief(str(error))}") from error
