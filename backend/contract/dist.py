"""The training contract: several processes that train together."""

from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np

from duet.backend.contract.inference import NN, M, Tensor


class Stage(Protocol):
    """Times a named part of the step: `with stage("forward"): ...`."""

    def __call__(self, name: str) -> AbstractContextManager[object]: ...


class Dist(Protocol):
    """Several processes that train together; `backend.processes` identifies this one.

    Every rank calls the same functions in the same order. With one process they change nothing.
    """

    def start(self, device: str, timeout_s: float) -> None:
        """Join the other processes; call this before the other functions.

        Args:
            device: where this process's tensors live, as returned by `Device.resolve`.
            timeout_s: how long to wait for another rank, if the framework has such a limit.

        Raises:
            BackendError: the framework cannot exchange tensors of the device.
        """

    def stop(self) -> None:
        """Wait until all ranks have finished their work, then leave the group.

        The process then ends with `os._exit`: PyTorch 2.13 aborted in one of 20 ordinary exits.
        """

    def sum_(self, x: Tensor) -> None:
        """Replace x with its sum over all ranks, in place; no gradient."""

    def broadcast_(self, x: Tensor) -> None:
        """Replace x with rank 0's x, in place; no gradient."""

    def all_gather(self, array: np.ndarray) -> list[np.ndarray]:
        """Return every rank's array (N, ...), in rank order; only N may differ.

        Raises:
            ValueError: a 0-d array, or a dtype other than float32, float64, int64 and uint8.
        """

    def data_parallel(self, module: M) -> M:
        """Return the module for training on several ranks: same call, same parameters.

        Gradients accumulate over backward passes; `averaging` marks the pass after which they are
        averaged over the ranks.
        """

    def averaging(
        self, module: NN.Module, last: bool, stage: Stage | None = None
    ) -> AbstractContextManager[object]:
        """Return a context for one forward and backward pass of a `data_parallel` module.

        After the last accumulated pass the gradients are averaged over the ranks. PyTorch
        exchanges them during the backward pass, OneFlow after it; both count as "backward".
        """
