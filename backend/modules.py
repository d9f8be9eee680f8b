"""What both frameworks that train do alike with modules; imports no framework.

Their modules have the same methods. `nn` and `autograd` of each backend take these functions;
`contract.NN` and `contract.Autograd` say what each one promises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from backend import checks
from backend.contract import Stage


def named_parameters(module: Any) -> Iterator[tuple[str, Any]]:
    found: Iterator[tuple[str, Any]] = module.named_parameters()
    return found


def state_tensors(module: Any) -> dict[str, Any]:
    return {name: value.detach() for name, value in module.state_dict().items()}


def float_tensors(module: Any) -> Callable[[], Sequence[Any]]:
    found: list[tuple[dict[str, Any], str]] = [
        (kept, name)
        for part in module.modules()
        for kept in (part._parameters, part._buffers)
        for name, x in kept.items()
        if x is not None and x.is_floating_point() and name not in part._non_persistent_buffers_set
    ]
    return lambda: tuple(kept[name] for kept, name in found)


def load_state_arrays(module: Any, arrays: Mapping[str, np.ndarray], ops: Any) -> None:
    """Load arrays by `contract.Ops` of the framework."""
    state = state_tensors(module)
    checks.module_state({name: value.shape for name, value in state.items()}, arrays)
    for name, value in state.items():
        value.copy_(ops.tensor(arrays[name].astype(ops.dtype_of(value))))


def set_trainable(parameters: Iterable[Any], trainable: bool) -> None:
    for parameter in parameters:
        parameter.requires_grad = trainable
        if not trainable:
            parameter.grad = None


@contextmanager
def last_batch_statistics(module: Any) -> Iterator[None]:
    layers = list(batch_norms(module))
    before = [(layer.training, layer.momentum) for layer in layers]
    for layer in layers:
        layer.training, layer.momentum = True, 1.0
    try:
        yield
    finally:
        for layer, (training, momentum) in zip(layers, before, strict=True):
            layer.training, layer.momentum = training, momentum


def synchronize_batch_norm(module: Any) -> None:
    for layer in batch_norms(module):
        layer.over_ranks = True


def batch_norms(module: Any) -> Iterator[Any]:
    """Yield the BatchNorm layers of a module: those that can take statistics of all ranks."""
    return (part for part in module.modules() if hasattr(part, "over_ranks"))


def value_and_backward(
    model: Callable[[Any], Any],
    loss: Callable[[Any, Any], Any],
    images: Any,
    targets: Any,
    stage: Stage,
) -> Any:
    with stage("forward"):
        predictions = model(images)
    with stage("loss"):
        terms = loss(predictions, targets)
    with stage("backward"):
        terms.total.backward()
    return terms
