"""The OneFlow backend: one file per class in `backend/contract/`.

Importing it imports oneflow 0.9.0 and sets up the environment and signal handling.
"""

import os
import random
import signal
import socket
import threading
import time

from duet.backend.processes import this_process

LISTENING_SECONDS = 60.0


def _wait_until_rank_0_listens() -> None:
    """Wait for rank 0: if it is not listening yet, oneflow retries only after 10 s."""
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    deadline = time.monotonic() + LISTENING_SECONDS
    while time.monotonic() < deadline:
        try:
            return socket.create_connection(address, LISTENING_SECONDS).close()
        except OSError:
            time.sleep(0.05)


# Queue and compute in one thread instead of two: half the CPU use at the same speed.
os.environ.setdefault("ONEFLOW_VM_COMPUTE_ON_WORKER_THREAD", "0")
# Hide C++ warnings, such as one about a missing CUDA driver.
os.environ.setdefault("GLOG_minloglevel", "2")

if this_process().rank > 0 and {"MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
    _wait_until_rank_0_listens()

_interrupt_handler, _random_state = signal.getsignal(signal.SIGINT), random.getstate()

import oneflow  # noqa: E402

random.setstate(_random_state)  # OneFlow draws a port
# OneFlow's handler ends the process on Ctrl-C without running any `finally`.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, _interrupt_handler)

_own_division = oneflow.Tensor.__truediv__


def _divide(x: oneflow.Tensor, y: oneflow.Tensor | float) -> oneflow.Tensor:
    """Return x / y; OneFlow's backward pass aborts the process if the quotient is empty."""
    if isinstance(y, oneflow.Tensor) and y.requires_grad and 0 in (x.numel(), y.numel()):
        return x * y**-1.0
    return _own_division(x, y)


oneflow.Tensor.__truediv__ = _divide
