"""Tensors that remember how they are computed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn
from weakref import ref

import numpy as np
from onnx import TensorProto

from duet.backend import checks

TYPES = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "float16": TensorProto.FLOAT16,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "uint8": TensorProto.UINT8,
    "bool": TensorProto.BOOL,
}
FAR = 2**62  # beyond any size; ONNX clamps it to the end
FLOAT_DTYPES = ("float16", *checks.FLOAT_DTYPES)  # float16: for exported half-precision files


class Size(int):
    """A dynamic size, known only when the graph runs; its int value is the example's.

    Sums, differences, products and integer quotients are sizes again. Comparisons and `int` use the
    example's value; other operations would fix it for every run, and raise.

    Attributes:
        source: tensor that computes it, (1,) int64; absent if it must be read from a result.
        name: name of the dimension, for graph inputs.
    """

    source: Tensor
    name: str = ""

    @staticmethod
    def of(value: int, source: Tensor) -> Size:
        size = Size(value)
        size.source = source
        return size

    @property
    def is_side(self) -> bool:
        node = self.source.node if "source" in vars(self) else None
        return node is not None and node.operation == "Shape"

    def _refuse(self, *others: object) -> NoReturn:
        raise ValueError(
            f"a dynamic size supports only +, -, * and // (its example is {int(self)}); use int() "
            "for the example's value"
        )

    def _with(self, operation: str, value: int, other: Any) -> Size:
        return Size.of(value, apply(operation, (self.source, size_tensor(other)), (1,), "int64"))

    def __add__(self, other: int) -> Size:
        return self._with("Add", int(self) + int(other), other)

    def __sub__(self, other: int) -> Size:
        return self._with("Sub", int(self) - int(other), other)

    def __mul__(self, other: int) -> Size:
        return self._with("Mul", int(self) * int(other), other)

    def __floordiv__(self, other: int) -> Size:
        return self._with("Div", int(self) // int(other), other)

    def __rsub__(self, other: int) -> Size:
        left = apply("Sub", (size_tensor(other), self.source), (1,), "int64")
        return Size.of(int(other) - int(self), left)

    __radd__, __rmul__ = __add__, __mul__
    __neg__ = __abs__ = __truediv__ = __rtruediv__ = __rfloordiv__ = _refuse
    __mod__ = __rmod__ = __divmod__ = __rdivmod__ = __pow__ = __rpow__ = _refuse


class Node:
    """An ONNX operation with its inputs; a graph input if the operation is empty."""

    def __init__(
        self, operation: str, inputs: Sequence[Tensor | None], attributes: Mapping[str, Any]
    ):
        self.operation, self.inputs, self.attributes = operation, tuple(inputs), dict(attributes)
        self.results: tuple[Tensor, ...] = ()  # set if there are several


class Tensor:
    """A value in a graph; methods are documented in `contract.Tensor`."""

    requires_grad = False
    grad = None
    __array_ufunc__ = None  # make NumPy scalars defer to the tensor's operators

    def __init__(self, shape: Iterable[int], dtype: str, node: Node | None = None):
        self.shape, self.dtype, self.node = tuple(shape), dtype, node
        self.array: np.ndarray | None = None  # value of a constant or an evaluated tensor
        self.name = ""  # set for parameters and inputs
        # Outputs of the same module call, including this one; weak to avoid reference cycles.
        self.returned_with: tuple[ref[Tensor], ...] = ()

    def __deepcopy__(self, memo: Mapping[int, object]) -> Tensor:
        """Return this tensor: it is immutable, and a copy would copy its whole graph."""
        return self

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __add__(self, other: object) -> Tensor:
        return arithmetic("Add", self, other)

    __radd__ = __add__

    def __sub__(self, other: object) -> Tensor:
        return arithmetic("Sub", self, other)

    def __rsub__(self, other: object) -> Tensor:
        return arithmetic("Sub", constant_like(other, self), self)

    def __mul__(self, other: object) -> Tensor:
        return arithmetic("Mul", self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: object) -> Tensor:
        return arithmetic("Div", self, other)

    def __rtruediv__(self, other: object) -> Tensor:
        return arithmetic("Div", constant_like(other, self), self)

    def __pow__(self, exponent: float) -> Tensor:
        if exponent == 2:  # exact, and faster than Pow
            return arithmetic("Mul", self, self)
        return arithmetic("Pow", self, exponent)

    def __neg__(self) -> Tensor:
        _require_numbers("Neg", self.dtype)
        return apply("Neg", (self,), self.shape, self.dtype)

    def __lt__(self, other: object) -> Tensor:
        return compared("Less", self, other)

    def __le__(self, other: object) -> Tensor:
        return compared("LessOrEqual", self, other)

    def __gt__(self, other: object) -> Tensor:
        return compared("Greater", self, other)

    def __ge__(self, other: object) -> Tensor:
        return compared("GreaterOrEqual", self, other)

    def __getitem__(self, index: object) -> Tensor:
        return take(self, index if isinstance(index, tuple) else (index,))

    def reshape(self, *shape: int) -> Tensor:
        sizes = _complete(shape, self.shape)
        # Without allowzero, ONNX copies the input's size where the target size is 0.
        attributes = {"allowzero": 1} if 0 in sizes else {}
        target = sizes if 0 in sizes else _completed_by_onnx(sizes, self.shape)
        return apply("Reshape", (self, sizes_tensor(target)), sizes, self.dtype, **attributes)

    def permute(self, *dims: int) -> Tensor:
        if sorted(dim % self.ndim for dim in dims) != list(range(self.ndim)):
            raise ValueError(f"permute{dims}: expected each of the {self.ndim} dimensions once")
        order = [dim % self.ndim for dim in dims]
        shape = [self.shape[dim] for dim in order]
        return apply("Transpose", (self,), shape, self.dtype, perm=order)

    def detach(self) -> Tensor:
        return self


def constant(array: np.ndarray) -> Tensor:
    tensor = Tensor(array.shape, array.dtype.name)
    tensor.array = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    return tensor


def constant_like(value: object, like: Tensor) -> Tensor:
    """Convert a number to a tensor of like's dtype; return a tensor unchanged."""
    if isinstance(value, Tensor):
        return value
    if like.dtype not in FLOAT_DTYPES and np.asarray(value).dtype.kind == "f":
        raise ValueError(
            f"an operand of dtype {like.dtype} cannot be combined with {value}; accepted: whole "
            "numbers"
        )
    return constant(np.array(value, like.dtype))


def compute_together(tensors: Sequence[Tensor]) -> None:
    references = tuple(map(ref, tensors))
    for tensor in tensors:
        tensor.returned_with = references


def graph_input(
    name: str, shape: Sequence[int], dtype: str, free: Mapping[int, str] = MappingProxyType({})
) -> Tensor:
    """Return an input of the graph, of an example shape; free: names of dynamic dimensions."""
    tensor = Tensor(shape, dtype, Node("", (), {}))
    tensor.name = name
    tensor.shape = tuple(
        _side_of(tensor, dim, size, free[dim]) if dim in free else size
        for dim, size in enumerate(shape)
    )
    return tensor


def apply(
    operation: str,
    inputs: Sequence[Tensor | None],
    shape: Iterable[int],
    dtype: str,
    **attributes: object,
) -> Tensor:
    """Return the result of an operation, with dynamic sizes where `shape` has them.

    A dynamic size shared with an input is read from the input, a computed one from the result.
    """
    return _result(Node(operation, inputs, attributes), shape, dtype)


def apply_for_several(
    operation: str,
    inputs: Sequence[Tensor | None],
    results: Iterable[tuple[Iterable[int], str]],
    **attributes: object,
) -> tuple[Tensor, ...]:
    node = Node(operation, inputs, attributes)
    node.results = tuple(_result(node, shape, dtype) for shape, dtype in results)
    return node.results


def _result(node: Node, shape: Iterable[int], dtype: str) -> Tensor:
    tensor = Tensor(shape, dtype, node)
    tensor.shape = tuple(
        _side_of(tensor, dim, size) if isinstance(size, Size) and not size.is_side else size
        for dim, size in enumerate(tensor.shape)
    )
    return tensor


def _side_of(tensor: Tensor, dim: int, example: int, name: str = "") -> Size:
    node = Node("Shape", (tensor,), {"start": dim, "end": dim + 1})
    side = Size.of(int(example), Tensor((1,), "int64", node))
    side.name = name
    return side


def size_tensor(size: int) -> Tensor:
    return size.source if isinstance(size, Size) else constant(np.array([size], np.int64))


def sizes_tensor(sizes: Sequence[int]) -> Tensor:
    if not any(isinstance(size, Size) for size in sizes):
        return constant(np.array([int(size) for size in sizes], np.int64))
    parts: list[Tensor] = []
    for is_free, group in itertools.groupby(sizes, lambda size: isinstance(size, Size)):
        known = list(group)
        parts += map(size_tensor, known) if is_free else [sizes_tensor(known)]
    return apply("Concat", parts, (len(sizes),), "int64", axis=0) if len(parts) > 1 else parts[0]


def arithmetic(operation: str, x: Tensor, other: object) -> Tensor:
    y = constant_like(other, x)
    _require_numbers(operation, x.dtype)
    return elementwise(operation, x, y)


def _require_numbers(operation: str, dtype: str) -> None:
    """Reject integer arithmetic that ONNX lacks or rounds: Div by 0 would abort the process."""
    if dtype not in FLOAT_DTYPES and (
        dtype not in ("int32", "int64") or operation in ("Div", "Pow")
    ):
        raise ValueError(f"{operation} does not support {dtype}; cast to a float dtype first")


def elementwise(operation: str, x: Tensor, other: object, dtype: str | None = None) -> Tensor:
    y = constant_like(other, x)
    checks.one_dtype((x.dtype, y.dtype))
    return apply(operation, (x, y), _broadcast(x.shape, y.shape), dtype or x.dtype)


def compared(operation: str, x: Tensor, other: object) -> Tensor:
    if not isinstance(other, Tensor) and x.dtype not in FLOAT_DTYPES:
        is_int64 = isinstance(other, (int, np.integer)) and -(2**63) <= other < 2**63
        x = cast(x, "int64" if is_int64 else "float64")
    return elementwise(operation, x, other, "bool")


def cast(x: Tensor, dtype: str) -> Tensor:
    return apply("Cast", (x,), x.shape, dtype, to=TYPES[dtype])


def _broadcast(one: Sequence[int], other: Sequence[int]) -> list[int]:
    np.broadcast_shapes(tuple(map(int, one)), tuple(map(int, other)))  # or ValueError
    pairs = itertools.zip_longest(reversed(one), reversed(other), fillvalue=1)
    # A dynamic size is not 1, even if its example is.
    return [y if x == 1 and not isinstance(x, Size) else x for x, y in pairs][::-1]


def _complete(shape: Sequence[int], old: Sequence[int]) -> list[int]:
    np.broadcast_to(0, tuple(map(int, old))).reshape(tuple(map(int, shape)))  # or ValueError
    return [_quotient(old, shape) if size == -1 else size for size in shape]


def _quotient(old: Sequence[int], shape: Sequence[int]) -> int:
    """Return the size that -1 stands for, dynamic if one of the old sizes is."""
    total: int = math.prod(size for size in old if not isinstance(size, Size))
    for size in old:
        total = size * total if isinstance(size, Size) else total
    for size in shape:
        total = total if size in (-1, 0) else total // size
    return total


def _completed_by_onnx(sizes: Sequence[int], old: Sequence[int]) -> list[int]:
    """Return the sizes of a reshape with as few dynamic ones as possible.

    In ONNX, 0 copies the input's size at the same position, and one -1 is inferred.
    """
    target = [
        0 if isinstance(size, Size) and at < len(old) and size is old[at] else size
        for at, size in enumerate(sizes)
    ]
    free = [at for at, size in enumerate(target) if isinstance(size, Size)]
    if len(free) == 1:
        target[free[0]] = -1
    return target


def take(x: Tensor, index: tuple[Any, ...]) -> Tensor:
    """Return x[index], for integers, slices and one `...`."""
    at = index.index(...) if ... in index else len(index)
    missing = x.ndim - len(index) + (... in index)
    if missing < 0:
        raise IndexError(f"{len(index)} indices for a tensor of {x.ndim} dimensions")
    index = (*index[:at], *[slice(None)] * missing, *index[at + 1 :])
    shape, spans = list(x.shape), {}
    for dim, part in enumerate(index):
        if part != slice(None):
            shape[dim], spans[dim] = _cut(part, shape[dim])
    if spans:
        starts, ends, steps = map(constant, np.array([*spans.values()], np.int64).T)
        axes = constant(np.array([*spans], np.int64))
        x = apply("Slice", (x, starts, ends, axes, steps), shape, x.dtype)
    if dropped := [dim for dim in spans if not isinstance(index[dim], slice)]:
        shape = [size for dim, size in enumerate(x.shape) if dim not in dropped]
        x = apply("Squeeze", (x, constant(np.array(dropped, np.int64))), shape, x.dtype)
    return x


def _cut(part: Any, size: int) -> tuple[int, tuple[int, int, int]]:
    """Return the size of a part, 1 for an integer, and start, end and step for ONNX's Slice."""
    if isinstance(part, slice):
        span = part
    elif isinstance(part, int):
        span = slice(part, part + 1 or None)
    else:
        raise TypeError(
            f"an index cannot be a {type(part).__name__}; accepted: integers, slices and one ..."
        )
    if any(isinstance(bound, Size) for bound in (part, span.start, span.stop, span.step)):
        raise ValueError("a dynamic size cannot be an index; accepted: integers and slices")
    start, end, step = span.start or 0, FAR if span.stop is None else span.stop, span.step or 1
    if step < 1:
        raise ValueError(f"slice step {step} is not supported; accepted: 1 or more")
    length = len(range(int(size))[span])
    if not length and span is not part:
        raise IndexError(f"index {part} is out of range for a dimension of size {size}")
    is_free = span is part and isinstance(size, Size)
    return Size(length) if is_free else length, (start, end, step)
