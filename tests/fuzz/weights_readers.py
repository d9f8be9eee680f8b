"""Weights and states, of other programs and our own; exported files."""

import functools
import json
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors import safe_open
from safetensors.numpy import save

from duet.backend import nn
from duet.models.detector import Detector
from duet.models.graph import parse_model
from duet.models.stored import detector_of_weights
from duet.utils.export.metadata import metadata_as_json, metadata_in_zip
from duet.utils.export.onnx import read_onnx
from duet.utils.export.opening import open_runtime
from duet.utils.export.openvino import MODEL, WEIGHTS, write_openvino
from duet.utils.state.resume import load_state
from duet.utils.weights.__main__ import describe
from duet.utils.weights.checkpoint import CHECKSUM_KEY, HEADER_KEY, _checksum
from duet.utils.weights.load import load_weights, stored_model
from tests.foreign_files import TorchFile, dump, module, small_arrays, small_model, write_zip
from tests.fuzz.binary_readers import ZIP_WORDS
from tests.fuzz.campaign import MIB, Reader
from tests.fuzz.text_readers import JSON_WORDS, XML_WORDS
from tests.onnx_files import (
    FOREIGN,
    METADATA,
    own_texts,
    random_images,
    write_classifier,
    write_detector,
    write_doubling,
    write_segmenter,
)
from tests.small import TINY, TINY_ANCHOR_FREE, TINY_SEGMENTER
from tests.unit.data.fetch.conftest import zipped
from tests.unit.weights.test_public_layers import small_classifier

# Weights of other programs.

PICKLE_WORDS = (
    b"cos\nsystem\n", b"c__builtin__\neval\n", b"cbuiltins\ngetattr\n",
    b"ccollections\nOrderedDict\n", b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"ctorch\nFloatStorage\n", *(bytes([code]) for code in b"()]}tldRbQaesu012.\x81\x85\x86\x87"),
    b"h\x00", b"q\x00", b"j\xff\xff\xff\x7f", b"r\xff\xff\xff\x7f", b"\x94", b"\x82\x01",
    b"]q\x00(h\x00h\x00e", b"\x8b\xff\xff\xff\x7f", b"\x8a\xff", b"X\xff\xff\xff\x7f",
    b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x95\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"I99999999999\n", b"L1L\n", b"F1e999\n", b"P0\n", b"i__main__\nx\n", b"\x93", b"\x8f",
    b"\x90", b"\x91", b"cmodels.yolo\nSegment\n", b"cmodels.common\nClassify\n",
    b"cmodels.common\nC3\n", b"cmodels.yolo\nDetect\n", b"X\x07\x00\x00\x00forward",
)  # fmt: skip


def use_weights(path: Path) -> object:
    """Read weights, describe them, and build their model."""
    if path.suffix == ".safetensors":
        stored_model(path)  # reads less, and so refuses less
    checkpoint = load_weights(path)
    describe(checkpoint)
    return detector_of_weights(checkpoint)


def small_root(file: TorchFile) -> dict[str, Any]:
    return {"epoch": 4, "model": None, "ema": small_model(file, small_arrays())}


def anchor_free_root(file: TorchFile) -> dict[str, Any]:
    """Return a file with the smallest anchor-free model under the names of the public package."""
    document, arrays = DOCUMENTS["anchor-free"], tiny_arrays("anchor-free")
    lines = [*document["backbone"], *document["head"]]
    layers = {}
    for index, line in enumerate(lines):
        start, is_head = f"model.{index}.", line is lines[-1]
        own = {name.removeprefix(start): file.tensor(array) for name, array in arrays.items()
               if name.startswith(start)}  # fmt: skip
        state = {"reg_max": 16, "nc": document["nc"], "stride": file.tensor(np.float32([8, 16]))}
        place = "head.Detect" if is_head else f"block.{line[2]}"
        kind = f"ultralytics.nn.modules.{place}"
        layers[str(index)] = module(kind, tensors=own, **(state if is_head else {}))
    whole = module("torch.nn.modules.container.Sequential", layers)
    public = {**document, "head": [[[2, 3], 1, "Detect", ["nc"]]]}
    model = module("ultralytics.nn.tasks.DetectionModel", {"model": whole}, yaml=public)
    return {"epoch": 4, "model": None, "ema": model}


def zipped_weights(content: bytes | None, root: Callable[[TorchFile], Any] = small_root) -> bytes:
    """Return a zip of a root's storages, with its pickle or another content."""
    file = TorchFile()
    pickle = dump(root(file))
    with tempfile.TemporaryDirectory() as folder:
        path = write_zip(Path(folder, "a.pt"), content or pickle, file.storages)
        return path.read_bytes()


def pickle_reader(root: Callable[[TorchFile], Any]) -> Reader:
    """Return a reader of mutants of a root's pickle, in a zip with the right storages."""
    seal = functools.partial(zipped_weights, root=root)
    return Reader(use_weights, lambda: [dump(root(TorchFile()))], "a.pt", PICKLE_WORDS, seal)


# Our own weights and states. Mutants are of the JSON; the arrays and the checksum belong to it.

DOCUMENTS = {
    name: yaml.safe_load(text)
    for name, text in {
        "detector": TINY,
        "anchor-free": TINY_ANCHOR_FREE,
        "segmenter": TINY_SEGMENTER,
        "classifier": TINY.replace("[[2, 3], 1, Detect, [nc, anchors]]", "[-1, 1, Classify, [nc]]"),
    }.items()
}


@functools.cache
def tiny_arrays(model: str) -> dict[str, np.ndarray]:
    return nn.state_arrays(Detector(parse_model(DOCUMENTS[model])))


def own_headers() -> list[bytes]:
    headers = []
    for path in sorted(Path("tests/train/states").rglob("*.safetensors")):
        with safe_open(path, framework="numpy") as file:
            headers.append(file.metadata()[HEADER_KEY].encode())
    return headers


def tiny_header(model: str) -> list[bytes]:
    return [json.dumps({**json.loads(own_headers()[0]), "model": DOCUMENTS[model]}).encode()]


def with_arrays(content: bytes, model: str = "detector") -> bytes:
    """Return a checkpoint with this header, the arrays of a small model and a right checksum."""
    text, found = content.decode(errors="replace"), tiny_arrays(model)
    arrays = {f"{section}/{name}": found[name] for section in ("model", "ema") for name in found}
    return save(arrays, metadata={HEADER_KEY: text, CHECKSUM_KEY: _checksum(text, arrays)})


def own_weights() -> tuple[bytes, bytes]:
    """Return the JSON at the start of a file of weights, and the arrays behind it."""
    whole = with_arrays(*tiny_header("detector"))
    end = 8 + int.from_bytes(whole[:8], "little")
    return whole[8:end], whole[end:]


def with_data(content: bytes) -> bytes:
    return struct.pack("<Q", len(content)) + content + own_weights()[1]


MODEL_WORDS = (
    *JSON_WORDS, b'"Segment"', b'"Classify"', b'["nc", "anchors", 1000000000, 1000000000]',
    b'[-1, 1, "Conv", [8, 3, 2]], ', b'[-1, 1000000000, "C3", [8]], ', b'"width_multiple": 10, ',
    b'"progress": ', b'"settings": ',
)  # fmt: skip
PLACE_WORDS = (*JSON_WORDS, b'"data_offsets":', b'"F32"', b'"BF16"', b'"__metadata__":')
OWN = "a.safetensors"

# Exported files.

ONNX_WORDS = (
    b"Constant", b"ConstantOfShape", b"Range", b"Tile", b"Loop", b"If", b"Expand", b"Resize",
    b"images", b"row", b"out0", b"stride", b"names", b"[32, 32]", b"{0: 'cat'}", b"\x08\x01",
    b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x70\x01", b"location", b"../a", b"com.evil",
)  # fmt: skip
IR_WORDS = (
    *XML_WORDS, b'type="Loop"', b'size="99999999999999"', b'shape="1,3,99999999,99999999"',
    b'shape="-1,?,1..2"', b'element_type="f16"', b"<dim>-1</dim>", b"<framework>", b"<rt_info>",
    b"\0",
)  # fmt: skip


def onnx_seeds() -> list[bytes]:
    """Return models of each task, of export.py and of the public exporter."""
    written = {
        write_detector: own_texts(),
        write_segmenter: own_texts(output="mask_rows", head="Segment"),
        write_classifier: own_texts(output="logits", head="Classify"),
    }
    with tempfile.TemporaryDirectory() as folder:
        return [
            write(Path(folder, "a.onnx"), texts=texts).read_bytes()
            for write, own in written.items() for texts in (own, FOREIGN)
        ]  # fmt: skip


@functools.cache
def openvino_files() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        graph, made = write_doubling(Path(folder, "graph.onnx")), Path(folder, "made")
        write_openvino(graph, made, METADATA, None)
        return {name: (made / name).read_bytes() for name in (MODEL, WEIGHTS)}


def read_openvino(path: Path) -> object:
    """Run a folder whose model is a file."""
    with tempfile.TemporaryDirectory(suffix="_openvino_model") as folder:
        Path(folder, MODEL).write_bytes(path.read_bytes())
        Path(folder, WEIGHTS).write_bytes(openvino_files()[WEIGHTS])
        return open_runtime(folder, threads=1, is_trusted=True)(random_images())


READERS = {
    "torch-zip": Reader(use_weights, lambda: [zipped_weights(None)], "a.pt", ZIP_WORDS),
    "pickle": pickle_reader(small_root),
    "pickled-classifier": pickle_reader(small_classifier),
    "pickled-anchor-free": pickle_reader(anchor_free_root),
    "safetensors": Reader(use_weights, lambda: [with_data(own_weights()[0])], OWN, PLACE_WORDS),
    "safetensors-json": Reader(
        use_weights, lambda: [own_weights()[0]], OWN, PLACE_WORDS, with_data
    ),
    "own-state": Reader(load_state, own_headers, OWN, MODEL_WORDS, with_arrays),
    **{
        f"own-{model}": Reader(
            use_weights, functools.partial(tiny_header, model), OWN, MODEL_WORDS,
            # The arrays, a copy in each section, and the small models that fit into a small file.
            functools.partial(with_arrays, model=model), memory_bytes=256 * MIB,
        )
        for model in DOCUMENTS
    },
    "onnx": Reader(read_onnx, onnx_seeds, "a.onnx", ONNX_WORDS),
    "openvino": Reader(  # its own threads, kernels and plugin
        read_openvino, lambda: [openvino_files()[MODEL]], MODEL, IR_WORDS,
        memory_bytes=512 * MIB, seconds=5.0,
    ),
    "exported-zip": Reader(
        lambda path: metadata_in_zip(path.read_bytes(), "/extra/metadata.json"),
        lambda: [b"content" + zipped({"a/extra/metadata.json": metadata_as_json(METADATA)})],
        "a.torchscript", ZIP_WORDS,
    ),
}  # fmt: skip
