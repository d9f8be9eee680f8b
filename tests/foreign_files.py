"""Weights files, valid and hostile ones, written opcode by opcode without a framework."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

STORAGES = {"f4": "FloatStorage", "f2": "HalfStorage", "i8": "LongStorage", "f8": "DoubleStorage"}


@dataclass(frozen=True)
class Global:
    name: str  # module.attribute


@dataclass(frozen=True)
class Call:
    name: str
    arguments: tuple = ()
    state: Any = None
    is_class: bool = False


@dataclass(frozen=True)
class Persistent:
    identity: Any


@dataclass(frozen=True)
class Raw:
    opcodes: bytes


def dump(value: Any, protocol: int = 2) -> bytes:
    """Return a pickle of plain values and of the marks above."""
    return bytes([0x80, protocol]) + emit(value) + b"."


def emit(value: Any) -> bytes:
    if isinstance(value, Raw):
        return value.opcodes
    if isinstance(value, Global):
        module, _, attribute = value.name.rpartition(".")
        return f"c{module}\n{attribute}\n".encode()
    if isinstance(value, Call):
        make = b"\x81" if value.is_class else b"R"
        made = emit(Global(value.name)) + emit(value.arguments) + make
        return made if value.state is None else made + emit(value.state) + b"b"
    if isinstance(value, Persistent):
        return emit(value.identity) + b"Q"
    if isinstance(value, dict):
        return b"}(" + b"".join(emit(k) + emit(v) for k, v in value.items()) + b"u"
    if isinstance(value, list):
        return b"](" + b"".join(map(emit, value)) + b"e"
    if isinstance(value, tuple):
        return b"(" + b"".join(map(emit, value)) + b"t"
    return emit_scalar(value)


def emit_scalar(value: Any) -> bytes:
    if value is None or isinstance(value, bool):
        return {None: b"N", True: b"\x88", False: b"\x89"}[value]
    if isinstance(value, int):
        data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        return b"\x8a" + bytes([len(data)]) + data
    if isinstance(value, float):
        return b"G" + struct.pack(">d", value)
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


@dataclass
class TorchFile:
    """The storages of the tensors that a pickle mentions."""

    storages: dict[str, bytes] = field(default_factory=dict)

    def tensor(self, array: np.ndarray, **changes: Any) -> Call:
        """Return a tensor record; changes replace its kind, count, offset, shape or strides."""
        key = str(len(self.storages))
        self.storages[key] = array.tobytes()
        kind = changes.get("kind", f"torch.{STORAGES[array.dtype.str[1:]]}")
        count = changes.get("count", array.size)
        identity = ("storage", Global(kind), key, "cpu", count)
        strides = tuple(step // array.itemsize for step in array.strides)
        return Call(
            "torch._utils._rebuild_tensor_v2",
            (
                Persistent(identity),
                changes.get("offset", 0),
                changes.get("shape", array.shape),
                changes.get("strides", strides),
                False,
                Call("collections.OrderedDict"),
            ),
        )

    def write_zip(self, path: Path, root: Any, **options: Any) -> Path:
        return write_zip(path, dump(root), self.storages, **options)


def write_zip(
    path: Path,
    pickled: bytes,
    storages: Mapping[str, bytes] | None = None,
    compression: int = zipfile.ZIP_STORED,
) -> Path:
    """Write a zip as torch.save lays it out."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", pickled)
        for key, data in (storages or {}).items():
            archive.writestr(f"archive/data/{key}", data)
        archive.writestr("archive/version", "3\n")
    return path


def module(kind: str, modules: Any = None, tensors: Any = None, **attributes: Any) -> Call:
    """Return a module as both frameworks pickle it."""
    state = {
        "_parameters": Call("collections.OrderedDict"),
        "_buffers": tensors or {},
        "_modules": modules or {},
        **attributes,
    }
    return Call(kind, (), state, is_class=True)


SMALL_DOCUMENT = {
    "nc": 80,  # that of the YAML file it came from; the head below has 2
    "depth_multiple": 1.0,
    "width_multiple": 1.0,
    "anchors": [[1, 1, 1, 1]],
    "backbone": [[-1, 1, "Conv", [8, 3, 2]]],
    "head": [[[-1], 1, "Detect", ["nc", "anchors"]]],
}


def small_arrays(seed: int = 0) -> dict[str, np.ndarray]:
    """Return the state of a model of one convolution and a head of 2 anchors and 2 classes."""
    generator = np.random.default_rng(seed)
    shapes = {
        "model.0.conv.weight": (8, 3, 3, 3),
        "model.0.bn.weight": (8,),
        "model.0.bn.bias": (8,),
        "model.0.bn.running_mean": (8,),
        "model.0.bn.running_var": (8,),
        "model.0.bn.num_batches_tracked": (),
        "model.1.anchors": (1, 2, 2),
        "model.1.m.0.weight": (14, 8, 1, 1),
        "model.1.m.0.bias": (14,),
    }
    return {
        name: generator.uniform(0.5, 2, shape).astype(np.float32) for name, shape in shapes.items()
    }


def small_model(file: TorchFile, arrays: Mapping[str, np.ndarray], **changes: Any) -> Call:
    """Return the record of a DetectionModel; changes replace attributes of it or of its parts."""
    tensors = {name: file.tensor(array) for name, array in arrays.items()}
    nn = "torch.nn.modules"

    def under(prefix: str) -> dict[str, Call]:
        return {
            name.removeprefix(prefix): value
            for name, value in tensors.items()
            if name.startswith(prefix) and "." not in name.removeprefix(prefix)
        }

    norm = module(
        f"{nn}.batchnorm.BatchNorm2d", tensors=under("model.0.bn."), eps=changes.get("eps", 1e-3)
    )
    conv = {
        "conv": module(f"{nn}.conv.Conv2d", tensors=under("model.0.conv.")),
        "bn": norm,
        "act": module(f"{nn}.activation.{changes.get('activation', 'SiLU')}"),
    }
    for name in changes.get("without", ()):
        del conv[name]
    method = changes.get("forward")  # of the instance, as folding leaves it
    bound = {"forward": Call("builtins.getattr", ({}, method))} if method else {}
    outputs = module(f"{nn}.conv.Conv2d", tensors=under("model.1.m.0."))
    head = module(
        changes.get("head", "models.yolo.Detect"),
        {"m": module(f"{nn}.container.ModuleList", {"0": outputs})},
        {"anchors": tensors["model.1.anchors"], "anchor_grid": file.tensor(np.ones(4, np.float32))},
        nc=changes.get("nc", 2),
        stride=file.tensor(np.array([2.0], np.float32)),
    )
    layers = module(
        f"{nn}.container.Sequential", {"0": module("models.common.Conv", conv, **bound), "1": head}
    )
    return module(
        changes.get("kind", "models.yolo.DetectionModel"),
        {"model": layers},
        yaml=changes.get("yaml", SMALL_DOCUMENT),
        names=changes.get("names", ["cat", "dog"]),
        hyp=changes.get("hyp", {"lr0": 0.02, "box": 0.05, "anchors": None}),
    )
