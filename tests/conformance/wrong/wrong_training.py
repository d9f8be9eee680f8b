"""Mistakes in `optim`, `autograd` and `device`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from backend.processes import this_process
from tests.conformance.judging import Backend
from tests.conformance.wrong.registry import register


def sgd(b: Backend, mistake: str = "") -> Any:
    """Make SGD in NumPy with the named mistake."""

    class SGD:
        def __init__(self, groups: Sequence[tuple[Mapping[str, Any], float]]) -> None:
            self.groups = groups
            self.velocity: dict[str, np.ndarray] = {}

        def step(self, learning_rates: Sequence[float], momentum: float, lost: Any = None) -> None:
            if len(learning_rates) != len(self.groups) and mistake != "any number of rates":
                raise ValueError(f"{len(learning_rates)} learning rates")
            if lost is not None and b.ops.to_numpy(lost) == 1 and mistake != "steps though lost":
                return
            if mistake == "one learning rate":
                learning_rates = [learning_rates[0]] * len(self.groups)
            for (group, decay), rate in zip(self.groups, learning_rates, strict=False):
                for name, x in group.items():
                    if x.grad is not None:
                        constants = (float(np.float32(value)) for value in (decay, rate, momentum))
                        self.step_one(name, x, *constants)
                    elif mistake == "decays what has no gradient":
                        x.detach().copy_(b.ops.tensor(b.ops.to_numpy(x) * (1 - rate * decay)))

        def step_one(self, name: str, x: Any, decay: float, rate: float, momentum: float) -> None:
            value, g = b.ops.to_numpy(x), b.ops.to_numpy(x.grad)
            if mistake == "decays after the step":
                value = value * (1 - rate * decay)
            elif mistake != "no decay":
                g = g + decay * value
            if momentum > 0:
                g = self.with_momentum(name, g, momentum)
                # NumPy 1 makes float64 of a 0-d float32 and a Python number.
                self.velocity[name] = self.velocity[name].astype(value.dtype)
            x.detach().copy_(b.ops.tensor(np.asarray(value - rate * g).astype(value.dtype)))

        def with_momentum(self, name: str, g: np.ndarray, momentum: float) -> np.ndarray:
            new = g * (1 - momentum) if mistake == "dampens" else g
            velocity = momentum * self.velocity.get(name, 0.0) + new
            self.velocity[name] = np.asarray(velocity)
            return velocity if mistake == "no Nesterov" else g + momentum * velocity

        def uncount_step(self) -> None:
            if mistake == "takes back the step too":
                self.velocity = {}

        def zero_grad(self) -> None:
            if mistake == "keeps gradients":
                return
            for group, _ in self.groups:
                for x in group.values():
                    if x.grad is not None:
                        x.grad.detach().copy_(b.zeros(x.grad.shape, b.ops.dtype_of(x)))

        def state_arrays(self) -> dict[str, np.ndarray]:
            if mistake == "state aliases":
                return {f"{name}.momentum": v for name, v in self.velocity.items()}
            return {f"{name}.momentum": v.copy() for name, v in self.velocity.items()}

        def load_state_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
            parameters = {f"{n}.momentum": x for group, _ in self.groups for n, x in group.items()}
            if mistake == "loads nothing":
                return
            for name, array in arrays.items():
                fits = name in parameters and array.shape == tuple(parameters[name].shape)
                if not fits and mistake != "loads anything":
                    raise ValueError(f"{name} {array.shape}")
            if mistake != "keeps old state":
                self.velocity = {}
            for name, array in arrays.items():
                dtype = b.ops.dtype_of(parameters[name]) if name in parameters else "float32"
                self.velocity[name.removesuffix(".momentum")] = array.astype(dtype)

    return SGD


def with_mistake(mistake: str) -> Any:
    return lambda b: sgd(b, mistake)


register(
    (
        ("optim.SGD", "has no Nesterov momentum", with_mistake("no Nesterov")),
        ("optim.SGD", "decouples the decay", with_mistake("decays after the step")),
        ("optim.SGD", "has no decay", with_mistake("no decay")),
        ("Optimizer.step", "dampens the first step", with_mistake("dampens")),
        ("Optimizer.step", "uses one learning rate", with_mistake("one learning rate")),
        ("Optimizer.step", "takes any number of rates", with_mistake("any number of rates")),
        ("Optimizer.step", "decays unused weights", with_mistake("decays what has no gradient")),
        ("Optimizer.step", "steps though lost", with_mistake("steps though lost")),
        ("Optimizer.uncount_step", "takes back too much", with_mistake("takes back the step too")),
        ("Optimizer.zero_grad", "keeps gradients", with_mistake("keeps gradients")),
        ("Optimizer.state_arrays", "aliases", with_mistake("state aliases")),
        ("Optimizer.load_state_arrays", "loads nothing", with_mistake("loads nothing")),
        ("Optimizer.load_state_arrays", "loads anything", with_mistake("loads anything")),
        ("Optimizer.load_state_arrays", "keeps old state", with_mistake("keeps old state")),
    )
)


def overwriting_backward(b: Backend) -> Any:
    def value_and_backward(model: Any, loss: Any, images: Any, targets: Any, stage: Any) -> Any:
        kept: list[Any] = []

        def halved(predictions: Any, targets: Any) -> Any:
            kept.append(loss(predictions, targets))
            return kept[0]

        terms = b.autograd.value_and_backward(model, halved, images, targets, stage)
        terms.total = terms.total * 0.5
        return terms

    return value_and_backward


def unstaged_backward(b: Backend) -> Any:
    def value_and_backward(model: Any, loss: Any, images: Any, targets: Any, stage: Any) -> Any:
        with stage("forward"):
            return b.autograd.value_and_backward(
                model, loss, images, targets, lambda name: nullcontext()
            )

    return value_and_backward


def memory_error_alone(b: Backend) -> Any:
    return lambda error: isinstance(error, MemoryError)


def clip_each(b: Backend) -> Any:
    def clip_gradients(parameters: Any, max_norm: float) -> Any:
        parameters = list(parameters)
        joint = b.autograd.clip_gradients(parameters, np.inf)
        for parameter in parameters:
            b.autograd.clip_gradients([parameter], max_norm)
        return joint

    return clip_gradients


def clip_in_single_precision(b: Backend) -> Any:
    def clip_gradients(parameters: Any, max_norm: float) -> Any:
        parameters = list(parameters)
        norm = b.autograd.clip_gradients(parameters, max_norm)
        if float(b.ops.to_numpy(norm)) ** 2 < float(np.finfo("float32").max):
            return norm
        b.amp.scale_gradients_(parameters, 0.0)
        return norm * np.inf

    return clip_gradients


def clip_and_forget(b: Backend) -> Any:
    def clip_gradients(parameters: Any, max_norm: float) -> Any:
        parameters = list(parameters)
        b.autograd.clip_gradients(parameters, max_norm)
        return b.autograd.clip_gradients(parameters, np.inf)

    return clip_gradients


def gradients_of_infinite_zero(b: Backend) -> Any:
    def gradients(output: Any, inputs: Any) -> Any:
        if output.ndim or not all(x.requires_grad for x in inputs):
            raise ValueError(str(tuple(output.shape)))
        for x in inputs:
            output = output + b.ops.cast(b.ops.sum(x * 0.0), b.ops.dtype_of(output))
        found = b.autograd.gradients(output, inputs)
        return [g + x.detach() * 0.0 for g, x in zip(found, inputs, strict=True)]

    return gradients


def accepted_device(b: Backend) -> Any:
    return lambda name: "cpu" if name in ("", "cpu") else "cuda:0"


def device_of_rank(b: Backend) -> Any:
    """Return OneFlow's own name of a rank's CPU."""

    def resolve(name: str) -> str:
        own = b.device.resolve(name)
        return own if this_process().rank == 0 else f"{own}:{this_process().rank}"

    return resolve


def shared_variable(b: Backend) -> Any:
    def variable(array: np.ndarray, device: str = "cpu") -> Any:
        return b.ops.tensor(array, device)

    return variable


def failing(error: str) -> Any:
    def fail(*args: Any) -> None:
        raise AssertionError(error)

    return lambda b: fail


register(
    (
        ("autograd.no_grad", "does nothing", lambda b: nullcontext),
        ("autograd.variable", "requires no gradient", shared_variable),
        ("autograd.gradients", "is NaN beside infinity", gradients_of_infinite_zero),
        ("autograd.value_and_backward", "halves the loss", overwriting_backward),
        ("autograd.value_and_backward", "has one stage", unstaged_backward),
        ("autograd.clip_gradients", "clips each alone", clip_each),
        ("autograd.clip_gradients", "squares in float32", clip_in_single_precision),
        ("autograd.clip_gradients", "returns the norm after", clip_and_forget),
        ("device.resolve", "takes any GPU on trust", accepted_device),
        ("device.resolve", "numbers a rank's CPU", device_of_rank),
        ("device.synchronize", "knows GPUs only", failing("invalid device cpu")),
        ("device.peak_memory", "is not called", lambda b: lambda run, device: 2**30),
        ("device.free_memory", "takes a CPU for a GPU", lambda b: lambda device: 2**30),
        ("device.describe", "is several lines", lambda b: lambda device: "CPU\n2.13.0\n0.9.0"),
        ("device.rounds_to_tf32", "takes a CPU for a GPU", lambda b: lambda device: True),
        ("device.compute_exactly", "knows GPUs only", failing("invalid device cpu")),
        ("device.is_out_of_memory", "takes any error for it", lambda b: lambda error: True),
        ("device.is_out_of_memory", "knows one kind", memory_error_alone),
        ("device.host_threads", "counts from none", lambda b: lambda: 0),
        ("device.set_host_threads", "takes any number", lambda b: lambda number: None),
        ("device.supports", "denies what it does not know", lambda b: lambda capability: False),
    )
)
