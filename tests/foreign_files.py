"""Weights files, valid and hostile ones, written opcode by opcode without a framework."""

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
    """Return the record of a DetectionModel of `small_arrays`; changes as for `PublicModel`."""
    grid = {"model.1.anchor_grid": np.ones(4, np.float32)}  # in files before v6.1
    hyp = {"lr0": 0.02, "box": 0.05, "anchors": None, "box_pw": 2**2000}  # beyond a float
    own = {"strides": (2,), "hyp": hyp, **changes}
    return PublicModel(file, {**arrays, **grid}, SMALL_DOCUMENT, **own).root()


NN = "torch.nn.modules"
TYPES = {
    "Detect": "models.yolo.Detect",
    "Segment": "models.yolo.Segment",
    "nn.Upsample": f"{NN}.upsampling.Upsample",
    "nn.MaxPool2d": f"{NN}.pooling.MaxPool2d",
    "nn.ZeroPad2d": f"{NN}.padding.ZeroPad2d",
}


class PublicModel:
    """The records of a public model's modules, by the names of its arrays.

    changes: attributes of the model (kind, yaml, names, hyp, transforms), of its head (head, nc,
        strides, eps), of its convolutions (conv_stride, forward, activation with its attributes,
        all_active), of its norms (norm_eps) and attention (heads); without: parts to leave out.
    """

    def __init__(
        self,
        file: TorchFile,
        arrays: Mapping[str, np.ndarray],
        document: Mapping[str, Any],
        **changes: Any,
    ) -> None:
        self.file, self.arrays, self.document, self.changes = file, arrays, document, changes

    def root(self) -> Call:
        blocks = [line[2] for line in (*self.document["backbone"], *self.document["head"])]
        kinds = [TYPES.get(block, f"models.common.{block}") for block in blocks]
        kinds[-1] = self.changes.get("head", kinds[-1])
        layers = {str(i): self.record(kind, f"model.{i}.") for i, kind in enumerate(kinds)}
        own = {"yaml": dict(self.document), "names": ["cat", "dog"], **self.changes}
        named = ("yaml", "names", "hyp", "transforms")
        return module(
            own.get("kind", "models.yolo.DetectionModel"),
            {"model": module(f"{NN}.container.Sequential", layers)},
            **{name: own[name] for name in named if name in own},
        )

    def record(self, kind: str, prefix: str) -> Call:
        """Return the record of a module of a class, with those inside it and its tensors."""
        inside: dict[str, None] = {}
        tensors = {}
        for name, array in self.arrays.items():
            if name.startswith(prefix):
                child, dot, _ = name.removeprefix(prefix).partition(".")
                if not dot:
                    tensors[child] = self.file.tensor(array)
                elif child not in self.changes.get("without", ()):
                    inside[child] = None
        children = {
            child: self.record(self.type_of(kind, child, prefix), f"{prefix}{child}.")
            for child in inside
        }
        if kind == "models.common.Conv":
            children["act"] = self.activation(prefix)
        return module(kind, children, tensors, **self.attributes(kind, prefix))

    def attributes(self, kind: str, prefix: str) -> dict[str, Any]:
        changes = self.changes
        if kind.endswith("BatchNorm2d"):
            layer = ".".join(prefix.split(".")[:2])
            of_head = prefix == f"{layer}.conv.bn." and f"{layer}.linear.weight" in self.arrays
            return {"eps": changes.get("eps", 1e-5) if of_head else changes.get("norm_eps", 1e-3)}
        if kind.endswith(".Conv2d"):
            return {"stride": changes.get("conv_stride", (2, 2))}
        if kind.endswith("MultiheadAttention"):
            return {"num_heads": changes.get("heads", 4)}
        if kind.endswith((".Detect", ".Segment")):
            strides = self.file.tensor(np.array(changes["strides"], np.float32))
            return {"nc": changes.get("nc", 2), "stride": strides}
        if kind == "models.common.Conv" and "forward" in changes:  # as folding leaves it
            return {"forward": Call("builtins.getattr", ({}, changes["forward"]))}
        return {}

    def type_of(self, parent: str, child: str, prefix: str) -> str:
        own, arrays, parent = f"{prefix}{child}.", self.arrays, parent.rpartition(".")[2]
        signs = {  # an array that only this kind of module has
            "bn.weight": "models.common.Conv",
            "running_mean": f"{NN}.batchnorm.BatchNorm2d",
            "conv.0.cv1.bn.weight": "models.common.GhostBottleneck",
            "ma.in_proj_weight": "models.common.TransformerLayer",
            "tr.0.q.weight": "models.common.TransformerBlock",
            "in_proj_weight": f"{NN}.activation.MultiheadAttention",
        }
        if f"{own}cv2.bn.weight" in arrays and child in "02" and parent == "Sequential":
            return "models.common.GhostConv"
        for name, kind in signs.items():
            if f"{own}{name}" in arrays:
                return kind
        if arrays.get(f"{own}weight", np.zeros(())).ndim == 2:
            return f"{NN}.linear.Linear"
        return f"{NN}.conv.Conv2d" if f"{own}weight" in arrays else f"{NN}.container.Sequential"

    def activation(self, prefix: str) -> Call:
        linear = ".conv.2." in prefix and not self.changes.get("all_active")
        name = (
            "linear.Identity" if linear else f"activation.{self.changes.get('activation', 'SiLU')}"
        )
        return module(f"{NN}.{name}", **self.changes.get("attributes", {}))
