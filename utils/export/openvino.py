"""An ONNX graph -> OpenVINO's two files, model.xml and model.bin, in a folder.

The metadata is in model.xml, where OpenVINO puts that of an ONNX file.
"""

from __future__ import annotations

from pathlib import Path

from utils.errors import UserError, brief
from utils.export.quantization import OPENVINO, quantize
from utils.export.ranges import Calibration
from utils.files.regular import UNLIMITED, read_bytes
from utils.optional import import_optional
from utils.runtimes.metadata import Metadata
from utils.runtimes.openvino_runtime import MODEL, SECTION


def write_openvino(
    graph: Path,
    path: Path,
    metadata: Metadata,
    calibration: Calibration | None,
) -> None:
    """Make a folder of a model and its weights, in the precision that the metadata names.

    In 8 bits it needs no converter of OpenVINO's: it reads what rounds maps in an ONNX graph.

    Raises:
        UserError: OpenVINO cannot read the graph or write the files.
    """
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
    except RuntimeError as error:
        raise UserError(
            f"OpenVINO cannot write the model: {brief(str(error))}; is the disk full?"
        ) from error
