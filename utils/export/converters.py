"""TorchScript, ncnn, CoreML and LiteRT: files made of a trace or a graph by other programs.

- TorchScript is the trace itself, a program that PyTorch interprets and that can read and write
  files: `opening.py` loads one only if --runtime asks for it.
- ncnn's two files come from pnnx. It reads ONNX graphs too, but did not end on one of a YOLOv5n.
- CoreML packages are written on any system and run on macOS.
- LiteRT (TFLite) files come from onnx2tf, which needs Python 3.12 and an onnx that this project
  cannot take, so it has an environment of its own. The metadata is an associated file of the
  format: a zip archive at the end (tensorflow.org/lite/models/convert/metadata).
"""

import contextlib
import io
import logging
import platform
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from duet.backend import device, nn, ops
from duet.backend.contract import Tensor
from duet.utils.errors import UserError, as_user_error, brief
from duet.utils.export.metadata import (
    MAX_METADATA_BYTES,
    METADATA_FILE,
    Metadata,
    Outputs,
    metadata_as_json,
    metadata_in_zip,
    metadata_of,
    metadata_of_folder,
)
from duet.utils.export.quantization import Calibration
from duet.utils.files.regular import pinned, read_bytes
from duet.utils.optional import find_program, import_optional, run_program

MAX_BYTES = 1 << 32  # of a TorchScript file, or of ncnn's weights


def write_torchscript(
    trace: Path, path: Path, metadata: Metadata, calibration: Calibration | None
) -> None:
    """Copy the trace, which holds its metadata already."""
    shutil.copyfile(trace, path)


class TorchScriptRuntime:
    """A program that PyTorch interprets; see `metadata.py::Runtime`.

    It is loaded when it first runs: until then no backend need be chosen. PyTorch has one number of
    threads for the whole process, which may be another program: it holds here too, as for weights.
    """

    name = "TorchScript, PyTorch, CPU"

    def __init__(self, path: Path, threads: int | None = None) -> None:
        self._content = read_bytes(path, MAX_BYTES)
        self.metadata = metadata_in_zip(self._content, f"/extra/{METADATA_FILE}")
        self._run: Callable[[Tensor], object] | None = None

    def __call__(self, images: np.ndarray) -> Outputs:
        self._run = self._run or self._load()
        with as_user_error("TorchScript failed", RuntimeError):
            found = self._run(ops.tensor(images))
        return tuple(map(ops.to_numpy, found if isinstance(found, tuple) else (found,)))

    def _load(self) -> Callable[[Tensor], object]:
        if not device.supports("torchscript"):
            raise UserError(
                "TorchScript runs in PyTorch, which only one backend has; give --backend torch"
            )
        content, self._content = self._content, b""
        try:
            run: Callable[[Tensor], Any] = nn.from_torchscript(content)
        except ValueError as error:
            raise UserError(brief(str(error))) from error
        return run


NCNN_MODEL, NCNN_WEIGHTS = "model.ncnn.param", "model.ncnn.bin"  # as pnnx names them
NCNN_FILES = NCNN_MODEL, NCNN_WEIGHTS, METADATA_FILE
NCNN_INPUT, NCNN_OUTPUT = "in0", "out0"
# ncnn's default is half precision where the CPU has it; results are to be the model's.
ROUNDED = ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic", "use_bf16_storage")


def write_ncnn(
    trace: Path, path: Path, metadata: Metadata, calibration: Calibration | None
) -> None:
    """Make a folder of model, weights and metadata; UserError for a batch, or if pnnx fails."""
    if metadata.batch_size > 1:
        raise UserError(
            f"--batch-size {metadata.batch_size}: ncnn takes one image at a time; give 1"
        )
    program = import_optional("pnnx", "--include ncnn").EXEC_PATH
    height, width = metadata.image_size
    flags = f"inputshape=[1,3,{height},{width}]", f"fp16={int(metadata.precision == 'float16')}"
    made = NCNN_MODEL, NCNN_WEIGHTS
    with _converted(trace, "model.pt", [program, "model.pt", *flags], made) as files:
        path.mkdir()
        for file in files:
            shutil.copyfile(file, path / file.name)
    (path / METADATA_FILE).write_text(metadata_as_json(metadata), encoding="utf-8")


class NcnnRuntime:
    def __init__(self, path: Path, threads: int | None = None) -> None:
        self._ncnn = import_optional("ncnn", f"--weights {path}")
        self.metadata = metadata_of_folder(path, NCNN_FILES)
        self._net = self._ncnn.Net()
        for name in ROUNDED:
            setattr(self._net.opt, name, False)
        if threads:
            self._net.opt.num_threads = threads
        with pinned(path / NCNN_MODEL, MAX_METADATA_BYTES) as model:
            failed = self._net.load_param(str(model))
        with pinned(path / NCNN_WEIGHTS, MAX_BYTES) as weights:
            failed = failed or self._net.load_model(str(weights))
        names = self._net.input_names(), self._net.output_names()
        if failed or names != ([NCNN_INPUT], [NCNN_OUTPUT]):
            raise UserError("ncnn cannot read it; export it with export.py")
        self.name = f"ncnn {self._ncnn.__version__}, CPU"

    def __call__(self, images: np.ndarray) -> Outputs:
        return (np.stack([self._run(image) for image in images]),)

    def _run(self, image: np.ndarray) -> np.ndarray:
        with self._net.create_extractor() as extractor:
            extractor.input(NCNN_INPUT, self._ncnn.Mat(np.ascontiguousarray(image)))
            failed, found = extractor.extract(NCNN_OUTPUT)
            if failed:
                raise UserError("ncnn cannot run it; export it with export.py")
            return np.array(found)


COREML_INPUT, COREML_OUTPUT = "images", "output0"
COREML_FILES = (  # files in a package written by coremltools
    "Manifest.json",
    "Data/com.apple.CoreML/model.mlmodel",
    "Data/com.apple.CoreML/weights/weight.bin",
)


def write_coreml(
    trace: Path, path: Path, metadata: Metadata, calibration: Calibration | None
) -> None:
    """Make an ML program, a folder, for iOS 15 and macOS 12 up; UserError if that fails.

    coremltools 9.0 names PyTorch 2.7 as the newest it was tested with.
    """
    tools = import_optional("coremltools", "--include coreml")
    logging.getLogger("coremltools").setLevel(logging.WARNING)  # else a line for each step
    shape = metadata.batch_size, 3, *metadata.image_size
    precision = "FLOAT16" if metadata.precision == "float16" else "FLOAT32"
    with as_user_error("coremltools cannot convert or write the model", RuntimeError, ValueError):
        with contextlib.redirect_stderr(io.StringIO()):  # its progress bars
            model = tools.convert(
                str(trace),
                source="pytorch",
                convert_to="mlprogram",
                inputs=[tools.TensorType(COREML_INPUT, shape)],
                outputs=[tools.TensorType(COREML_OUTPUT, dtype=np.float32)],
                compute_precision=getattr(tools.precision, precision),
                minimum_deployment_target=tools.target.iOS15,
                skip_model_load=True,
            )
        model.user_defined_metadata.update(metadata.texts())
        model.save(str(path))


class CoreMlRuntime:
    def __init__(self, path: Path, threads: int | None = None) -> None:
        if platform.system() != "Darwin":
            raise UserError("CoreML runs only on macOS")
        tools = import_optional("coremltools", f"--weights {path}")
        self._model: Any = tools.models.MLModel(str(path), compute_units=tools.ComputeUnit.CPU_ONLY)
        self.metadata = metadata_of(dict(self._model.user_defined_metadata))
        self.name = f"CoreML, coremltools {tools.__version__}, CPU"

    def __call__(self, images: np.ndarray) -> Outputs:
        found = self._model.predict({COREML_INPUT: images})[COREML_OUTPUT]
        return (np.asarray(found, np.float32),)


LITERT_PROGRAM, LITERT_PACKAGE = "onnx2tf", "ai_edge_litert.interpreter"
MAX_LITERT_BYTES = 1 << 31  # limit of the format: its offsets have 32 bits


def write_litert(
    graph: Path, path: Path, metadata: Metadata, calibration: Calibration | None
) -> None:
    """Make a file that takes images (B, H, W, 3); UserError if onnx2tf is absent or fails."""
    program = find_program(LITERT_PROGRAM, "--include tflite")
    command = [program, "-i", "model.onnx", "-o", "made", "-n"]
    with _converted(graph, "model.onnx", command, ["made/model_float32.tflite"]) as (made,):
        shutil.copyfile(made, path)
    with zipfile.ZipFile(path, "a") as archive:
        member = zipfile.ZipInfo(METADATA_FILE)  # of 1980: the same model, the same bytes
        archive.writestr(member, metadata_as_json(metadata))


class LiteRtRuntime:
    name = "LiteRT, CPU"

    def __init__(self, path: Path, threads: int | None = None) -> None:
        litert = import_optional(LITERT_PACKAGE, f"--weights {path}")
        content = read_bytes(path, MAX_LITERT_BYTES)
        self.metadata = metadata_in_zip(content, METADATA_FILE)
        with as_user_error("LiteRT cannot read it", RuntimeError, ValueError):
            self._net: Any = litert.Interpreter(model_content=content, num_threads=threads)
            self._net.allocate_tensors()
        self._inputs, self._outputs = self._net.get_input_details(), self._net.get_output_details()
        if [np.dtype(each["dtype"]).kind for each in self._inputs] != ["f"]:
            raise UserError("it takes no images of float32; export it with export.py")

    def __call__(self, images: np.ndarray) -> Outputs:
        (given,) = self._inputs
        with as_user_error("LiteRT failed", RuntimeError, ValueError):
            pixels = np.ascontiguousarray(images.transpose(0, 2, 3, 1), given["dtype"])
            self._net.set_tensor(given["index"], pixels)
            self._net.invoke()
            found = (self._net.get_tensor(each["index"]) for each in self._outputs)
            return tuple(np.asarray(output, np.float32) for output in found)


@contextlib.contextmanager
def _converted(
    source: Path, name: str, command: Sequence[str], made: Sequence[str]
) -> Iterator[list[Path]]:
    """Run a converter on a copy of a file in a temporary folder; yield the files it made there."""
    with tempfile.TemporaryDirectory(dir=source.parent) as folder:
        shutil.copyfile(source, Path(folder, name))
        run_program(command, Path(folder))
        files = [Path(folder, each) for each in made]
        for file in files:
            if not file.exists():
                raise UserError(f"{Path(command[0]).name} did not write {file.name}")
        yield files
