"""Mistakes in `nn`."""

from __future__ import annotations

import copy
import inspect
from contextlib import nullcontext
from typing import Any

import numpy as np

from tests.conformance.judging import Backend
from tests.conformance.wrong.registry import register


def conv_without(argument: str, value: Any) -> Any:
    """Make a convolution that ignores an argument."""

    def build(b: Backend) -> Any:
        def conv(*args: Any, **kwargs: Any) -> Any:
            given = inspect.signature(b.nn.Conv2d).bind(*args, **kwargs).arguments
            return b.nn.Conv2d(**{**given, argument: value})

        return conv

    return build


def conv_without_input_gradient(b: Backend) -> Any:
    class Conv2d(b.nn.Conv2d):
        def forward(self, x: Any) -> Any:
            return super().forward(x.detach())

    return Conv2d


def batch_norm(
    b: Backend, biased: bool = False, cancelling: bool = False, frozen_statistics: bool = False
) -> Any:
    """Make a BatchNorm with one of three mistakes in training."""

    class BatchNorm2d(b.nn.BatchNorm2d):
        def forward(self, x: Any) -> Any:
            before = b.ops.to_numpy(self.running_var)
            y = super().forward(x)
            if self.training and biased:
                gathered = b.ops.to_numpy(self.running_var) - (1 - self.momentum) * before
                count = x.shape[0] * x.shape[2] * x.shape[3]
                wanted = (1 - self.momentum) * before + gathered * (count - 1) / count
                self.running_var.copy_(b.ops.tensor(wanted.astype(before.dtype)))
            if self.training and cancelling:
                y = cancelling_normalization(x, self.eps)
            if self.training and frozen_statistics:
                self.running_var.copy_(b.ops.tensor(before))
            return y

    def cancelling_normalization(x: Any, eps: float) -> Any:
        def average(values: Any) -> Any:
            return b.ops.mean(b.ops.mean(b.ops.mean(values, 3, True), 2, True), 0, True)

        mean = average(x)
        return (x - mean) / (average(x * x) - mean * mean + eps) ** 0.5

    return BatchNorm2d


def batch_norm_of_one_value(b: Backend) -> Any:
    class BatchNorm2d(b.nn.BatchNorm2d):
        def forward(self, x: Any) -> Any:
            if self.training and tuple(x.shape[2:]) == (1, 1) and x.shape[0] == 1:
                return x * 0.0 + self.bias.reshape(1, -1, 1, 1)
            return super().forward(x)

    return BatchNorm2d


def reversed_sequential(b: Backend) -> Any:
    class Sequential(b.nn.Sequential):
        def forward(self, x: Any) -> Any:
            for module in reversed(list(self)):
                x = module(x)
            return x

    return Sequential


def zero_padded_pool(b: Backend) -> Any:
    class MaxPool2d(b.nn.MaxPool2d):
        def forward(self, x: Any) -> Any:
            y = super().forward(x)
            return b.ops.clamp(y, 0.0)

    return MaxPool2d


def module_stuck_in_training(b: Backend) -> Any:
    class Module(b.nn.Module):
        def eval(self) -> Any:
            return self

    return Module


def load_what_fits(b: Backend) -> Any:
    def load(module: Any, arrays: dict[str, np.ndarray]) -> None:
        own = b.nn.state_arrays(module)
        fitting = {n: a for n, a in arrays.items() if n in own and own[n].shape == a.shape}
        b.nn.load_state_arrays(module, own | fitting)

    return load


def load_that_thaws(b: Backend) -> Any:
    def load(module: Any, arrays: dict[str, np.ndarray]) -> None:
        b.nn.load_state_arrays(module, arrays)
        for _, parameter in b.nn.named_parameters(module):
            parameter.requires_grad = True

    return load


def place_that_casts_everything(b: Backend) -> Any:
    def place(module: Any, device: str, dtype: str) -> Any:
        b.nn.place(module, device, dtype)
        for part in module.modules():
            if hasattr(part, "num_batches_tracked"):
                part.num_batches_tracked = b.ops.cast(part.num_batches_tracked, dtype)
        return module

    return place


def trained_statistics(module: Any) -> Any:
    module.train()
    return nullcontext()


def frozen_copy_that_thaws(b: Backend) -> Any:
    def frozen_copy(module: Any) -> Any:
        copied = b.nn.frozen_copy(module)
        for _, parameter in b.nn.named_parameters(copied):
            parameter.requires_grad = True
        return copied

    return frozen_copy


def frozen_copy_of_the_original(b: Backend) -> Any:
    def frozen_copy(module: Any) -> Any:
        for _, parameter in b.nn.named_parameters(module):
            parameter.requires_grad = False
        return module.eval()

    return frozen_copy


def pack_that_thaws(b: Backend) -> Any:
    def pack(module: Any) -> None:
        b.nn.pack(module)
        b.nn.set_trainable([x for _, x in b.nn.named_parameters(module)], True)

    return pack


def pack_that_replaces(b: Backend) -> Any:
    """Make parameters that the optimizer does not know."""

    def pack(module: Any) -> None:
        for part in module.modules():
            if getattr(part, "weight", None) is not None:
                part.weight = copy.deepcopy(part.weight)

    return pack


def pack_that_forgets(b: Backend) -> Any:
    """Give tensors new memory without their values."""

    def pack(module: Any) -> None:
        arrays = b.nn.state_arrays(module)
        b.nn.load_state_arrays(module, {name: array * 0 for name, array in arrays.items()})

    return pack


def pack_that_casts(b: Backend) -> Any:
    return lambda module: b.nn.place(module, "cpu", "float64")


def set_trainable_to(chosen: Any) -> Any:
    """Set another choice than the one that was asked for."""

    def build(b: Backend) -> Any:
        return lambda parameters, trainable: b.nn.set_trainable(parameters, chosen(trainable))

    return build


def set_trainable_that_keeps_gradients(b: Backend) -> Any:
    def set_trainable(parameters: Any, trainable: bool) -> None:
        for parameter in parameters:
            parameter.requires_grad = trainable

    return set_trainable


def float_tensors_of_the_start(b: Backend) -> Any:
    def float_tensors(module: Any) -> Any:
        found = [x * 1.0 for x in b.nn.float_tensors(module)()]
        return lambda: found

    return float_tensors


def to_torchscript_alone(b: Backend) -> Any:
    supported = b.device.supports("torchscript")
    return lambda module, x, text: b.nn.to_torchscript(module, x, "") if supported else b""


def from_torchscript_alone(b: Backend) -> Any:
    return lambda content: lambda x: x


register(
    (
        ("nn.Module", "stays in training mode", module_stuck_in_training),
        (
            "nn.ModuleList",
            "reverses its modules",
            lambda b: lambda modules=(): b.nn.ModuleList(list(modules)[::-1]),
        ),
        ("nn.Sequential", "runs backwards", reversed_sequential),
        ("nn.Conv2d", "has no bias", conv_without("bias", False)),
        ("nn.Conv2d", "ignores the padding", conv_without("padding", 0)),
        ("nn.Conv2d", "ignores the stride", conv_without("stride", 1)),
        ("nn.Conv2d", "has no gradient by its input", conv_without_input_gradient),
        ("nn.BatchNorm2d", "gathers the biased variance", lambda b: batch_norm(b, biased=True)),
        ("nn.BatchNorm2d", "cancels digits", lambda b: batch_norm(b, cancelling=True)),
        ("nn.BatchNorm2d", "takes one value a channel", batch_norm_of_one_value),
        ("nn.BatchNorm2d", "gathers no variance", lambda b: batch_norm(b, frozen_statistics=True)),
        (
            "nn.BatchNorm2d",
            "has momentum the other way round",
            lambda b: lambda n, eps=1e-5, momentum=0.1: b.nn.BatchNorm2d(n, eps, 1.0 - momentum),
        ),
        ("nn.MaxPool2d", "pads with zeros", zero_padded_pool),
        (
            "nn.named_parameters",
            "includes buffers",
            lambda b: lambda module: iter(b.nn.state_tensors(module).items()),
        ),
        ("nn.float_tensors", "lists what was there", float_tensors_of_the_start),
        (
            "nn.state_tensors",
            "copies",
            lambda b: lambda module: {n: x * 1 for n, x in b.nn.state_tensors(module).items()},
        ),
        (
            "nn.state_tensors",
            "is not detached",
            lambda b: (
                lambda module: b.nn.state_tensors(module) | dict(b.nn.named_parameters(module))
            ),
        ),
        (
            "nn.state_arrays",
            "aliases the module",
            lambda b: lambda module: {n: x.numpy() for n, x in b.nn.state_tensors(module).items()},
        ),
        (
            "nn.state_arrays",
            "forgets buffers",
            lambda b: (
                lambda module: {n: b.ops.to_numpy(x) for n, x in b.nn.named_parameters(module)}
            ),
        ),
        ("nn.load_state_arrays", "loads what fits", load_what_fits),
        ("nn.load_state_arrays", "makes parameters trainable", load_that_thaws),
        (
            "nn.register_buffer",
            "sets an attribute",
            lambda b: (
                lambda module, name, array: object.__setattr__(module, name, b.ops.tensor(array))
            ),
        ),
        ("nn.place", "casts integers too", place_that_casts_everything),
        ("nn.lay_channels_last", "does nothing", lambda b: lambda module: None),
        ("nn.pack", "thaws", pack_that_thaws),
        ("nn.pack", "replaces parameters", pack_that_replaces),
        ("nn.pack", "forgets values", pack_that_forgets),
        ("nn.pack", "casts to another dtype", pack_that_casts),
        ("nn.set_trainable", "only ever freezes", set_trainable_to(lambda trainable: False)),
        ("nn.set_trainable", "does nothing", lambda b: lambda parameters, trainable: None),
        ("nn.set_trainable", "keeps gradients", set_trainable_that_keeps_gradients),
        ("nn.last_batch_statistics", "trains on", lambda b: trained_statistics),
        ("nn.last_batch_statistics", "uses what was gathered", lambda b: lambda m: nullcontext()),
        ("nn.frozen_copy", "thaws", frozen_copy_that_thaws),
        ("nn.frozen_copy", "freezes the original", frozen_copy_of_the_original),
        ("nn.to_torchscript", "forgets the text, or is there for all", to_torchscript_alone),
        ("nn.from_torchscript", "does not run it, or is there for all", from_torchscript_alone),
    )
)
