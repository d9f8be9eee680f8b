"""`contract.inference.Autograd`: tensors never have gradients here."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext


def no_grad() -> AbstractContextManager[None]:
    return nullcontext()
