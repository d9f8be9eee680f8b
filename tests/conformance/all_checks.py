"""Every check: importing the files registers theirs."""

from tests.conformance import (  # noqa: F401
    checks_amp,
    checks_autograd,
    checks_boundary,
    checks_device,
    checks_dist,
    checks_elementwise,
    checks_fused,
    checks_images,
    checks_layers,
    checks_modules,
    checks_multi_tensor,
    checks_network,
    checks_optim,
    checks_shapes,
    checks_tensor,
)
from tests.conformance.judging import CHECKS, checks_of

__all__ = ["CHECKS", "checks_of"]
