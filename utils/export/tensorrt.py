"""An ONNX graph -> a TensorRT engine for the GPU that builds it, with metadata.json in its folder.

Written after TensorRT's documentation (docs.nvidia.com/deeplearning/tensorrt), tested only
with a stand-in. The types are those of the graph: float16 where the graph has it.
"""

from __future__ import annotations

from pathlib import Path

from utils.errors import UserError, brief
from utils.export.ranges import Calibration
from utils.files.atomic import atomic_file
from utils.files.regular import UNLIMITED, read_bytes
from utils.optional import import_optional
from utils.runtimes.metadata import Metadata
from utils.runtimes.metadata_file import METADATA_FILE, metadata_as_json
from utils.runtimes.tensorrt_runtime import ENGINE


def write_engine(
    graph: Path, path: Path, metadata: Metadata, calibration: Calibration | None
) -> None:
    """Make a folder of an engine and metadata; UserError has TensorRT's reason if it fails.

    It takes minutes: TensorRT times its kernels on the GPU.
    """
    tensorrt = import_optional("tensorrt", "--include engine")
    logger = tensorrt.Logger(tensorrt.Logger.ERROR)
    tensorrt.init_libnvinfer_plugins(logger, "")  # EfficientNMS is one
    builder = tensorrt.Builder(logger)
    # TensorRT 10 takes types as hints unless told otherwise; 11 has no other kind of network.
    flag = getattr(tensorrt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    network = builder.create_network(0 if flag is None else 1 << int(flag))
    parser = tensorrt.OnnxParser(network, logger)
    if not parser.parse(read_bytes(graph, UNLIMITED)):
        raise UserError(f"TensorRT cannot read the graph: {brief(str(parser.get_error(0)))}")
    engine = builder.build_serialized_network(network, builder.create_builder_config())
    if engine is None:
        raise UserError("TensorRT built no engine; its messages above say why")
    path.mkdir()
    with atomic_file(path / ENGINE) as file:
        file.write(engine)
    (path / METADATA_FILE).write_text(metadata_as_json(metadata), encoding="utf-8")
