"""Gradients, EMA and optimizers, written once for PyTorch and OneFlow; imports neither.

Each backend's `autograd`, `nn`, `optim` and `multi_tensor` use this code, and add the kernels that
change lists of tensors. `backend/contract` documents the functions without a docstring.
"""

from __future__ import annotations

import math
import operator
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from duet.backend import autograd, checks, ops
from duet.backend.contract import Stage
from duet.backend.modules import AnyModule, AnyTensor

Raw = TypeVar("Raw")
Labels = TypeVar("Labels")
Terms = TypeVar("Terms")
Tensors = Sequence[AnyTensor]

BETA2 = checks.as_float32(0.999)
EPSILON = checks.as_float32(1e-8)
UPDATES = "updates"  # name of Adam's count of updates in the state arrays


def value_and_backward(
    model: Callable[[AnyTensor], Raw],
    loss: Callable[[Raw, Labels], Terms],
    images: AnyTensor,
    targets: Labels,
    stage: Stage,
) -> Terms:
    with autograd.recording():
        with stage("forward"):
            predictions = model(images)
        with stage("loss"):
            terms: Any = loss(predictions, targets)
        with stage("backward"):
            terms.total.backward()
    return terms


def float_tensors(module: AnyModule) -> Callable[[], Sequence[AnyTensor]]:
    found: list[tuple[dict[str, AnyTensor], str]] = [
        (kept, name)
        for part in module.modules()
        for kept in (part._parameters, part._buffers)
        for name, x in kept.items()
        if x is not None and x.is_floating_point() and name not in part._non_persistent_buffers_set
    ]
    weakref.finalize(module, OfMemory.forget).atexit = False
    return lambda: tuple(kept[name] for kept, name in found)


class OfMemory:
    """A function of the memory of EMA and values, called again only for other tensors or once
    tensors have moved: finding their addresses takes about as long as an update.
    """

    moved = 0  # how often the tensors of a module have been moved
    _all: weakref.WeakSet[OfMemory] = weakref.WeakSet()

    def __init__(self, function: Callable[[Tensors, Tensors], Any]) -> None:
        self._function = function
        self._clear()
        self._all.add(self)

    def _clear(self) -> None:
        self._moved = -1
        self._seen: tuple[Tensors, Tensors] = ((), ())
        self._result: Any = None

    @classmethod
    def forget(cls) -> None:
        """Keep no tensors: a module that had some is gone."""
        for one in cls._all:
            one._clear()

    def __call__(self, averages: Tensors, values: Tensors) -> Any:
        known = all(map(_are_same, self._seen, (averages, values)))
        if self._moved != OfMemory.moved or not known:
            self._result = self._function(averages, values)
            # Tuples are immutable, and tuple() of a tuple makes no copy.
            self._seen, self._moved = (tuple(averages), tuple(values)), OfMemory.moved
        return self._result


def _are_same(tensors: Tensors, others: Tensors) -> bool:
    if tensors is others:
        return True
    return len(tensors) == len(others) and all(map(operator.is_, tensors, others))


class Constants(NamedTuple):
    """Constants of one update of a group, rounded to float32."""

    rate: float  # Adam's with its bias corrections
    momentum: float  # Adam's beta1
    decay: float  # added to the gradient
    shrink: float = 1.0  # factor of the weights before the update
    epsilon: float = 0.0


class Update(NamedTuple):
    """Tensors of a group for one update: parameters with a gradient, and their states."""

    weights: list[AnyTensor]
    gradients: list[AnyTensor]
    states: list[list[AnyTensor]]  # one list per kind; none for SGD without momentum
    constants: Constants
    lost: AnyTensor | None  # 0-d: if 1, nothing changes


class Optimizer(ABC):
    """Base of the optimizers: groups of parameters, and state tensors `PARAMETER.KIND`."""

    kinds: tuple[str, ...]
    updates: int | None = None  # None: not counted

    def __init__(self, groups: Sequence[tuple[Mapping[str, AnyTensor], float]]) -> None:
        self._groups = [(dict(group), checks.as_float32(decay)) for group, decay in groups]
        self.parameters = {name: x for group, _ in self._groups for name, x in group.items()}
        self._state: dict[str, AnyTensor] = {}

    def step(
        self, learning_rates: Sequence[float], momentum: float, lost: AnyTensor | None = None
    ) -> None:
        checks.equal_counts(len(learning_rates), len(self._groups), "learning rates")
        rates, momentum = map(checks.as_float32, learning_rates), checks.as_float32(momentum)
        groups = [
            (group, self.constants(rate, momentum, decay))
            for rate, (group, decay) in zip(rates, self._groups, strict=True)
        ]
        if self.updates is not None:
            self.updates += 1
        if self.skips(lost):
            return
        with autograd.no_grad():
            for group, constants in groups:
                trained = {name: x for name, x in group.items() if x.grad is not None}
                states = [self._states(kind, trained) for kind in self.kinds_of(constants)]
                weights, gradients = [*trained.values()], [x.grad for x in trained.values()]
                if trained:
                    self.update_(Update(weights, gradients, states, constants, lost))

    def uncount_step(self) -> None:
        if self.updates is not None:
            self.updates -= 1

    def state_arrays(self) -> dict[str, np.ndarray]:
        if self.updates == 0:
            return {}  # after a skipped first step the moments are zero
        count = {} if self.updates is None else {UPDATES: np.array(self.updates)}
        return {name: ops.to_numpy(x) for name, x in self._state.items()} | count

    def load_state_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        owners = {f"{name}.{kind}": x for name, x in self.parameters.items() for kind in self.kinds}
        shapes: dict[str, tuple[int, ...]] = {key: tuple(x.shape) for key, x in owners.items()}
        if self.updates is not None:
            if arrays and UPDATES not in arrays:
                raise ValueError(
                    f"optimizer state {UPDATES!r} is missing: this is not Adam's state"
                )
            shapes[UPDATES] = ()
        checks.optimizer_state(shapes, arrays)
        self._state = {key: self.state_like(x) for key, x in owners.items() if key in arrays}
        for key, state in self._state.items():
            state.copy_(ops.tensor(arrays[key].astype(ops.dtype_of(state))))
        if self.updates is not None:
            self.updates = int(arrays.get(UPDATES, 0))

    def _states(self, kind: str, trained: Mapping[str, AnyTensor]) -> list[AnyTensor]:
        """Return one kind of state for the parameters, zeros before the first gradient."""
        keys = {f"{name}.{kind}": x for name, x in trained.items()}
        self._state |= {key: self.state_like(x, self._state.get(key)) for key, x in keys.items()}
        return [self._state[key] for key in keys]

    @abstractmethod
    def constants(self, learning_rate: float, momentum: float, decay: float) -> Constants:
        """Return the constants of a group's next update; ValueError for a wrong momentum."""

    def kinds_of(self, constants: Constants) -> Sequence[str]:
        return self.kinds

    # Of the backend
    @abstractmethod
    def zero_grad(self) -> None: ...

    @abstractmethod
    def skips(self, lost: AnyTensor | None) -> bool:
        """Return whether the host leaves out a lost step; otherwise the kernels do."""

    @abstractmethod
    def state_like(self, x: AnyTensor, state: AnyTensor | None = None) -> AnyTensor:
        """Return a state, zeros for None, in the memory order that kernels need."""

    @abstractmethod
    def update_(self, update: Update) -> None:
        """Shrink the weights, then change them and the states by the optimizer's rule."""


class SGD(Optimizer):
    kinds = ("momentum",)

    def constants(self, learning_rate: float, momentum: float, decay: float) -> Constants:
        return Constants(learning_rate, momentum, decay)

    def kinds_of(self, constants: Constants) -> Sequence[str]:
        return self.kinds if constants.momentum else ()


class Adam(Optimizer):
    kinds = ("first_moment", "second_moment")
    updates: int = 0
    DECOUPLED = False  # apply decay to the weights instead of the gradient

    def constants(self, learning_rate: float, momentum: float, decay: float) -> Constants:
        """Include the bias corrections, which the kernels leave out.

        Here they are rounded once: OneFlow's kernel keeps them as float32, PyTorch's as float64.
        Source: Kingma & Ba 2015, arXiv:1412.6980, end of section 2.
        """
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum {momentum} is Adam's beta1, which must be in [0, 1)")
        count = self.updates + 1
        second = math.sqrt(1 - BETA2**count)
        rate = checks.as_float32(learning_rate * second / (1 - momentum**count))
        epsilon = checks.as_float32(EPSILON * second)
        if self.DECOUPLED:
            return Constants(rate, momentum, 0.0, 1 - learning_rate * decay, epsilon)
        return Constants(rate, momentum, decay, 1.0, epsilon)


class AdamW(Adam):
    DECOUPLED = True
