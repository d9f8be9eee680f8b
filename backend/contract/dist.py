"""The contract of training: several processes that train together."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from backend.contract.inference import Tensor


class Stage(Protocol):
    """Times a named part of the step: `with stage("forward"): ...`."""

    def __call__(self, name: str) -> AbstractContextManager[Any]: ...


class Dist(Protocol):
    """Several processes that train together; `backend.processes` says which one this is.

    Every rank calls the same functions in the same order. With one process they change nothing.
    """

    def start(self, device: str, timeout_s: float) -> None:
        """Join the other processes; comes before the other functions.

        Args:
            device: of this process's tensors, as `Device.resolve` returns it.
            timeout_s: after which waiting for another rank is an error, where the framework has
                such a limit.

        Raises:
            BackendError: a device whose tensors the framework cannot exchange.
        """

    def stop(self) -> None:
        """Wait until all have done what they began, and leave them.

        What follows is the end of the process, by `os._exit`: PyTorch 2.13 was seen to abort in
        one of 20 ordinary exits of a rank. Rank 0 must end last, which `watchdog.leave` sees to:
        OneFlow's other ranks abort when it goes before they have heard that all are here.
        """

    def sum_(self, x: Tensor) -> None:
        """x = the sum of the ranks' x, in place; no gradient."""

    def broadcast_(self, x: Tensor) -> None:
        """x = that of rank 0, in place; no gradient."""

    def all_gather(self, array: np.ndarray) -> list[np.ndarray]:
        """The array (N, ...) of each rank, in their order; only N may differ.

        Raises:
            ValueError: a 0-d array, or none of float32, float64, int64 and uint8.
        """

    def data_parallel(self, module: Any, half_gradients: bool = False) -> Any:
        """The module for training on several ranks: called as the module, with its parameters.

        Gradients add up from backward pass to backward pass; `averaging` says after which one
        they become the mean over the ranks.

        Args:
            half_gradients: send them as bfloat16, half the bytes.

        Raises:
            ValueError: half_gradients where `Device.supports("half_gradients")` is False.
        """

    def averaging(
        self, module: Any, last: bool, stage: Stage | None = None
    ) -> AbstractContextManager[Any]:
        """A context around a forward and backward pass of what `data_parallel` returned.

        When it is left after the last of the accumulated passes, the gradients are averaged.
        PyTorch exchanges them while the backward pass goes on, OneFlow after it, which counts in
        the stage "backward" too.
        """
