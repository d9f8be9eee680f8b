"""Weights files of about a given size, made to take far more time or memory than that.

`PICKLES` are values that any of the containers of `CONTAINERS` can hold; `FILES` need one of their
own. A file of `size` bytes that is read in time linear in it is read in twice the time at twice the
size.
"""

import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.foreign_files import (
    SMALL_DOCUMENT,
    Call,
    Raw,
    TorchFile,
    dump,
    emit,
    small_arrays,
    small_model,
    write_zip,
)

MODEL = "models.yolo.Model"
FIRST = Raw(b"h\x00")  # what `keep` put into the memo


def keep(value: Any, entry: int) -> Raw:
    """Return a value that is also put into the memo."""
    return Raw(emit(value) + b"q" + bytes([entry]))


def doubling(levels: int = 40) -> Raw:
    """Return a list of two lists of two lists ...: a few bytes for 2^levels elements."""
    return Raw(b"](" * levels + b"]" + b"q\x05h\x05e" * levels)


def keys(count: int, start: int = 0) -> list[str]:
    return [f"{index:x}" for index in range(start, start + count)]


def module(**state: Any) -> Call:
    groups = {"_parameters": {}, "_buffers": {}, "_modules": {}}
    return Call(MODEL, (), {**groups, "yaml": {}, **state}, is_class=True)


def parts(children: dict[str, Any]) -> Call:
    return module(_modules=children)


def nested(depth: int) -> Any:
    """Return modules inside one another, written without recursion."""
    opening = f"cmodels.yolo\nModel\n)\x81}}({_text('_modules')}}}{_text('a')}".encode("latin-1")
    inner = emit(module())
    return {"model": parts({"a": Raw(opening * depth + inner + b"sub" * depth)})}


def _text(value: str) -> str:
    return "X" + struct.pack("<I", len(value)).decode("latin-1") + value


def many(value: Raw, count: int) -> list[Raw]:
    return [value] * count


def long_name_of_many(size: int) -> Any:
    # 19,000 children of a name of 200 kB took 4 GB.
    leaf = keep(module(), 0)
    inside = {name: FIRST for name in keys(size // 20)}
    return {"x": leaf, "model": parts({"n" * (size // 2): parts(inside)})}


def shared_tree(size: int) -> Any:
    """Return a module that holds one many times, which holds one many times, ..."""
    level: Any = keep(parts({"x": module()}), 0)
    entries = {name: FIRST for name in keys(size // 40)}
    return {"x": [level, keep(parts(entries), 0), keep(parts(entries), 0)], "model": parts(entries)}


def hidden_buffers_of_many(size: int) -> Any:
    hidden = keep(Call("builtins.set", (keys(size // 20),)), 0)
    children = {
        name: module(_non_persistent_buffers_set=FIRST, yaml=None) for name in keys(size // 300)
    }
    return {"x": hidden, "model": parts(children)}


def colliding_keys(size: int) -> Raw:
    numbers = range(size // 13)  # multiples of this prime have one hash
    pairs = (
        b"\x8a\x0a" + (index * (2**61 - 1)).to_bytes(10, "little", signed=True) + b"N"
        for index in numbers
    )
    return Raw(b"}(" + b"".join(pairs) + b"u")


PICKLES: dict[str, Callable[[int], Any]] = {
    "a long name over many children": long_name_of_many,
    "one module many times": shared_tree,
    "a module in itself": lambda size: {
        "model": Raw(
            b"cmodels.yolo\nModel\n)\x81q\x00" + emit({"_modules": {"a": FIRST}, "yaml": {}}) + b"b"
        )
    },
    "modules inside one another": lambda size: nested(size // 40),
    "one such list for many modules": hidden_buffers_of_many,
    "keys of one hash": colliding_keys,
    "lists that double": lambda size: [doubling(), "x" * size],
    "doubling tuples": lambda size: Raw(b"N" + b"q\x00h\x00\x86" * (size // 5)),
    "a claimed bytearray": lambda size: Raw(b"\x96" + struct.pack("<Q", 2**40) + bytes(size)),
}


def write_torch_zip(path: Path, root: Any) -> None:
    write_zip(path, dump(root, 4))


def write_oneflow_folder(path: Path, root: Any) -> None:
    path.mkdir()
    (path / "pickled_data").write_bytes(dump({"protocol_version": 1, "data": root}, 4))


def write_oneflow_zip(path: Path, root: Any) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("pickled_data", dump({"protocol_version": 1, "data": root}, 4))


CONTAINERS = (write_torch_zip, write_oneflow_folder, write_oneflow_zip)


def one_tensor(path: Path, size: int) -> None:
    """Write one tensor under as many names as fit."""
    file = TorchFile()
    tensor = keep(file.tensor(np.ones(size // 4, np.float32)), 0)
    root = {"first": tensor, **{name: FIRST for name in keys(size // 12)}}
    file.write_zip(path, root)


def small_models(path: Path, kept: Any, **changes: Any) -> None:
    """Write a small detection model whose changes may point at what is kept."""
    file = TorchFile()
    root = {"x": keep(kept, 0), "model": small_model(file, small_arrays(), **changes)}
    file.write_zip(path, root)


def described(path: Path, kept: Any, **changes: Any) -> None:
    small_models(path, kept, yaml={**SMALL_DOCUMENT, **changes})


def oneflow_tensors(path: Path, size: int, meta: bytes, out: bytes, kept_at: Any = "t") -> None:
    """Write a OneFlow folder that keeps one tensor under many names."""
    record = keep(Call("oneflow.Tensor", (), {"path": kept_at}, is_class=True), 0)
    root = {"first": record, **{name: FIRST for name in keys(size // 24)}}
    write_oneflow_folder(path, root)
    (path / "t").mkdir()
    (path / "t" / "meta").write_bytes(meta)
    (path / "t" / "out").write_bytes(out)


EMPTY_META = b"shape {\n  dim: 0\n}\ndata_type: kFloat\n"


def many_members(path: Path, size: int) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", dump({}))
        for name in keys(size // 120):
            archive.writestr(name, b"")


def overlapping_members(path: Path, size: int) -> None:
    """Write an archive whose entries all point at one piece of data."""
    stored = bytes(size // 2)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", dump({}))
        archive.writestr("x", stored)
        first = archive.getinfo("x")
        for name in keys(size // 200):
            entry = zipfile.ZipInfo(name)
            for field in ("header_offset", "file_size", "compress_size", "CRC"):
                setattr(entry, field, getattr(first, field))
            archive.filelist.append(entry)
            archive.NameToInfo[name] = entry


def bomb(path: Path, size: int) -> None:
    zip_bytes = bytes(size * 1000)
    write_zip(path, dump({}), {"0": zip_bytes}, zipfile.ZIP_DEFLATED)


OWN_HEADER = {
    "format": "duet-checkpoint", "version": 1, "model": {}, "class_names": [], "epoch": 0,
    "batch_number": 0, "last_update": -1, "ema_updates": 0, "best_fitness": 0.0,
    "loss_scale": 1.0, "hyperparameters": {}, "settings": {}, "progress": {}, "backend": "",
}  # fmt: skip


def own_file(path: Path, arrays: dict[str, Any] | None = None, **changes: Any) -> None:
    """Write a file of ours with any header and any table of arrays."""
    metadata = {"duet": json.dumps({**OWN_HEADER, **changes})}
    text = json.dumps({"__metadata__": metadata, **(arrays or {})}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)


FILES: dict[str, Callable[[Path, int], None]] = {
    "one large tensor under many names": one_tensor,
    "one long class name many times": lambda path, size: small_models(
        path, "n" * (size // 2), names=many(FIRST, size // 4)
    ),
    "a description that doubles": lambda path, size: described(path, "x" * size, x=doubling()),
    "one long description of a OneFlow tensor": lambda path, size: oneflow_tensors(
        path, size // 2, EMPTY_META + b" " * (size // 2), b""
    ),
    "a large OneFlow tensor many times": lambda path, size: oneflow_tensors(
        path,
        size // 2,
        b"shape {\n  dim: %d\n}\ndata_type: kInt8\n" % (size // 2),
        bytes(size // 2),
    ),
    "many members": many_members,
    "overlapping members": overlapping_members,
    "a zip bomb": bomb,
    "a long header": lambda path, size: own_file(path, settings={"a": [[]] * (size // 4)}),
    "many classes of ours": lambda path, size: own_file(path, class_names=["a"] * (size // 5)),
}
