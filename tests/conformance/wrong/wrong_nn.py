"""Mistakes in `nn`, `fused` and `multi_tensor`."""

import copy
import math
from typing import Any

import numpy as np

from tests.conformance.checks_fused import PLAIN
from tests.conformance.judging import (
    WRONG,
    Backend,
    Build,
    register_wrong,
    returning,
    with_arguments,
)
from tests.conformance.wrong import wrong_ops, wrong_training  # noqa: F401


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


register_wrong(
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


register_wrong(
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


def complete_iou(mistake: str) -> Build:
    """Make the plain formula with one mistake."""

    def build(b: Backend, right: Any) -> Any:
        ops = b.ops

        def axis(pred: Any, target: Any, index: int) -> tuple[Any, Any]:
            """Return overlap and hull along an axis."""
            low = pred[:, index] - pred[:, index + 2] / 2
            high = pred[:, index] + pred[:, index + 2] / 2
            other_low = target[:, index] - target[:, index + 2] / 2
            other_high = target[:, index] + target[:, index + 2] / 2
            if mistake == "gives a tie to the target":
                other_high = ops.where(high >= other_high, other_high - 1e-13, other_high)
            overlap = ops.minimum(high, other_high) - ops.maximum(low, other_low)
            return overlap, ops.maximum(high, other_high) - ops.minimum(low, other_low)

        def wrong(pred: Any, target: Any, eps: float = 1e-7) -> Any:
            if mistake != "repeats a single row" or pred.shape[0] != 1:
                right(pred, target)
            if mistake == "fails for no boxes" and pred.shape[0] == 0:
                raise AssertionError("division by zero")
            eps = {"knows one eps": 1e-7, "divides by zero": 0.0}.get(mistake, eps)
            if mistake != "moves the target":
                target = target.detach()
            overlap, hull = zip(*(axis(pred, target, index) for index in (0, 1)), strict=True)
            if mistake != "multiplies two gaps":
                overlap = tuple(ops.clamp(x, low=0.0) for x in overlap)
            intersection = overlap[0] * overlap[1]
            area = pred[:, 2] * pred[:, 3] + target[:, 2] * target[:, 3]
            iou = intersection / (area - intersection + eps)
            if mistake == "is IoU":
                return iou
            offset = pred - target
            distance = offset[:, 0] ** 2 + offset[:, 1] ** 2
            distance = distance / (hull[0] ** 2 + hull[1] ** 2 + eps)
            angles = [ops.atan(x[:, 2] / (x[:, 3] + eps)) for x in (target, pred)]
            aspect = (angles[0] - angles[1]) ** 2 * (4 / math.pi**2)
            alpha = aspect / (aspect + ops.clamp(1.0 - iou, low=0.0) + eps)
            return iou - distance - aspect * (alpha if mistake == "moves alpha" else alpha.detach())

        return wrong

    return build


def batch_norm_silu(mistake: str) -> Build:
    """Make both layers one after the other, with one mistake."""

    def build(b: Backend, right: Any) -> Any:
        def wrong(norm: Any, x: Any) -> Any:
            if mistake == "forgets SiLU":
                return norm(x)
            if mistake == "always learns":
                norm.train()
            if mistake == "learns from one value" and x.shape[0] * x.shape[2] * x.shape[3] == 1:
                return x
            if mistake == "keeps its statistics":
                state = b.nn.state_arrays(norm)
                y = b.ops.silu(norm(x))
                b.nn.load_state_arrays(norm, state)
                return y
            y = norm(x.detach() if mistake == "has no gradient by its input" else x)
            return b.ops.silu(y.detach() if mistake == "has no gradient" else y)

        return wrong

    return build


def finish_images(mistake: str) -> Build:
    def build(b: Backend, right: Any) -> Any:
        columns = {
            "never flips": (slice(0, 2), False),
            "keeps all colours": (2, False),
            "changes all colours": (2, True),
        }

        def wrong(
            images: Any, tables: Any, changes: Any, dtype: str, channels_last: bool = False
        ) -> Any:
            if not b.device.supports("finishing"):
                return images
            arrays = [b.ops.to_numpy(x).copy() for x in (images, tables, changes)]
            if mistake in columns:
                column, value = columns[mistake]
                arrays[2][..., column] = value
            if mistake == "mixes tables up":
                arrays[1] = arrays[1][:, [0, 2, 1]]
            inputs = map(b.ops.tensor, arrays)
            if mistake == "takes any shapes":
                try:
                    return right(*inputs, dtype, channels_last)
                except ValueError:
                    return images
            return right(*inputs, dtype, channels_last)

        return wrong

    return build


MISTAKES = {
    complete_iou: (
        "repeats a single row",
        "fails for no boxes",
        "knows one eps",
        "divides by zero",
        "moves the target",
        "multiplies two gaps",
        "is IoU",
        "moves alpha",
        "gives a tie to the target",
    ),
    batch_norm_silu: (
        "forgets SiLU",
        "always learns",
        "learns from one value",
        "keeps its statistics",
        "has no gradient by its input",
        "has no gradient",
    ),
    finish_images: (
        "never flips",
        "keeps all colours",
        "changes all colours",
        "mixes tables up",
        "takes any shapes",
    ),
}
for make, mistakes in MISTAKES.items():
    register_wrong(*((f"fused.{make.__name__}", mistake, make(mistake)) for mistake in mistakes))
register_wrong(("fused.finish_problem", "knows of none", returning(None)))


def average_of_what_was_there_first(b: Backend, right: Any) -> Any:
    """Use the first tensors again in a later call with equally many."""
    kept: dict[int, Any] = {}

    def ema_update_(averages: Any, values: Any, decay: float, lost: Any = None) -> None:
        if len(averages) != len(values):
            raise ValueError(f"{len(values)} values")
        first = kept.setdefault(len(averages), (averages, values))
        b.optim.ema_update_(*first, decay, lost)

    return ema_update_


register_wrong(
    *(
        (name, wrong.mistake, wrong.build)
        for name, plain in PLAIN.items()
        for wrong in WRONG
        if wrong.name == plain
    ),
    ("multi_tensor.ema_update_", "keeps to the first tensors", average_of_what_was_there_first),
    ("multi_tensor.describe", "does not say which", returning("fused, CPU")),
)
