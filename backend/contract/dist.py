"""The contract of training: several processes that train together."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from duet.backend.contract.inference import Tensor


class Stage(Protocol):
    """Times a named part of the step: `with stage("forward"): ...`."""

    def __call__(self, name: str) -> AbstractContextManager[Any]: ...


class Dist(Protocol):
    """Several processes that train together; `backend.processes` says which one this is.

    Every rank calls the same functions in the same order. With one process they change nothing.
    """

    def start(self, device: str, timeout_s: float) -> None:
        """Join the other processes; call this before the other functions.

        Args:
            device: of this process's tensors, as `Device.resolve` returns it.
            timeout_s: limit of waiting for another rank, if the framework has such a limit.

        Raises:
            BackendError: the framework cannot exchange tensors of the device.
        """

    def stop(self) -> None:
        """Wait until all ranks have finished their work, and leave them.

        The process then ends by `os._exit`: PyTorch 2.13 aborted in one of 20 ordinary exits of a
        rank.
        """

    def sum_(self, x: Tensor) -> None:
        """Replace x by the sum of all ranks' x, in place; no gradient."""

    def broadcast_(self, x: Tensor) -> None:
        """Replace x by that of rank 0, in place; no gradient."""

    def all_gather(self, array: np.ndarray) -> list[np.ndarray]:
        """Return the array (N, ...) of each rank, in their order; only N may differ.

        Raises:
            ValueError: a 0-d array, or a dtype other than float32, float64, int64 and uint8.
        """

    def data_parallel(self, module: Any, half_gradients: bool = False) -> Any:
        """Return the module for training on several ranks: same call, same parameters.

        Gradients add up over backward passes. `averaging` says after which pass they become the
        mean over the ranks.

        Args:
            half_gradients: send them as bfloat16, half the bytes.

        Raises:
            ValueError: half_gradients if `Device.supports("half_gradients")` is False.
        """

    def averaging(
        self, module: Any, last: bool, stage: Stage | None = None
    ) -> AbstractContextManager[Any]:
        """Return a context around a forward and backward pass of what `data_parallel` returned.

        At the end of the last accumulated pass, the gradients are averaged over the ranks. PyTorch
        exchanges them during the backward pass, OneFlow after it. Both count as the stage
        "backward".
        """
