"""Mistakes in `dist` that one process can show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tests.conformance.judging import Backend
from tests.conformance.wrong.registry import register


def start_that_asks_for_others(b: Backend) -> Any:
    def start(device: str, timeout_s: float) -> None:
        raise AssertionError("no other process came")

    return start


def stop_that_tells(b: Backend) -> Any:
    return lambda: True


def sum_that_counts_twice(b: Backend) -> Any:
    def sum_(x: Any) -> None:
        doubled = x.detach()
        doubled += x.detach()
        b.dist.sum_(doubled)

    return sum_


def broadcast_of_zeros(b: Backend) -> Any:
    def broadcast_(x: Any) -> None:
        x.detach().zero_()

    return broadcast_


def gather_that_aliases(b: Backend) -> Any:
    def all_gather(array: np.ndarray) -> list[np.ndarray]:
        found = b.dist.all_gather(array)
        return [array] if len(found) == 1 else found

    return all_gather


def gather_that_takes_anything(b: Backend) -> Any:
    def all_gather(array: np.ndarray) -> list[np.ndarray]:
        if array.ndim == 0 or array.dtype.name not in ("float32", "float64", "int64", "uint8"):
            return [array]
        return b.dist.all_gather(array)

    return all_gather


def data_parallel_of_a_copy(b: Backend) -> Any:
    def data_parallel(module: Any, half_gradients: bool = False) -> Any:
        copy = b.nn.frozen_copy(module)
        b.nn.set_trainable([p for _, p in b.nn.named_parameters(copy)], True)
        with_gradients = b.dist.data_parallel(copy.train(), half_gradients)
        for name, parameter in b.nn.named_parameters(module):
            parameter.grad = b.ops.zeros(dict(b.nn.named_parameters(copy))[name].shape, "float64")
        return with_gradients

    return data_parallel


def averaging_that_forgets(b: Backend) -> Any:
    """Keep only the gradients of the last of the accumulated passes."""

    def averaging(module: Any, last: bool, stage: Any = None) -> Any:
        @contextmanager
        def context() -> Iterator[None]:
            if last:
                for parameter in module.parameters():
                    if parameter.grad is not None:
                        parameter.grad.zero_()
            with b.dist.averaging(module, last, stage):
                yield

        return context()

    return averaging


def synchronization_that_stops_the_statistics(b: Backend) -> Any:
    def synchronize_batch_norm(module: Any) -> None:
        for part in module.modules():
            if isinstance(part, b.nn.BatchNorm2d):
                part.eval()

    return synchronize_batch_norm


register(
    [
        ("dist.start", "needs other processes", start_that_asks_for_others),
        ("dist.stop", "returns something", stop_that_tells),
        ("dist.sum_", "adds the rank's own twice", sum_that_counts_twice),
        ("dist.broadcast_", "sends zeros", broadcast_of_zeros),
        ("dist.all_gather", "returns the very array", gather_that_aliases),
        ("dist.all_gather", "takes any dtype", gather_that_takes_anything),
        ("dist.data_parallel", "trains a copy", data_parallel_of_a_copy),
        ("dist.averaging", "forgets what was accumulated", averaging_that_forgets),
        ("nn.synchronize_batch_norm", "evaluates", synchronization_that_stops_the_statistics),
    ]
)
