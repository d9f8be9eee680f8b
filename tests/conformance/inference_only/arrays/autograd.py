"""`contract.inference.Autograd`: nothing here ever has a gradient."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext


def no_grad() -> AbstractContextManager[None]:
    return nullcontext()
