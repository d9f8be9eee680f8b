"""The one tensor API: what every backend promises, name by name.

Everything above `backend/` uses only these signatures. Each class is one module of
a backend (`class Ops` is `backend/NAME/ops.py`), each method one function or class of that module,
with the same parameter names. No framework is imported here.

There are two contracts. `inference.py` holds everything needed to run a model in evaluation mode;
an inference-only backend (see `select.Framework.trains`) implements nothing else. `training.py`
extends the same modules and adds more.

`python -m tests.conformance.completeness NAME` lists what backend NAME lacks; `tests/conformance`
checks the values that each function computes against NumPy.

Conventions
    Tensors are the framework's own; there is no wrapper. Only the methods of `Tensor` are
    promised. Arithmetic is promised between float tensors of one dtype, and between a float
    tensor and a Python number. Integers are compared and used as indices; they are computed in
    NumPy before they become tensors.
    dtypes are named by strings: "float32", "float64", "int64", "uint8", "bool".
    Devices are named by strings: "cpu", "cuda:0".
    Functions marked (gradient) are differentiable in their float inputs under a backend that
    trains.
    Where the framework would fail late, or end the process, a ValueError is raised instead.
"""

from duet.backend.contract.dist import Dist, Stage
from duet.backend.contract.fused import Fused
from duet.backend.contract.inference import CAPABILITIES, Tensor
from duet.backend.contract.optim import MultiTensor, Optim, Optimizer
from duet.backend.contract.training import NN, Amp, Autograd, Device, Ops

__all__ = [
    "CAPABILITIES",
    "NN",
    "Amp",
    "Autograd",
    "Device",
    "Dist",
    "Fused",
    "MultiTensor",
    "Ops",
    "Optim",
    "Optimizer",
    "Stage",
    "Tensor",
]
