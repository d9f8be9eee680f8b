"""Write OpenVINO's folders from ONNX graphs; run these folders and ONNX files in OpenVINO.

The metadata is in model.xml, where OpenVINO stores an ONNX file's. YOLOv5 reads stride and names
from model.yaml, Ultralytics from metadata.yaml.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from duet.utils.errors import UserError, brief
from duet.utils.export.metadata import Metadata, Outputs, metadata_of
from duet.utils.export.onnx import foreign_metadata, read_onnx
from duet.utils.export.quantization import OPENVINO, Calibration, quantize
from duet.utils.files.regular import UNLIMITED, read_bytes, read_text
from duet.utils.files.yaml_files import read_yaml
from duet.utils.optional import import_optional

MODEL, WEIGHTS = "model.xml", "model.bin"  # in a folder
PUBLIC_FILES = "model.yaml", "metadata.yaml"
OPENVINO_FILES = MODEL, WEIGHTS, *PUBLIC_FILES
MAX_WEIGHT_BYTES = 1 << 32
SECTION = "framework"  # where OpenVINO keeps the metadata of an ONNX file
# Where a CPU has bfloat16, OpenVINO takes it by default: boxes of a YOLOv5n at 640 px
# were up to 12 px elsewhere.
PRECISION = {"INFERENCE_PRECISION_HINT": "f32"}


def write_openvino(
    graph: Path, path: Path, metadata: Metadata, calibration: Calibration | None
) -> None:
    """Write a folder in the metadata's precision; for int8 OpenVINO reads a quantized graph."""
    openvino = import_optional("openvino", "--include openvino")
    if calibration is not None:
        content = quantize(graph, calibration, OPENVINO).SerializeToString()
    else:
        content = read_bytes(graph, UNLIMITED)
    path.mkdir()
    half = metadata.precision == "float16"
    try:
        model = openvino.Core().read_model(content)
        for name, text in metadata.texts().items():
            model.set_rt_info(text, [SECTION, name])
        openvino.save_model(model, path / MODEL, compress_to_fp16=half)
        lines = [f"{name}: {text}\n" for name, text in metadata.public_texts().items()]
        for name in PUBLIC_FILES:
            (path / name).write_text("".join(lines), encoding="utf-8")
    except RuntimeError as error:
        raise UserError(
            f"OpenVINO cannot write the model: {brief(str(error))}; is the disk full?"
        ) from error


class OpenVinoRuntime:
    def __init__(self, path: Path, threads: int | None = None) -> None:
        openvino = import_optional("openvino", f"--weights {path}")
        core = openvino.Core()
        settings = {**PRECISION, "PERFORMANCE_HINT": "LATENCY"}
        if threads:
            settings["INFERENCE_NUM_THREADS"] = str(threads)
        try:
            if path.is_dir():
                model, self.metadata = read_folder(core, path)
            else:
                content, self.metadata, _ = read_onnx(path)
                model = core.read_model(content)
            if len(model.inputs) != 1:
                raise UserError(f"it has {len(model.inputs)} inputs; a detector has one")
            if (kind := model.input().get_element_type()).is_dynamic():
                raise UserError("its input has a dynamic element type; export it with export.py")
            self._type = np.dtype(kind.to_dtype())
            self._request = core.compile_model(model, "CPU", settings).create_infer_request()
        except (RuntimeError, UnicodeDecodeError) as error:  # the latter of a message
            raise UserError(f"OpenVINO cannot read it: {reason(error)}") from error
        if self._type.kind != "f":
            raise UserError(
                f"it takes numbers of type {self._type}, which is not its metadata's "
                f"{self.metadata.image}; export it with export.py"
            )
        self.name = f"OpenVINO {openvino.__version__.partition('-')[0]}, CPU"

    def __call__(self, images: np.ndarray) -> Outputs:
        try:
            given = images.astype(self._type, copy=False)
            found = self._request.infer([given], share_inputs=True)
        except RuntimeError as error:
            raise UserError(f"OpenVINO failed: {reason(error)}") from error
        return tuple(np.asarray(found[place], np.float32) for place in range(len(found)))


def read_folder(core: Any, folder: Path) -> tuple[Any, Metadata]:
    """Return a folder's model and metadata; YOLOv5 and Ultralytics name the files differently."""
    others = sorted(folder.glob("*.xml"))
    path = others[0] if len(others) == 1 else folder / MODEL
    for each in (path, path.with_suffix(".bin")):
        if not each.exists():
            raise UserError(f"the folder lacks {each.name}; export it with export.py")
    weights = read_bytes(path.with_suffix(".bin"), MAX_WEIGHT_BYTES)
    try:
        text = read_text(path)  # OpenVINO's errors and metadata quote it
    except UnicodeDecodeError as error:
        raise UserError(f"its {path.name} is not UTF-8") from error
    model = core.read_model(text.encode(), weights)
    texts = texts_of(model)
    public = [path.with_suffix(".yaml"), folder / PUBLIC_FILES[1]]
    if "producer" in texts or not any(file.exists() for file in public):
        return model, metadata_of(texts)
    return model, _foreign_metadata(model, next(file for file in public if file.exists()))


def _foreign_metadata(model: Any, path: Path) -> Metadata:
    """Return the metadata of a model from a YAML file of YOLOv5 or Ultralytics."""
    values = read_yaml("--weights", path, "export it again", texts_in=("names",))
    texts = {name: json.dumps(values[name]) for name in ("names", "stride") & values.keys()}
    if "names" not in texts or len(model.inputs) != 1:
        raise UserError(f"its {path.name} has no names; export it with export.py")
    shape, *outputs = (
        [size.get_length() if size.is_static else None for size in value.get_partial_shape()]
        for value in (*model.inputs, *model.outputs)
    )
    last = model.outputs[0].get_node().input_value(0).get_node().get_type_name()
    kind = np.dtype(model.input().get_element_type().to_dtype()).name
    return foreign_metadata(texts, shape, outputs, last, kind)


def reason(error: Exception) -> str:
    """Return the last line of an OpenVINO error; the others are places in its source."""
    *_, last = str(error).strip().splitlines() or [""]
    return brief(last)


def texts_of(model: Any) -> dict[str, str]:
    if not model.has_rt_info([SECTION]):
        return {}
    section = model.get_rt_info([SECTION]).astype(dict)
    values = {name: getattr(value, "value", None) for name, value in section.items()}
    return {name: value for name, value in values.items() if isinstance(value, str)}
