"""Write ONNX files with metadata, also int8; read them and run them in ONNX Runtime on the CPU."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from duet.utils.errors import UserError, as_user_error, brief
from duet.utils.export.metadata import (
    FLOATS,
    LOGITS,
    MASK_ROWS,
    NORMALIZED,
    PRODUCER,
    ROWS,
    Metadata,
    Outputs,
    Shape,
    checked,
    metadata_of,
)
from duet.utils.export.quantization import Calibration, quantize
from duet.utils.files.atomic import atomic_file
from duet.utils.files.regular import read_bytes
from duet.utils.files.yaml_files import parse_yaml
from duet.utils.optional import import_optional

VERSION = "0"  # of this program, which has had no release
MAX_BYTES = (1 << 31) - 1  # limit of a protobuf message, including external data
INPUTS = {"FLOAT": "float32", "FLOAT16": "float16"}  # NumPy's names
DOMAINS = ("", "ai.onnx")  # two names of ONNX's own operators
NO_SPINNING = {f"session.{pool}_op.allow_spinning": "0" for pool in ("intra", "inter")}
SILENT = 4  # only fatal errors: a log line quotes names of nodes, with any escape sequence in them


def write_onnx(
    graph: Path, path: Path, metadata: Metadata, calibration: Calibration | None
) -> None:
    """Write an ONNX file with metadata, int8 if calibration images are given."""
    onnx = import_optional("onnx", "--include onnx")
    model = onnx.load_model(graph) if calibration is None else quantize(graph, calibration)
    model.producer_name, model.producer_version = PRODUCER, VERSION
    del model.metadata_props[:]
    for name, text in {**metadata.public_texts(), **metadata.texts()}.items():
        model.metadata_props.add(key=name, value=text)
    with atomic_file(path) as file:
        file.write(model.SerializeToString(deterministic=True))


def read_onnx(path: Path) -> tuple[bytes, Metadata, str]:
    """Return a serialized model, its metadata and its images' NumPy type; `opening.py` tries it."""
    onnx = import_optional("onnx", f"--weights {path}")
    try:
        model = onnx.load_model_from_string(read_bytes(path, MAX_BYTES))
    except Exception as error:  # of protobuf, whose error class depends on its build
        if isinstance(error, OSError):
            raise
        raise UserError("damaged, or not an ONNX file") from error
    given = _images_of(model)
    if model.functions or model.graph.sparse_initializer:
        raise UserError("it has functions or sparse tensors; a detector has none of them")
    _require_standard(model.graph)
    helper = import_optional("onnx.external_data_helper", f"--weights {path}")
    if any(map(helper.uses_external_data, helper._get_all_tensors(model))):
        raise UserError("its weights are in another file; save it as one file")
    names = {number: name for name, number in onnx.TensorProto.DataType.items()}
    kind = INPUTS.get(names.get(given.type.tensor_type.elem_type, ""), "")
    metadata = _metadata_of(model, given, kind)
    if not kind:
        raise UserError(f"it takes numbers of a type that is not its metadata's {metadata.image}")
    return model.SerializeToString(), metadata, kind


def _images_of(model: Any) -> Any:
    if not model.graph.node:
        raise UserError("damaged, or not an ONNX file: it has no graph")
    # Up to version 3 of the format, initializers are inputs too.
    initial = {tensor.name for tensor in model.graph.initializer}
    inputs = [given for given in model.graph.input if given.name not in initial]
    if len(inputs) != 1:
        raise UserError(f"it takes {len(inputs)} inputs; a detector has one, the images")
    return inputs[0]


def _require_standard(graph: Any) -> None:
    """Raise UserError for operators that are not ONNX's own, in subgraphs too."""
    for node in graph.node:
        if node.domain not in DOMAINS:
            raise UserError(
                f"its operator {brief(node.op_type)} is of {brief(node.domain)}; only ONNX's own "
                "operators are run here"
            )
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                _require_standard(inner)


def _metadata_of(model: Any, given: Any, kind: str) -> Metadata:
    texts = {entry.key: entry.value for entry in model.metadata_props}
    is_public = "names" in texts and "class_names" not in texts
    if not is_public:
        return metadata_of(texts)
    outputs = [_free_shape(output) for output in model.graph.output]
    made = {name: node.op_type for node in model.graph.node for name in node.output}
    last = made.get(model.graph.output[0].name, "") if outputs else ""
    return foreign_metadata(texts, _free_shape(given), outputs, last, kind)


def _free_shape(value: Any) -> list[int | None]:
    """Return the declared shape of an input or output; None for free sizes."""
    sizes = value.type.tensor_type.shape.dim
    return [size.dim_value if size.HasField("dim_value") else None for size in sizes]


class OnnxRuntime:
    """A session of ONNX Runtime; see `metadata.py::Runtime`.

    Its threads do not spin, because on shared cores that slows the thread they wait for.
    """

    def __init__(self, path: Path, threads: int | None = None) -> None:
        runtime = import_optional("onnxruntime", f"--weights {path}")
        content, self.metadata, self._input_type = read_onnx(path)
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads or 0
        options.log_severity_level = SILENT
        for name, value in NO_SPINNING.items():
            options.add_session_config_entry(name, value)
        # Its errors are of classes that it does not export.
        with as_user_error("ONNX Runtime does not take it", Exception):
            self._session = runtime.InferenceSession(content, options, ["CPUExecutionProvider"])
        self.name = f"ONNX Runtime {runtime.__version__}, CPU"
        self._input = self._session.get_inputs()[0].name

    def __call__(self, images: np.ndarray) -> Outputs:
        with as_user_error("ONNX Runtime failed", Exception):
            given = images.astype(self._input_type, copy=False)
            outputs = self._session.run(None, {self._input: given})
        return tuple(np.asarray(output, np.float32) for output in outputs)


# Files of the public YOLOv5's exporter. Their metadata are only stride and names, Python literals
# such as "{0: 'person', 1: 'bicycle'}" and also YAML. The rest is inferred from the graph, and
# checked by the trial run.

EXAMPLE, EXAMPLE_OF_CLASSES = 640, 224  # pixels, where the size is free


class Form(NamedTuple):
    head: str
    output: str
    image: str = FLOATS
    example: int = EXAMPLE  # side of an image, where that is free


FORMS = {  # by the dimensions of the outputs
    (3,): Form("Detect", ROWS),
    (3, 4): Form("Segment", MASK_ROWS),
    (2,): Form("Classify", LOGITS, NORMALIZED, EXAMPLE_OF_CLASSES),
}


def foreign_metadata(
    texts: Mapping[str, str], shape: Shape, outputs: Sequence[Shape], last: str, kind: str
) -> Metadata:
    """Return our metadata for such a file; UserError if its texts or graph are wrong.

    Args:
        shape, kind: shape and NumPy type of the input.
        outputs: output shapes; None for free sizes.
        last: the operator of the first output.
    """
    names = _value("names", texts["names"])
    if isinstance(names, dict):
        names = [names.get(number, names.get(str(number))) for number in range(len(names))]
    stride = _value("stride", texts.get("stride", "32"))
    form = FORMS.get(tuple(map(len, outputs)))
    if form is None or len(shape) != 4:
        raise UserError(
            f"it takes {brief(shape)}, and it returns {brief(outputs)}; a "
            "model of the public YOLOv5 takes images (B, 3, H, W) and returns rows "
            "(B, N, 5 + classes), these and prototypes (B, M, h, w), or logits (B, classes)"
        )
    if form.output == LOGITS and last == "Softmax":
        raise UserError("it ends in Softmax; a classifier of the public YOLOv5 returns logits")
    batch, channels, height, width = shape
    free = height is None and width is None
    if channels != 3 or (height is None) != (width is None) or (free and batch is not None):
        raise UserError(f"it takes {shape}; either all sizes must be fixed, or all but 3 free")
    side = form.example
    if isinstance(stride, int) and stride > 0:
        side = -(-side // stride) * stride
    return checked(
        {
            "class_names": names,
            "stride": stride,
            "image_size": [height or side, width or side],
            "batch_size": batch or 1,
            "dynamic": free,
            "image": form.image,
            "output": form.output,
            "precision": kind or "float32",
            "head": form.head,
            "suppression": {},
        }
    )


def _value(name: str, text: str | bytes) -> Any:
    try:  # protobuf gives bytes where a text is not UTF-8
        return parse_yaml(text.encode() if isinstance(text, str) else text, texts_in=())
    except ValueError as error:
        raise UserError(f"its metadata has {name} {brief(text)}: {error}") from error
