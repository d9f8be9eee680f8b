"""The names that all code imports: `from duet.backend import ops, nn, optim, autograd`, and more.

Each name is a namespace that finds its functions in the backend in use. Importing this package
imports no framework and chooses none: `backend.use(name)` does, before the first look-up. A class
that derives from `nn.Module` looks it up where it is defined.
"""

from typing import TYPE_CHECKING, cast

from duet.backend.select import BackendError, Namespace, use

if TYPE_CHECKING:
    from duet.backend import contract
    from duet.backend.contract import NN as nn
else:
    nn = Namespace("nn")

ops = cast("contract.Ops", Namespace("ops"))
optim = cast("contract.Optim", Namespace("optim"))
fused = cast("contract.Fused", Namespace("fused"))
multi_tensor = cast("contract.MultiTensor", Namespace("multi_tensor"))
autograd = cast("contract.Autograd", Namespace("autograd"))
amp = cast("contract.Amp", Namespace("amp"))
dist = cast("contract.Dist", Namespace("dist"))
device = cast("contract.Device", Namespace("device"))

__all__ = [
    "BackendError",
    "amp",
    "autograd",
    "device",
    "dist",
    "fused",
    "multi_tensor",
    "nn",
    "ops",
    "optim",
    "use",
]
