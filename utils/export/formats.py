"""Table of the formats that export.py writes: converter, runtime and packages of each."""

import platform
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from duet.backend import select
from duet.utils.errors import UserError
from duet.utils.export.converters import (
    COREML_FILES,
    LITERT_PROGRAM,
    NCNN_FILES,
    CoreMlRuntime,
    LiteRtRuntime,
    NcnnRuntime,
    TorchScriptRuntime,
    write_coreml,
    write_litert,
    write_ncnn,
    write_torchscript,
)
from duet.utils.export.metadata import Metadata, Runtime
from duet.utils.export.onnx import OnnxRuntime, write_onnx
from duet.utils.export.openvino import OPENVINO_FILES, OpenVinoRuntime, write_openvino
from duet.utils.export.quantization import Calibration
from duet.utils.export.tensorrt import TENSORRT_FILES, TensorRtRuntime, write_engine
from duet.utils.optional import find_program, import_optional

Convert = Callable[[Path, Path, Metadata, Calibration | None], None]

GRAPH, TRACE = "ONNX graph", "TorchScript trace"  # sources of the other formats


@dataclass(frozen=True)
class Format:
    name: str  # value of --include
    title: str  # for messages
    ending: str  # suffix of the file or folder, which replaces the weights' suffix
    packages: tuple[str, ...]  # for conversion and running, keys of `utils/optional.py::INSTALL`
    convert: Convert  # takes the model's file, the output path, the metadata, images for int8
    open: Callable[[Path, int | None], Runtime]  # loads a file for a number of threads
    flags: tuple[str, ...] = ()  # the supported ones of --half --int8 --dynamic --nms
    programs: tuple[str, ...] = ()  # on PATH, for conversion; also keys
    folder: tuple[str, ...] = ()  # the files of a format that is a folder
    also_reads: tuple[str, ...] = ()  # suffixes of other files that --runtime may open with it
    source: str = GRAPH  # what is converted; a TRACE needs PyTorch
    side_by_side: bool = False  # threads may call it concurrently
    is_program: bool = False  # can do more than compute, so --weights requires --runtime
    is_tried: bool = True  # in a child first; not on a GPU, whose driver maps more than any limit
    several_outputs: bool = False  # files may return several tensors
    needs_macos: bool = False  # other systems only write files

    def why_not_run(self) -> str:
        """Return why this machine cannot run a file; "" if it can."""
        away = self.needs_macos and platform.system() != "Darwin"
        return f"{self.title} runs only on macOS" if away else ""

    def has_written(self, path: Path) -> bool:
        """Return whether a file has a name of this format, ignoring case."""
        return path.name.lower().endswith(self.ending)

    def can_read(self, path: Path) -> bool:
        return path.name.lower().endswith((self.ending, *self.also_reads))


FORMATS = (
    Format("onnx", "ONNX", ".onnx", ("onnx", "onnxruntime"), write_onnx, OnnxRuntime,
        ("half", "int8", "dynamic", "nms"), side_by_side=True, several_outputs=True),
    Format("openvino", "OpenVINO", "_openvino_model", ("openvino",), write_openvino,
        OpenVinoRuntime, ("half", "int8", "dynamic", "nms"), folder=OPENVINO_FILES,
        also_reads=(".onnx",), several_outputs=True),
    Format("torchscript", "TorchScript", ".torchscript", (), write_torchscript, TorchScriptRuntime,
        source=TRACE, is_program=True, several_outputs=True),
    Format("ncnn", "ncnn", "_ncnn_model", ("pnnx", "ncnn"), write_ncnn, NcnnRuntime, ("half",),
        folder=NCNN_FILES, source=TRACE),
    Format("tflite", "LiteRT", ".tflite", ("ai_edge_litert",), write_litert, LiteRtRuntime,
        programs=(LITERT_PROGRAM,)),
    Format("coreml", "CoreML", ".mlpackage", ("coremltools",), write_coreml, CoreMlRuntime,
        ("half",), folder=COREML_FILES, source=TRACE, needs_macos=True),
    Format("engine", "TensorRT", "_tensorrt_model", ("tensorrt", "cuda"), write_engine,
        TensorRtRuntime, ("half", "nms"), folder=TENSORRT_FILES, is_program=True,
        is_tried=False),
)  # fmt: skip


def format_named(name: str) -> Format:
    """Return a format by its --include name; UserError for an unknown one."""
    for row in FORMATS:
        if row.name == name:
            return row
    known = ", ".join(row.name for row in FORMATS)
    raise UserError(f"--include {name}: no such format; accepted: {known}")


def find_format(path: Path) -> Format:
    """Return the format of an exported file, by its ending; UserError for a program."""
    row = next(row for row in FORMATS if row.has_written(path))
    if row.is_program:
        raise UserError(
            f"--weights {path}: a {row.title} file is a program, which can read and write files; "
            f"if you trust its author, give --runtime {row.name}, else an ONNX file"
        )
    return row


def exported_path(weights: str, row: Format, suffix: str = "") -> Path:
    """Return the path of a format's file: beside the weights, with their name and a suffix."""
    path = Path(weights)
    if path.name in ("", ".."):  # a folder of weights, seen from inside
        path = path.resolve()
    return path.parent / f"{path.stem}{suffix}{row.ending}"


def require_free_place(path: Path, row: Format) -> None:
    """Raise UserError if a file that export.py did not write is in the way."""
    if not path.exists() and not path.is_symlink():
        return
    is_folder = path.is_dir() and not path.is_symlink()
    known = {str(each) for file in row.folder for each in (file, *PurePosixPath(file).parents)}
    inside = {each.relative_to(path).as_posix() for each in path.rglob("*") if is_folder}
    if is_folder != bool(row.folder) or inside - known:
        raise UserError(f"{path} exists, and export.py did not write it; move it away")


def check_export(weights: str, include: Sequence[str], backend: str, suffix: str = "") -> None:
    """Raise UserError unless files of these formats can be made of weights, beside them."""
    if any(row.has_written(Path(weights)) for row in FORMATS):
        raise UserError(
            f"--weights {weights} is an exported file, which keeps too little of its model; give "
            "the weights that it was exported from"
        )
    missing: dict[str, str] = {}
    for row in map(format_named, ("onnx", *include)):  # a graph is made, or held against the rest
        if row.source == TRACE and not select.FRAMEWORKS[backend].torchscript:
            raise UserError(
                f"--include {row.name} is made of a TorchScript trace, which backend {backend!r} "
                "cannot write; give --backend torch, or leave it out"
            )
        for find, names in ((import_optional, row.packages), (find_program, row.programs)):
            for wanted in names:
                try:
                    find(wanted, f"--include {row.name}")
                except UserError as error:
                    missing.setdefault(wanted, str(error))
    for row in map(format_named, include):
        path = exported_path(weights, row, suffix)
        if not path.parent.exists():
            break  # nor do the weights, which reading them reports
        try:
            with tempfile.TemporaryDirectory(prefix=".duet-", dir=path.parent):
                require_free_place(path, row)
        except OSError as error:
            raise UserError(
                f"the files go beside --weights, into {path.parent.absolute()}: {error.strerror}; "
                "copy the weights into a folder that can be written to"
            ) from error
    if missing:
        raise UserError("\n".join(missing.values()))


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
