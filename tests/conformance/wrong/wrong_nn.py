"""Mistakes in `nn`."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from tests.conformance.judging import Backend
from tests.conformance.wrong.registry import Build, register, returning, with_arguments


def with_forward(change: Any) -> Build:
    """Derive from a layer: change(b, layer, x, forward) is its forward pass."""

    def build(b: Backend, right: Any) -> Any:
        class Layer(right):
            def forward(self, x: Any) -> Any:
                return change(b, self, x, super().forward)

        return Layer

    return build


def biased(b: Backend, layer: Any, x: Any, forward: Any) -> Any:
    before = b.ops.to_numpy(layer.running_var)
    y = forward(x)
    if layer.training:
        gathered = b.ops.to_numpy(layer.running_var) - (1 - layer.momentum) * before
        count = x.shape[0] * x.shape[2] * x.shape[3]
        wanted = (1 - layer.momentum) * before + gathered * (count - 1) / count
        layer.running_var.copy_(b.ops.tensor(wanted.astype(before.dtype)))
    return y


def cancelling(b: Backend, layer: Any, x: Any, forward: Any) -> Any:
    def average(values: Any) -> Any:
        return b.ops.mean(b.ops.mean(b.ops.mean(values, 3, True), 2, True), 0, True)

    y = forward(x)
    if not layer.training:
        return y
    mean = average(x)
    return (x - mean) / (average(x * x) - mean * mean + layer.eps) ** 0.5


def taking_one_value(b: Backend, layer: Any, x: Any, forward: Any) -> Any:
    if layer.training and tuple(x.shape[2:]) == (1, 1) and x.shape[0] == 1:
        return x * 0.0 + layer.bias.reshape(1, -1, 1, 1)
    return forward(x)


def running_backwards(b: Backend, layers: Any, x: Any, forward: Any) -> Any:
    for module in reversed(list(layers)):
        x = module(x)
    return x


def stuck_in_training(b: Backend, right: Any) -> Any:
    class Module(right):
        def eval(self) -> Any:
            return self

    return Module


def pack_that_thaws(b: Backend, right: Any) -> Any:
    def pack(module: Any) -> None:
        right(module)
        b.nn.set_trainable([x for _, x in b.nn.named_parameters(module)], True)

    return pack


def pack_that_replaces(b: Backend, right: Any) -> Any:
    """Make parameters that the optimizer does not know."""

    def pack(module: Any) -> None:
        for part in module.modules():
            if getattr(part, "weight", None) is not None:
                part.weight = copy.deepcopy(part.weight)

    return pack


register(
    ("nn.Module", "stays in training mode", stuck_in_training),
    ("nn.ModuleList", "reverses", lambda b, right: lambda modules=(): right(list(modules)[::-1])),
    ("nn.Sequential", "runs backwards", with_forward(running_backwards)),
    ("nn.Conv2d", "has no bias", with_arguments(bias=False)),
    ("nn.Conv2d", "ignores the padding", with_arguments(padding=0)),
    ("nn.Conv2d", "ignores the stride", with_arguments(stride=1)),
    (
        "nn.Conv2d",
        "has no gradient by its input",
        with_forward(lambda b, layer, x, forward: forward(x.detach())),
    ),
    ("nn.BatchNorm2d", "gathers the biased variance", with_forward(biased)),
    ("nn.BatchNorm2d", "cancels digits", with_forward(cancelling)),
    ("nn.BatchNorm2d", "takes one value a channel", with_forward(taking_one_value)),
    (
        "nn.BatchNorm2d",
        "has momentum the other way round",
        lambda b, right: lambda n, eps=1e-5, momentum=0.1: right(n, eps, 1.0 - momentum),
    ),
    (
        "nn.MaxPool2d",
        "pads with zeros",
        with_forward(lambda b, layer, x, forward: b.ops.clamp(forward(x), 0.0)),
    ),
    ("nn.pack", "thaws", pack_that_thaws),
    ("nn.pack", "replaces parameters", pack_that_replaces),
    ("nn.pack", "casts", lambda b, _: lambda module: b.nn.place(module, "cpu", "float64")),
)


def float_tensors_of_the_start(b: Backend, right: Any) -> Any:
    def float_tensors(module: Any) -> Any:
        found = [x * 1.0 for x in right(module)()]
        return lambda: found

    return float_tensors


def undetached_state(b: Backend, right: Any) -> Any:
    return lambda module: right(module) | dict(b.nn.named_parameters(module))


def aliasing_state(b: Backend, right: Any) -> Any:
    return lambda module: {n: x.numpy() for n, x in b.nn.state_tensors(module).items()}


def state_without_buffers(b: Backend, right: Any) -> Any:
    return lambda module: {n: b.ops.to_numpy(x) for n, x in b.nn.named_parameters(module)}


def load_what_fits(b: Backend, right: Any) -> Any:
    def load(module: Any, arrays: dict[str, np.ndarray]) -> None:
        own = b.nn.state_arrays(module)
        fitting = {n: a for n, a in arrays.items() if n in own and own[n].shape == a.shape}
        right(module, own | fitting)

    return load


def plain_attribute(b: Backend, right: Any) -> Any:
    return lambda module, name, array: object.__setattr__(module, name, b.ops.tensor(array))


def place_that_casts_everything(b: Backend, right: Any) -> Any:
    def place(module: Any, device: str, dtype: str) -> Any:
        right(module, device, dtype)
        for part in module.modules():
            if hasattr(part, "num_batches_tracked"):
                part.num_batches_tracked = b.ops.cast(part.num_batches_tracked, dtype)
        return module

    return place


def set_trainable_that_keeps_gradients(b: Backend, right: Any) -> Any:
    def set_trainable(parameters: Any, trainable: bool) -> None:
        for parameter in parameters:
            parameter.requires_grad = trainable

    return set_trainable


def frozen_original(b: Backend, right: Any) -> Any:
    def frozen_copy(module: Any) -> Any:
        b.nn.set_trainable((x for _, x in b.nn.named_parameters(module)), False)
        return module.eval()

    return frozen_copy


def torchscript_without_text(b: Backend, right: Any) -> Any:
    supported = b.device.supports("torchscript")
    return lambda module, x, text: right(module, x, "") if supported else b""


register(
    (
        "nn.named_parameters",
        "includes buffers",
        lambda b, _: lambda module: iter(b.nn.state_tensors(module).items()),
    ),
    ("nn.float_tensors", "lists what was there", float_tensors_of_the_start),
    (
        "nn.state_tensors",
        "copies",
        lambda b, right: lambda module: {n: x * 1 for n, x in right(module).items()},
    ),
    ("nn.state_tensors", "is not detached", undetached_state),
    ("nn.state_arrays", "aliases the module", aliasing_state),
    ("nn.state_arrays", "forgets buffers", state_without_buffers),
    ("nn.load_state_arrays", "loads what fits", load_what_fits),
    ("nn.register_buffer", "sets an attribute", plain_attribute),
    ("nn.register_parameter", "makes a buffer", lambda b, _: b.nn.register_buffer),
    ("nn.place", "casts integers too", place_that_casts_everything),
    ("nn.lay_channels_last", "does nothing", returning(None)),
    ("nn.set_trainable", "only ever freezes", with_arguments(trainable=False)),
    ("nn.set_trainable", "does nothing", returning(None)),
    ("nn.set_trainable", "keeps gradients", set_trainable_that_keeps_gradients),
    ("nn.frozen_copy", "freezes the original", frozen_original),
    ("nn.to_torchscript", "forgets the text, or is there for all", torchscript_without_text),
    (
        "nn.from_torchscript",
        "does not run it, or is there for all",
        lambda b, _: lambda content: lambda x: x,
    ),
)
