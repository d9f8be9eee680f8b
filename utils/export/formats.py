"""The formats that export.py writes: one row each, with what makes, runs and installs it.

Before: `--include` or a file names one. After: `models/export/job.py` writes it,
`opening.py` loads it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from utils.errors import UserError
from utils.export.coreml import write_coreml
from utils.export.litert import PROGRAM, write_litert
from utils.export.ncnn import write_ncnn
from utils.export.onnx_file import write_onnx
from utils.export.openvino import write_openvino
from utils.export.ranges import Calibration
from utils.export.tensorrt import write_engine
from utils.export.trace import keep_trace
from utils.runtimes.coreml_runtime import COREML_FILES, CoreMlRuntime, why_no_coreml
from utils.runtimes.litert_runtime import LiteRtRuntime
from utils.runtimes.metadata import Metadata
from utils.runtimes.ncnn_runtime import NCNN_FILES, NcnnRuntime
from utils.runtimes.onnx_runtime import OnnxRuntime
from utils.runtimes.openvino_runtime import OPENVINO_FILES, OpenVinoRuntime
from utils.runtimes.runtime import Runtime
from utils.runtimes.tensorrt_runtime import TENSORRT_FILES, TensorRtRuntime
from utils.runtimes.torchscript_runtime import TorchScriptRuntime

Convert = Callable[[Path, Path, Metadata, Calibration | None], None]

GRAPH, TRACE = "ONNX graph", "TorchScript trace"  # what files of other formats are made of


def anywhere() -> str:
    """Return "": the runtime of most formats runs on any machine that has its package."""
    return ""


@dataclass(frozen=True)
class Format:
    """A kind of exported file.

    Attributes:
        name: as --include has it.
        title: as people call it.
        ending: of the file, or folder, that replaces the ending of the weights.
        packages: what converting and running import, each a key of `utils/optional.py::INSTALL`.
        programs: that convert, found on PATH; likewise keys.
        convert: takes the model's file, where to write, what the new file is to say of itself, and
            for int8 the images.
        open: loads one to run it, with a number of threads.
        why_not_run: says why this machine cannot run one; "" if it can.
        folder: the files in it, where a format is a folder; () if it is a file.
        also_reads: endings of other files that its runtime opens, where --runtime names it.
        source: of which kind of file it is made: GRAPH, or TRACE, which needs PyTorch.
        side_by_side: threads may call it at the same time, each with as many as `open` is told.
        is_program: running one can do more than compute; so --weights needs --runtime with it.
        several_outputs: its files may return several tensors.
        half, int8, dynamic, letterbox, nms, efficient_nms: whether the flags of these names work
            with it.
    """

    name: str
    title: str
    ending: str
    packages: tuple[str, ...]
    convert: Convert
    open: Callable[[Path, int | None], Runtime]
    programs: tuple[str, ...] = ()
    folder: tuple[str, ...] = ()
    also_reads: tuple[str, ...] = ()
    source: str = GRAPH
    side_by_side: bool = False
    is_program: bool = False
    several_outputs: bool = False
    half: bool = False
    int8: bool = False
    dynamic: bool = False
    letterbox: bool = False
    nms: bool = False
    efficient_nms: bool = False
    why_not_run: Callable[[], str] = anywhere

    def has_written(self, path: Path) -> bool:
        """Return whether a file's name is that of this format, in letters of either case."""
        return path.name.lower().endswith(self.ending)

    def can_read(self, path: Path) -> bool:
        """Return whether a file's name is that of one which the runtime of this format opens."""
        return path.name.lower().endswith((self.ending, *self.also_reads))


FORMATS = (
    Format("onnx", "ONNX", ".onnx", ("onnx", "onnxruntime"), write_onnx, OnnxRuntime,
        half=True, int8=True, dynamic=True, letterbox=True, nms=True, efficient_nms=True,
        side_by_side=True, several_outputs=True),
    Format("openvino", "OpenVINO", "_openvino_model", ("openvino",), write_openvino,
        OpenVinoRuntime, folder=OPENVINO_FILES, also_reads=(".onnx",), half=True, int8=True,
        dynamic=True, letterbox=True, nms=True, several_outputs=True),
    Format("torchscript", "TorchScript", ".torchscript", (), keep_trace, TorchScriptRuntime,
        source=TRACE, is_program=True, several_outputs=True),
    Format("ncnn", "ncnn", "_ncnn_model", ("pnnx", "ncnn"), write_ncnn, NcnnRuntime,
        folder=NCNN_FILES, source=TRACE, half=True),
    Format("tflite", "LiteRT", ".tflite", ("ai_edge_litert",), write_litert,
        LiteRtRuntime, programs=(PROGRAM,)),
    Format("coreml", "CoreML", ".mlpackage", ("coremltools",), write_coreml, CoreMlRuntime,
        folder=COREML_FILES, source=TRACE, half=True, why_not_run=why_no_coreml),
    Format("engine", "TensorRT", "_tensorrt_model", ("tensorrt", "cuda"), write_engine,
        TensorRtRuntime, folder=TENSORRT_FILES, is_program=True, half=True, nms=True,
        efficient_nms=True),
)  # fmt: skip


def format_named(name: str) -> Format:
    """Return the format of --include; UserError names those that there are."""
    for row in FORMATS:
        if row.name == name:
            return row
    known = ", ".join(row.name for row in FORMATS)
    raise UserError(f"--include {name}: no such format; accepted: {known}")


def find_format(path: Path) -> Format:
    """Return the format of an exported file, by its ending.

    Raises:
        UserError: another file, or a program, which runs only if its runtime is asked for.
    """
    for row in FORMATS:
        if row.has_written(path):
            if row.is_program:
                raise UserError(
                    f"--weights {path}: a {row.title} file is a program, which can read and write "
                    f"files; if you trust its author, give --runtime {row.name}, else an ONNX file"
                )
            return row
    endings = ", ".join(f"*{row.ending}" for row in FORMATS)
    raise UserError(f"--weights {path}: no exported file; those end in {endings}")


def is_exported(path: str | Path) -> bool:
    """Return whether a file's name is that of an exported one."""
    return any(row.has_written(Path(path)) for row in FORMATS)
