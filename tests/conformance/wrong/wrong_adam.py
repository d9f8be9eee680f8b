"""Mistakes in Adam and AdamW of `optim`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.conformance.judging import Backend
from tests.conformance.wrong.registry import register


def adam(b: Backend, decoupled: bool, mistake: str = "") -> Any:
    """Make Adam or AdamW in NumPy with the named mistake."""

    class Adam:
        def __init__(self, groups: Sequence[tuple[Mapping[str, Any], float]]) -> None:
            self.groups = groups
            self.moments: dict[str, np.ndarray] = {}
            self.updates = 0

        def step(self, learning_rates: Sequence[float], momentum: float, lost: Any = None) -> None:
            if len(learning_rates) != len(self.groups):
                raise ValueError(f"{len(learning_rates)} learning rates")
            if not 0 <= momentum < 1 and mistake != "takes any momentum":
                raise ValueError(f"momentum {momentum}")
            self.updates += 1
            if lost is not None and b.ops.to_numpy(lost) == 1 and mistake != "steps though lost":
                return
            for (group, decay), rate in zip(self.groups, learning_rates, strict=True):
                for name, x in group.items():
                    constants = (float(np.float32(value)) for value in (decay, rate, momentum))
                    if x.grad is not None:
                        self.step_one(name, x, *constants)
                    elif mistake == "shrinks unused weights":
                        x.detach().copy_(b.ops.tensor(b.ops.to_numpy(x) * (1 - rate * decay)))

        def step_one(self, name: str, x: Any, decay: float, rate: float, beta1: float) -> None:
            value, g = b.ops.to_numpy(x).astype("float64"), b.ops.to_numpy(x.grad)
            if decoupled != (mistake == "other decay"):
                value = value * (1 - (decay if mistake == "decay without rate" else rate * decay))
            else:
                g = g + decay * value
            beta1 = 0.9 if mistake == "fixed beta1" else beta1
            m = self.average(f"{name}.first_moment", g, beta1)
            v = self.average(f"{name}.second_moment", g * g, float(np.float32(0.999)))
            rate, eps = self.corrected(rate, beta1)
            root = np.sqrt(v + eps) if mistake == "eps inside" else np.sqrt(v) + eps
            dtype = b.ops.dtype_of(x)
            x.detach().copy_(b.ops.tensor(np.asarray(value - rate * m / root).astype(dtype)))
            for kind in ("first_moment", "second_moment"):
                key = f"{name}.{kind}"
                self.moments[key] = np.asarray(self.moments[key]).astype(dtype)

        def average(self, key: str, new: np.ndarray, beta: float) -> np.ndarray:
            self.moments[key] = np.asarray(beta * self.moments.get(key, 0.0) + (1 - beta) * new)
            return self.moments[key]

        def corrected(self, rate: float, beta1: float) -> tuple[float, float]:
            if mistake == "no correction":
                return rate, 1e-8
            second = np.sqrt(1 - float(np.float32(0.999)) ** self.updates)
            rate = rate * second / ((1 - beta1**self.updates) or 1.0)
            return float(np.float32(rate)), float(np.float32(float(np.float32(1e-8)) * second))

        def uncount_step(self) -> None:
            self.updates -= mistake != "counts lost steps"

        def zero_grad(self) -> None:
            for group, _ in self.groups:
                for x in group.values():
                    if x.grad is not None:
                        x.grad.detach().copy_(b.zeros(x.grad.shape, b.ops.dtype_of(x)))

        def state_arrays(self) -> dict[str, np.ndarray]:
            copies = {key: np.array(moment) for key, moment in self.moments.items()}
            return {**copies, "updates": np.array(self.updates)} if self.updates else {}

        def load_state_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
            shapes = {
                f"{name}.{kind}": tuple(x.shape)
                for group, _ in self.groups
                for name, x in group.items()
                for kind in ("first_moment", "second_moment")
            } | {"updates": ()}
            if arrays and "updates" not in arrays:
                raise ValueError("updates")
            for key, array in arrays.items():
                if key not in shapes or array.shape != shapes[key]:
                    raise ValueError(f"{key} {array.shape}")
            if mistake != "forgets the count":
                self.updates = int(arrays.get("updates", 0))
            parameters = {name: x for group, _ in self.groups for name, x in group.items()}
            self.moments = {
                key: array.astype(b.ops.dtype_of(parameters[key.rpartition(".")[0]]))
                for key, array in arrays.items()
                if key != "updates"
            }

    return Adam


MISTAKES = (
    ("swaps L2 and decoupled decay", "other decay"),
    ("does not correct the bias", "no correction"),
    ("keeps beta1 at 0.9", "fixed beta1"),
    ("adds eps under the root", "eps inside"),
    ("takes any momentum", "takes any momentum"),
    ("shrinks unused weights", "shrinks unused weights"),
    ("forgets the count of updates", "forgets the count"),
    ("steps though the step is lost", "steps though lost"),
    ("counts steps that are lost", "counts lost steps"),
)


def with_mistake(decoupled: bool, mistake: str) -> Any:
    return lambda b: adam(b, decoupled, mistake)


register(
    (name, said, with_mistake(name == "optim.AdamW", mistake))
    for name in ("optim.Adam", "optim.AdamW")
    for said, mistake in MISTAKES
)
register(
    (("optim.AdamW", "decays without the rate", with_mistake(True, "decay without rate")),),
)
