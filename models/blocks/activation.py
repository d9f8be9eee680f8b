"""The `act:` of a model YAML -> the function after each BatchNorm; names are looked up, never run.

Sources: SiLU: Elfwing et al. 2017, arXiv:1702.03118; Hardswish: Howard et al. 2019,
arXiv:1905.02244; Mish: Misra 2019, arXiv:1908.08681.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from backend import ops
from backend.contract import Tensor
from utils.errors import UserError, brief

Activation = Callable[[Tensor], Tensor]

NAMED = re.compile(r"(?:nn\.)?(\w{1,20})(?:\(((?:negative_slope=)?[\d.e-]{0,12})\))?")
DEFAULT_SLOPE = 0.01  # of nn.LeakyReLU()


@cache  # equal for equal slopes, as model specs are compared
def leaky_relu(slope: float) -> Activation:
    """Return x where x > 0, else slope · x."""
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


def find_activation(name: Any) -> Activation:
    """Return the function that a name such as nn.LeakyReLU(0.1) stands for.

    Raises:
        UserError: any other; the text lists what is accepted.
    """
    found = NAMED.fullmatch(name) if isinstance(name, str) else None
    kind, argument = found.groups() if found else ("", None)
    if kind in PLAIN and not argument:
        return PLAIN[kind]
    slope = _slope(argument) if kind == "LeakyReLU" else None
    if slope is None:
        accepted = ", ".join(f"nn.{kind}()" for kind in PLAIN)
        raise UserError(
            f"act: {brief(name)}; accepted: {accepted}, nn.LeakyReLU(SLOPE), SLOPE from 0 to 1"
        )
    return leaky_relu(slope)


def _slope(argument: str | None) -> float | None:
    """Return the slope of an argument, which may be left out; None if it is none."""
    try:
        slope = float(argument.removeprefix("negative_slope=")) if argument else DEFAULT_SLOPE
    except ValueError:
        return None
    return slope if 0 <= slope <= 1 else None
