"""Parse the name of an activation in a model YAML, without evaluating it."""

import re
from typing import NamedTuple

_WRITTEN = re.compile(r"(?:nn\.)?([A-Za-z]\w{0,19})(?:\((?:negative_slope=)?([\d.e-]{0,12})\))?")
LEAKY = "LeakyReLU"
DEFAULT_SLOPE = 0.01  # default of nn.LeakyReLU()


class NamedActivation(NamedTuple):
    """The class of an activation and, for LeakyReLU, the negative slope."""

    kind: str
    slope: float | None = None

    def __str__(self) -> str:
        return self.kind if self.slope is None else f"{self.kind}({self.slope:g})"


DEFAULT_ACTIVATION = NamedActivation("SiLU")  # if a model YAML names none


def parse_activation(written: object) -> NamedActivation | None:
    """Parse a name such as nn.SiLU() or nn.LeakyReLU(0.1); None if it is not valid."""
    found = _WRITTEN.fullmatch(written) if isinstance(written, str) else None
    if found is None:
        return None
    kind, argument = found.groups()
    if kind != LEAKY:
        return None if argument else NamedActivation(kind)
    try:
        slope = float(argument or DEFAULT_SLOPE)
    except ValueError:
        return None
    return NamedActivation(kind, slope) if 0 <= slope <= 1 else None
