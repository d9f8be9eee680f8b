"""The errors by which a backend says that memory ran out."""

from typing import NoReturn

from duet import backend
from duet.backend import ops


def run_out() -> NoReturn:
    """Raise the backend's own error.

    PyTorch is asked for more than an address can name. OneFlow 0.9 would end the process: its
    message stands in for it, as it printed it then.
    """
    if backend.use() == "torch":
        ops.zeros((1 << 48,), "float64")
    raise RuntimeError("\x1b[1m\x1b[38;2;255;000;000mError\x1b[0m: allocate failed")
