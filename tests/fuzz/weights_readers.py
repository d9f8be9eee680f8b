"""Weights files and states: of other programs, and our own."""

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
from duet.utils.export.onnx import read_onnx
from duet.utils.state.resume import load_state
from duet.utils.weights.__main__ import describe
from duet.utils.weights.checkpoint import CHECKSUM_KEY, HEADER_KEY, _checksum
from duet.utils.weights.load import load_weights, stored_model
from tests.foreign_files import TorchFile, dump, module, small_arrays, small_model, write_zip
from tests.fuzz.reader import MIB, Reader
from tests.fuzz.text_readers import JSON_TOKENS
from tests.onnx_files import FOREIGN, own_texts, write_classifier, write_detector, write_segmenter
from tests.small import TINY
from tests.unit.weights.test_public_layers import small_classifier

STATES = Path("tests/train/states")
PICKLE_TOKENS = (
    b"cos\nsystem\n", b"c__builtin__\neval\n", b"cbuiltins\ngetattr\n",
    b"ccollections\nOrderedDict\n", b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"ctorch\nFloatStorage\n", b"(", b")", b"]", b"}", b"t", b"l", b"d", b"R", b"b", b"Q",
    b"\x81", b"\x82\x01", b"\x85", b"\x86", b"\x87", b"a", b"e", b"s", b"u", b"0", b"1", b"2",
    b"h\x00", b"q\x00", b"j\xff\xff\xff\x7f", b"r\xff\xff\xff\x7f", b"\x94",
    b"]q\x00(h\x00h\x00e", b"\x8b\xff\xff\xff\x7f", b"\x8a\xff", b"X\xff\xff\xff\x7f",
    b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x95\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"I99999999999\n", b"L1L\n", b"F1e999\n", b"P0\n", b"i__main__\nx\n", b"\x93", b"\x8f",
    b"\x90", b"\x91", b".", b"cmodels.yolo\nSegment\n", b"cmodels.common\nClassify\n",
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


def zip_seeds() -> list[bytes]:
    file = TorchFile()
    return [_written(lambda path: file.write_zip(path, small_root(file)))]


def _written(write: Callable[[Path], Path]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return write(Path(folder, "a.pt")).read_bytes()


def anchor_free_root(file: TorchFile) -> dict[str, Any]:
    """Return a file with the smallest anchor-free model under the names of the public package."""
    document, arrays = tiny_document("anchor-free"), tiny_arrays("anchor-free")
    lines = [*document["backbone"], *document["head"]]
    layers = {}
    for index, line in enumerate(lines):
        own = {name.removeprefix(f"model.{index}."): x for name, x in arrays.items()
               if name.startswith(f"model.{index}.")}  # fmt: skip
        place = "head.Detect" if index == len(lines) - 1 else f"block.{line[2]}"
        state = {"reg_max": 16, "nc": document["nc"], "stride": file.tensor(np.float32([8, 16]))}
        layers[str(index)] = module(
            f"ultralytics.nn.modules.{place}", tensors={n: file.tensor(x) for n, x in own.items()},
            **(state if place == "head.Detect" else {}),
        )  # fmt: skip
    whole = module("torch.nn.modules.container.Sequential", layers)
    public = {**document, "head": [[[2, 3], 1, "Detect", ["nc"]]]}
    model = module("ultralytics.nn.tasks.DetectionModel", {"model": whole}, yaml=public)
    return {"epoch": 4, "model": None, "ema": model}


def pickle_reader(root: Callable[[TorchFile], Any]) -> Reader:
    """Return a reader of mutants of a root's pickle, in a zip with the right storages."""

    def in_zip(content: bytes) -> bytes:
        file = TorchFile()
        root(file)
        return _written(lambda path: write_zip(path, content, file.storages))

    return Reader(use_weights, lambda: [dump(root(TorchFile()))], "a.pt", PICKLE_TOKENS, in_zip)


# Our own files. The mutants are of the JSON; the arrays and the checksum belong to it.


def own_headers() -> list[bytes]:
    return [_metadata(path).encode() for path in sorted(STATES.rglob("*.safetensors"))]


def _metadata(path: Path) -> str:
    with safe_open(path, framework="numpy") as file:
        return file.metadata()[HEADER_KEY]


def with_arrays(content: bytes, model: str = "detector") -> bytes:
    """Return a checkpoint with this header, the arrays of a small model and a right checksum."""
    text = content.decode("utf-8", errors="replace")
    found = tiny_arrays(model)
    arrays = {f"{section}/{name}": found[name] for section in ("model", "ema") for name in found}
    return save(arrays, metadata={HEADER_KEY: text, CHECKSUM_KEY: _checksum(text, arrays)})


HEADS = {  # the last line of `TINY` and of models of other tasks with its layers
    "detector": [[2, 3], 1, "Detect", ["nc", "anchors"]],
    "anchor-free": [[2, 3], 1, "DetectAnchorFree", ["nc"]],
    "segmenter": [[2, 3], 1, "Segment", ["nc", "anchors", 4, 8]],
    "classifier": [-1, 1, "Classify", ["nc"]],
}


def tiny_document(model: str) -> dict[str, Any]:
    return {**yaml.safe_load(TINY), "head": [HEADS[model]]}


@functools.cache
def tiny_arrays(model: str) -> dict[str, np.ndarray]:
    return nn.state_arrays(Detector(parse_model(tiny_document(model))))


def tiny_header(model: str = "detector") -> list[bytes]:
    header = json.loads(own_headers()[0])
    return [json.dumps({**header, "model": tiny_document(model)}).encode()]


def safetensors_seeds() -> list[bytes]:
    return [with_arrays(header) for header in tiny_header()]


def safetensors_json() -> list[bytes]:
    """Return the JSON at the start of the file: names, types, places and our own header."""
    whole = safetensors_seeds()[0]
    return [whole[8 : 8 + int.from_bytes(whole[:8], "little")]]


def with_data(content: bytes) -> bytes:
    """Return a file with this JSON, its length before it and the seed's arrays behind it."""
    (seed,) = safetensors_json()
    return struct.pack("<Q", len(content)) + content + safetensors_seeds()[0][8 + len(seed) :]


MODEL_TOKENS = (
    b'"backbone": ', b'"head": ', b'"anchors": ', b'"Conv"', b'"C3"', b'"Detect"', b'"nc"',
    b'"Segment"', b'"Classify"', b'["nc", "anchors", 1000000000, 1000000000]',
    b'[-1, 1, "Conv", [8, 3, 2]], ', b'[-1, 1000000000, "C3", [8]], ', b'"width_multiple": 10, ',
    b'"progress": ', b'"settings": ',
)  # fmt: skip


def onnx_seeds() -> list[bytes]:
    """Return models of each task, of export.py and of the public exporter."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.onnx")
        texts = {
            write_detector: own_texts(),
            write_segmenter: own_texts(output="mask_rows", head="Segment"),
            write_classifier: own_texts(output="logits", head="Classify"),
        }
        return [
            write(path, texts=each).read_bytes()
            for write, own in texts.items()
            for each in (own, FOREIGN)
        ]


ONNX_TOKENS = (
    b"Constant", b"ConstantOfShape", b"Range", b"Tile", b"Loop", b"If", b"Expand", b"Resize",
    b"images", b"row", b"out0", b"stride", b"names", b"[32, 32]", b"{0: 'cat'}", b"\x08\x01",
    b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x70\x01", b"location", b"../a", b"com.evil",
)  # fmt: skip

# The arrays and a copy in each section, and the small models that fit into a small file.
WEIGHTS_BYTES = 256 * MIB
ZIP_TOKENS = (b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06")
PLACE_TOKENS = (*JSON_TOKENS, b'"data_offsets":', b'"F32"', b'"BF16"', b'"__metadata__":')

READERS = {
    "torch-zip": Reader(use_weights, zip_seeds, "a.pt", ZIP_TOKENS),
    "pickle": pickle_reader(small_root),
    "pickled-classifier": pickle_reader(small_classifier),
    "pickled-anchor-free": pickle_reader(anchor_free_root),
    "safetensors": Reader(use_weights, safetensors_seeds, "a.safetensors", PLACE_TOKENS),
    "safetensors-json": Reader(
        use_weights, safetensors_json, "a.safetensors", PLACE_TOKENS, with_data
    ),
    "own-weights": Reader(
        use_weights, tiny_header, "a.safetensors", (*JSON_TOKENS, *MODEL_TOKENS), with_arrays,
        memory_bytes=WEIGHTS_BYTES,
    ),
    **{
        f"own-{model}": Reader(
            use_weights, functools.partial(tiny_header, model), "a.safetensors",
            (*JSON_TOKENS, *MODEL_TOKENS), functools.partial(with_arrays, model=model),
            memory_bytes=WEIGHTS_BYTES,
        )
        for model in ("anchor-free", "segmenter", "classifier")
    },
    "onnx": Reader(read_onnx, onnx_seeds, "a.onnx", ONNX_TOKENS),
    "own-state": Reader(
        load_state, own_headers, "a.safetensors", (*JSON_TOKENS, *MODEL_TOKENS), with_arrays
    ),
}  # fmt: skip
