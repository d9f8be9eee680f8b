"""`contract.inference.Autograd`: tensors never have gradients here."""

from contextlib import AbstractContextManager, nullcontext


def no_grad() -> AbstractContextManager[None]:
    return nullcontext()
