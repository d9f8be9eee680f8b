"""The `act:` of a model YAML -> the function after each BatchNorm; names are looked up, never run.

Sources: SiLU: Elfwing et al. 2017, arXiv:1702.03118; Hardswish: Howard et al. 2019,
arXiv:1905.02244; Mish: Misra 2019, arXiv:1908.08681.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from backend import ops
from backend.contract import Tensor
from utils.errors import UserError, brief
from utils.weights.activation import DEFAULT_ACTIVATION, LEAKY, parse_activation

Activation = Callable[[Tensor], Tensor]


@cache  # equal for equal slopes, since specs of models are compared
def leaky_relu(slope: float) -> Activation:
    """Return the function that is x where x > 0, else slope · x."""
    return partial(ops.leaky_relu, slope=slope)


relu = leaky_relu(0.0)


def hardswish(x: Tensor) -> Tensor:
    """Return x · min(max(x + 3, 0), 6) / 6."""
    return x * (relu(x + 3.0) - relu(x - 3.0)) / 6.0


def mish(x: Tensor) -> Tensor:
    """Return x · tanh(log(1 + e^x)), by e^x = 1 / s - 1 with s = sigmoid(-x), which is finite."""
    square = ops.sigmoid(-x) ** 2
    return x * (1.0 - square) / (1.0 + square)


PLAIN: dict[str, Activation] = {
    "SiLU": ops.silu,
    "ReLU": relu,
    "Hardswish": hardswish,
    "Mish": mish,
}


def find_activation(written: Any) -> Activation:
    """Return the function that a name such as nn.LeakyReLU(0.1) stands for; None for the usual one.

    Raises:
        UserError: any other; the text lists what is accepted.
    """
    found = DEFAULT_ACTIVATION if written is None else parse_activation(written)
    if found is not None and found.slope is not None:
        return leaky_relu(found.slope)
    if found is None or found.kind not in PLAIN:
        accepted = ", ".join(f"nn.{kind}()" for kind in PLAIN)
        raise UserError(
            f"act: {brief(written)}; accepted: {accepted}, nn.{LEAKY}(SLOPE) with a SLOPE from 0 "
            "to 1"
        )
    return PLAIN[found.kind]
