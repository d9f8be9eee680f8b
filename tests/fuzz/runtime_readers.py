"""Exported files of the runtimes that are installed with us, apart from ONNX."""

from __future__ import annotations

import functools
import io
import tempfile
import zipfile
from pathlib import Path

from tests.fuzz.reader import MIB, Reader
from tests.fuzz.text_readers import JSON_TOKENS
from tests.unit.export.doubling import METADATA, random_images, write_doubling
from utils.export.metadata import metadata_as_json, metadata_in_zip, metadata_of_json
from utils.export.opening import open_runtime
from utils.export.openvino import MODEL, WEIGHTS, write_openvino

XML_TOKENS = (
    b'type="Const"', b'type="Loop"', b'type="Result"', b'version="opset15"', b'offset="',
    b'size="99999999999999"', b'shape="1,3,99999999,99999999"', b'shape="-1,?,1..2"', b'<edge ',
    b'element_type="f16"', b'to-layer="0"', b"<dim>-1</dim>", b"<!DOCTYPE a [<!ENTITY a '&a;'>]>",
    b"&a;", b"<framework>", b"<rt_info>", b"\0",
)  # fmt: skip
# OpenVINO's own threads, kernels and plugin.
OPENVINO_BYTES = 512 * MIB


@functools.cache
def folder_contents() -> dict[str, bytes]:
    """The files of a small folder."""
    with tempfile.TemporaryDirectory() as folder:
        graph, made = write_doubling(Path(folder, "graph.onnx")), Path(folder, "made")
        write_openvino(graph, made, METADATA, None)
        return {name: (made / name).read_bytes() for name in (MODEL, WEIGHTS)}


def read_openvino(path: Path) -> object:
    """Run a folder whose model is a file."""
    with tempfile.TemporaryDirectory(suffix="_openvino_model") as folder:
        Path(folder, MODEL).write_bytes(path.read_bytes())
        Path(folder, WEIGHTS).write_bytes(folder_contents()[WEIGHTS])
        return open_runtime(folder, threads=1, is_trusted=True)(random_images())


def zip_seeds() -> list[bytes]:
    file = io.BytesIO(b"content")
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("a/extra/metadata.json", metadata_as_json(METADATA))
    return [file.getvalue()]


RUNTIME_READERS = {
    "openvino": Reader(
        read_openvino, lambda: [folder_contents()[MODEL]], MODEL, XML_TOKENS,
        memory_bytes=OPENVINO_BYTES, seconds=5.0,
    ),
    "exported-metadata": Reader(
        lambda path: metadata_of_json(path.read_bytes()),
        lambda: [metadata_as_json(METADATA).encode()], "metadata.json", JSON_TOKENS,
    ),
    "exported-zip": Reader(
        lambda path: metadata_in_zip(path.read_bytes(), "/extra/metadata.json"), zip_seeds,
        "a.torchscript", (b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"),
    ),
}  # fmt: skip
