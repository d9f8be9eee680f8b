"""The judge of a backend: checks are functions of its namespaces, and NumPy says what is right.

A check raises AssertionError and nothing else when the backend breaks its promise, so that the
same checks can be shown to reject the wrong versions in `wrong/`.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from duet import backend
from duet.backend import contract
from duet.backend.contract import inference, training
from duet.backend.select import FRAMEWORKS
from tests.conformance import completeness

# Where the contract promises no ValueError, any early exception is accepted: the process goes on.
CLEAR_ERROR = (ValueError, RuntimeError, IndexError, TypeError)

# About ten units in the last place, the error of an elementary function of either library.
RELATIVE_TOLERANCE = {"float32": 1e-6, "float64": 1e-14}

FLOATS = ("float32", "float64")
DTYPES = (*FLOATS, "int64", "uint8", "bool")
SHAPES = ((3,), (2, 3), (2, 1, 4), (), (0,), (0, 3), (2, 0))
# Of two tensors that are broadcast.
PAIRS = (
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((2, 1), (1, 3)),
    ((), (2,)),
    ((), ()),
    ((0, 1), (1, 3)),
    ((0, 3), (0, 3)),
)

# What the methods and operators of `contract.Tensor` mean, as functions.
TENSOR_METHODS: dict[str, Callable[..., Any]] = {
    "__add__": lambda x, y: x + y,
    "__radd__": lambda x, number: number + x,
    "__sub__": lambda x, y: x - y,
    "__rsub__": lambda x, number: number - x,
    "__mul__": lambda x, y: x * y,
    "__rmul__": lambda x, number: number * x,
    "__truediv__": lambda x, y: x / y,
    "__rtruediv__": lambda x, number: number / x,
    "__pow__": lambda x, number: x**number,
    "__neg__": lambda x: -x,
    "__lt__": lambda x, y: x < y,
    "__le__": lambda x, y: x <= y,
    "__gt__": lambda x, y: x > y,
    "__ge__": lambda x, y: x >= y,
    "__getitem__": lambda x, index: x[index],
    "reshape": lambda x, *shape: x.reshape(*shape),
    "permute": lambda x, *dims: x.permute(*dims),
    "detach": lambda x: x.detach(),
    "shape": lambda x: x.shape,
    "ndim": lambda x: x.ndim,
    "requires_grad": lambda x: x.requires_grad,
    "grad": lambda x: x.grad,
}


class Overlay:
    """A namespace with one attribute replaced."""

    def __init__(self, base: Any, name: str, value: Any) -> None:
        self._base = base
        setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._base, name)


class Backend:
    """The namespaces that a check judges."""

    def __init__(self) -> None:
        self.ops: Any = backend.ops
        self.nn: Any = backend.nn
        self.optim: Any = backend.optim
        self.fused: Any = backend.fused
        self.multi_tensor: Any = backend.multi_tensor
        self.autograd: Any = backend.autograd
        self.amp: Any = backend.amp
        self.dist: Any = backend.dist
        self.device: Any = backend.device
        self.tensor: Any = Overlay(None, "_methods", TENSOR_METHODS)
        for name, method in TENSOR_METHODS.items():
            setattr(self.tensor, name, method)

    @property
    def trains(self) -> bool:
        """Whether it promises gradients; without, a check looks at values alone."""
        return FRAMEWORKS[backend.use()].trains

    def variable(self, array: np.ndarray) -> Any:
        """Return a tensor that records gradients where there are any."""
        return self.autograd.variable(array) if self.trains else self.ops.tensor(array)

    def zeros(self, shape: Sequence[int], dtype: str = "float32") -> Any:
        return self.full(shape, 0, dtype)

    def full(self, shape: Sequence[int], value: float, dtype: str = "float32") -> Any:
        return self.ops.tensor(np.full(shape, value, dtype))

    def replaced(self, module: str, name: str, value: Any) -> Backend:
        """Return the same backend with one function or class replaced."""
        other = Backend()
        setattr(other, module, Overlay(getattr(self, module), name, value))
        return other


class Check(NamedTuple):
    """One promise: the contract's name that it judges, what it looks at, and how."""

    name: str
    label: str
    run: Callable[[Backend], None]
    trains: bool = False  # whether it is for backends that train alone


CHECKS: list[Check] = []


def judges(name: str, label: str = "", trains: bool = False) -> Callable[[Any], Any]:
    """Register a function of a backend as a check of a name such as "ops.where".

    trains: it is about gradients or learning, though a backend for inference has the name too.
    """

    def register(function: Callable[[Backend], None]) -> Callable[[Backend], None]:
        CHECKS.append(Check(name, label or function.__name__, function, trains))
        return function

    return register


def promised_names(trains: bool = True) -> set[str]:
    """List the names of the contract: "ops.where", "Tensor.__add__", "Optimizer.step", ..."""
    owners = {**inference.MODULES, "Tensor": contract.Tensor}
    if trains:
        owners |= {**training.MODULES, "Optimizer": contract.Optimizer}
    return {
        f"{path}.{name}" for path, owner in owners.items() for name in completeness.members(owner)
    }


@cache
def all_checks() -> list[Check]:
    """Return every check: importing the files registers theirs."""
    for path in sorted(Path(__file__).parent.glob("checks_*.py")):
        importlib.import_module(f"tests.conformance.{path.stem}")
    return CHECKS


def checks_of(trains: bool) -> list[Check]:
    """Return the checks that a backend which trains, or one which does not, must pass."""
    promised, checks = promised_names(trains), all_checks()
    return [check for check in checks if check.name in promised and (trains or not check.trains)]


def uniform(
    shape: Sequence[int],
    dtype: str = "float64",
    low: float = -2.0,
    high: float = 2.0,
    seed: int = 0,
) -> np.ndarray:
    """Return numbers that depend only on the arguments."""
    generator = np.random.Generator(np.random.Philox(seed))
    return np.asarray(generator.uniform(low, high, tuple(shape))).astype(dtype)


def assert_equal(found: np.ndarray, wanted: np.ndarray, tolerance: float | None = None) -> None:
    """Require equal dtype, shape and values; the tolerance is relative to the largest wanted."""
    assert found.dtype == wanted.dtype, f"dtype {found.dtype}, not {wanted.dtype}"
    assert found.shape == wanted.shape, f"shape {found.shape}, not {wanted.shape}"
    if wanted.dtype.kind != "f":
        np.testing.assert_array_equal(found, wanted)
        return
    tolerance = RELATIVE_TOLERANCE[wanted.dtype.name] if tolerance is None else tolerance
    finite = np.abs(wanted[np.isfinite(wanted)])
    np.testing.assert_allclose(
        found, wanted, rtol=tolerance, atol=tolerance * finite.max(initial=0.0), equal_nan=True
    )


def assert_values(
    b: Backend,
    function: Callable[..., Any],
    reference: Callable[..., Any],
    *arrays: np.ndarray,
    args: Sequence[Any] = (),
    tolerance: float | None = None,
) -> None:
    """Require function(tensors, args) to equal reference(arrays, args), in their float dtype."""
    found = function(*map(b.ops.tensor, arrays), *args)
    with np.errstate(all="ignore"):
        wanted = np.asarray(reference(*arrays, *args))
    floats = {array.dtype for array in arrays if array.dtype.kind == "f"}
    if wanted.dtype.kind == "f" and floats:
        # NumPy 1 makes float64 of a 0-d float32 and a Python number.
        (dtype,) = floats
        wanted = wanted.astype(dtype)
    assert_equal(b.ops.to_numpy(found), wanted, tolerance)


def assert_gradient(
    b: Backend,
    function: Callable[..., Any],
    reference: Callable[..., Any],
    *arrays: np.ndarray,
    args: Sequence[Any] = (),
) -> None:
    """Require gradients of a weighted sum of function's output to equal those of reference."""
    if not b.trains:
        return
    inputs = [b.autograd.variable(array) for array in arrays]
    weights = uniform(np.shape(reference(*arrays, *args)), seed=99)
    total = b.ops.sum(function(*inputs, *args) * b.ops.tensor(weights))
    found = b.autograd.gradients(total, inputs)
    wanted = central_differences(lambda *x: float(np.sum(reference(*x, *args) * weights)), arrays)
    for gradient, difference in zip(found, wanted, strict=True):
        # The differences err by step² and by rounding / step, both far below this.
        assert_equal(b.ops.to_numpy(gradient), difference, tolerance=1e-7)


def assert_op(
    b: Backend,
    function: Callable[..., Any],
    reference: Callable[..., Any],
    *shapes: Sequence[int],
    args: Sequence[Any] = (),
    low: float = -2.0,
    tolerance: Mapping[str, float] = MappingProxyType({}),
    gradient: bool = True,
) -> None:
    """Require values in both float dtypes, and gradients, of tensors of these shapes.

    args: what function and reference take after them.
    """
    arrays = [uniform(shape, low=low, seed=seed) for seed, shape in enumerate(shapes)]
    for dtype in FLOATS:
        given = [array.astype(dtype) for array in arrays]
        assert_values(b, function, reference, *given, args=args, tolerance=tolerance.get(dtype))
    if gradient:
        assert_gradient(b, function, reference, *arrays, args=args)


def central_differences(
    function: Callable[..., float], arrays: Sequence[np.ndarray], step: float = 1e-5
) -> list[np.ndarray]:
    """Return the gradient of a function of float64 arrays, element by element."""
    return [
        np.array(list(_differences(function, arrays, position, step))).reshape(array.shape)
        for position, array in enumerate(arrays)
    ]


def _differences(
    function: Callable[..., float], arrays: Sequence[np.ndarray], position: int, step: float
) -> Iterator[float]:
    for element in range(arrays[position].size):
        shifted = []
        for sign in (1.0, -1.0):
            changed = [array.astype("float64") for array in arrays]
            changed[position].reshape(-1)[element] += sign * step
            shifted.append(function(*changed))
        yield (shifted[0] - shifted[1]) / (2 * step)


def learn(b: Backend, model: Callable[[Any], Any], x: Any, factors: Any) -> None:
    """Add the gradients of the sum of model(x) * factors to those of the parameters."""
    b.autograd.value_and_backward(
        model,
        lambda y, factors: SimpleNamespace(total=b.ops.sum(y * factors)),
        x,
        factors,
        lambda stage: nullcontext(),
    )


def assert_refused(
    text: str,
    function: Callable[..., Any],
    *args: Any,
    errors: type[Exception] | tuple[type[Exception], ...] = ValueError,
) -> None:
    """Require that a call raises one of errors, with text in its message."""
    assert_raises(errors, lambda: function(*args), text)


def assert_raises(
    errors: type[Exception] | tuple[type[Exception], ...],
    function: Callable[[], Any],
    text: str = "",
) -> None:
    """Require that function raises one of errors, with text in its message."""
    try:
        function()
    except errors as error:
        assert text in str(error), f"{text!r} is not in: {error}"
        return
    raise AssertionError("nothing was raised")


# The deliberately wrong backend has one plausible mistake per entry, made from the right backend.

# Where the contract's classes are found: the methods of an optimizer are those of SGD's result.
MODULES = {"Tensor": ("tensor", None), "Optimizer": ("optim", "SGD")}
# The backend and its right function or class -> the wrong one.
Build = Callable[[Backend, Any], Any]


class Wrong(NamedTuple):
    """A mistake in what the contract calls `name`."""

    name: str
    mistake: str
    build: Build

    def applied(self, b: Backend) -> Backend:
        """Return a right backend with this one mistake."""
        owner, attribute = self.name.split(".")
        module, replaced = MODULES.get(owner, (owner, None))
        replaced = replaced or attribute
        right = getattr(getattr(b, module), replaced)
        return b.replaced(module, replaced, self.build(b, right))


WRONG: list[Wrong] = []


def register_wrong(*entries: tuple[str, str, Build]) -> None:
    WRONG.extend(Wrong(*entry) for entry in entries)


def returning(value: Any) -> Build:
    return lambda b, right: lambda *args, **kwargs: value


def without_gradient(b: Backend, right: Any) -> Any:
    return lambda *args, **kwargs: right(*args, **kwargs).detach()


def promoted(b: Backend, right: Any) -> Any:
    """Make float64 of the result, as older NumPy did of 0-d arrays."""
    return lambda *args, **kwargs: b.ops.cast(right(*args, **kwargs), "float64")


def with_arguments(**changes: Any) -> Build:
    """Call the right function with some arguments replaced, whatever is given for them."""

    def build(b: Backend, right: Any) -> Any:
        def wrong(*args: Any, **kwargs: Any) -> Any:
            given = inspect.signature(right).bind(*args, **kwargs).arguments
            return right(**{**given, **changes})

        return wrong

    return build
