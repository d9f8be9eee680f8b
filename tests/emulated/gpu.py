"""Two CUDA GPUs that are emulated on the CPU, as late and as strict as real ones may be.

    .venv/torch/bin/python -m tests.emulated.program train.py --device 0,1 ...

Nothing is there before somebody waits for it: until then it is NaN. Copies from page-locked memory
read it that late, and freed memory is used again. So a missing wait, a host array that is filled
again too early and tensors of two devices in one operation give wrong results, or end it, and each
wait of the host is counted. They have no compiler. Each process has GPUs of its own,
of which a rank uses one.
"""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from tests.emulated.streams import (
    GPU,
    NUM_GPUS,
    SHOWN_AS,
    Event,
    Gpu,
    InDevice,
    current_device,
    gpu_of,
    init_process_group,
    inside,
    set_device,
)
from tests.emulated.tensors import Dispatch, OnGpu, flat, mapped

CAPABILITY = (8, 0)
MEMORY = 2**34  # bytes


class Autocast:
    """Mixed precision, of the operations that a detector uses.

    Source: the lists of CUDA operations in PyTorch's documentation of `torch.amp`.
    """

    IN_HALF = (
        functional.conv2d, functional.conv_transpose2d, functional.linear, torch.matmul,
        torch.Tensor.matmul, torch.Tensor.__matmul__, torch.bmm,
    )  # fmt: skip
    IN_FLOAT32 = (
        torch.exp, torch.log, torch.pow, torch.sum, torch.prod, torch.cumsum, torch.softmax,
        torch.Tensor.exp, torch.Tensor.log, torch.Tensor.pow, torch.Tensor.__pow__,
        torch.Tensor.__rtruediv__, torch.Tensor.sum, torch.Tensor.prod, torch.Tensor.cumsum,
        functional.softmax, functional.log_softmax, functional.cross_entropy,
        functional.binary_cross_entropy_with_logits, functional.interpolate,
    )  # fmt: skip
    IN_THE_WIDEST = (torch.cat, torch.stack)
    # Further ones of these lists, by name.
    REFUSED = frozenset({
        "addcdiv", "addcmul", "addmm", "atan2", "baddbmm", "conv1d", "conv3d", "cumprod", "dot",
        "einsum", "grid_sample", "group_norm", "index_put", "kl_div", "l1_loss", "layer_norm",
        "log1p", "log2", "mm", "mse_loss", "mv", "nll_loss", "norm", "normalize", "prelu",
        "reciprocal", "rsqrt", "scatter_add", "smooth_l1_loss", "softmin", "softplus", "tensordot",
    })  # fmt: skip
    dtype: torch.dtype | None = None  # of the block that runs

    def __init__(
        self, device_type: str, dtype: torch.dtype | None = None, enabled: bool = True
    ) -> None:
        if enabled and dtype is None:
            raise RuntimeError("autocast without a dtype is not emulated")
        self._dtypes = [dtype if enabled and device_type == SHOWN_AS else None]

    def __enter__(self) -> None:
        self._dtypes.append(Autocast.dtype)
        Autocast.dtype = self._dtypes[0]

    def __exit__(self, *error: object) -> None:
        Autocast.dtype = self._dtypes.pop()

    @classmethod
    def is_enabled(cls, device_type: str) -> bool:
        return cls.dtype is not None and device_type == SHOWN_AS

    @classmethod
    def cast(cls, function: Any, arguments: Any) -> Any:
        """Return the arguments in the precision in which a function computes."""
        if function in cls.IN_HALF:
            wanted = cls.dtype
        elif function in cls.IN_FLOAT32:
            wanted = torch.float32
        elif function in cls.IN_THE_WIDEST:
            wanted = max((x.dtype for x in flat(arguments)), key=lambda dtype: dtype.itemsize)
        elif function.__name__ in cls.REFUSED and any(
            isinstance(x, OnGpu) for x in flat(arguments)
        ):
            raise RuntimeError(f"{function.__name__} under autocast is not emulated")
        else:
            return arguments
        cast = (cls.dtype, torch.float32)
        return mapped(OnGpu, lambda x: x.to(wanted) if x.dtype in cast else x, arguments)


class Functions(TorchFunctionMode):
    """Shows the devices as cuda:0 and cuda:1, and takes these names for them."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is torch.device:
            return function(*args, **kwargs)
        if function in SHOWN and isinstance(args[0], OnGpu):
            return SHOWN[function](args[0])
        if function is torch.Tensor.is_pinned:
            return not isinstance(args[0], OnGpu) and GPU.has_locked_pages(args[0])
        if function == SET_DATA and isinstance(args[0], OnGpu):
            args[0].hold(args[1].memory, args[1].gpu)
        args = tuple(map(named_here, args))
        kwargs = {name: named_here(value) for name, value in kwargs.items()}
        if Autocast.dtype is not None:
            with self:
                args, kwargs = Autocast.cast(function, (args, kwargs))
        return function(*args, **kwargs)


SET_DATA = torch.Tensor.data.__set__
SHOWN = {
    torch.Tensor.device.__get__: lambda x: torch.device(SHOWN_AS, x.gpu),
    torch.Tensor.is_cuda.__get__: lambda x: SHOWN_AS == "cuda",
    torch.Tensor.data_ptr: lambda x: x.memory.data_ptr(),
    torch.Tensor.untyped_storage: lambda x: x.memory.untyped_storage(),
}


def named_here(value: Any) -> Any:
    """Return the device for its name."""
    is_name = isinstance(value, (str, torch.device)) and str(value).startswith(SHOWN_AS)
    return inside(gpu_of(value)) if is_name else value


def run_thread(run: Any, thread: threading.Thread) -> None:
    """Run a thread to which the device is there too."""
    with Functions(), Dispatch():
        run(thread)


# The five kernels of SyncBatchNorm, which works over the ranks, from their definitions. Maps are
# (B, C, H, W) in any layout, also in half precision; statistics (C,) are float32, or float64 of
# such maps. `invstd` is 1 / sqrt(biased variance + eps): a rank sends no variance but this.

AXES = (0, 2, 3)


def of_channels(values):
    return values.reshape(1, -1, 1, 1)


def in_full(x):
    return x.float() if x.element_size() == 2 else x


def batch_norm_stats(x, eps):
    full = in_full(x)
    return full.mean(AXES), (full.var(AXES, correction=0) + eps).rsqrt()


def batch_norm_gather_stats_with_counts(
    x, means, invstds, running_mean, running_var, momentum, eps, counts
):
    """Join the statistics of N ranks, (N, C), (N, C) and (N,), and update the running ones."""
    counts = counts.reshape(-1, 1)
    total = counts.sum()
    mean = (means * counts).sum(0) / total
    squares = ((invstds**-2 - eps + (means - mean) ** 2) * counts).sum(0)
    running_mean.lerp_(mean, momentum)
    running_var.lerp_(squares / (total - 1), momentum)
    return mean, (squares / total + eps).rsqrt()


def batch_norm_elemt(x, weight, bias, mean, invstd, eps):
    normalized = (in_full(x) - of_channels(mean)) * of_channels(invstd)
    return (normalized * of_channels(weight) + of_channels(bias)).to(x.dtype)


def batch_norm_backward_reduce(by_y, x, mean, invstd, weight, for_x, for_weight, for_bias):
    """Return the sums of by_y and by_y (x - mean), and the gradients of weight and bias."""
    total = in_full(by_y).sum(AXES)
    weighted = (in_full(by_y) * (in_full(x) - of_channels(mean))).sum(AXES)
    return total, weighted, weighted * invstd if for_weight else None, total if for_bias else None


def batch_norm_backward_elemt(by_y, x, mean, invstd, weight, total, weighted, counts):
    """Return the gradient of x. `total` and `weighted` are sums over all ranks."""
    pixels = counts.sum()
    centred = (in_full(x) - of_channels(mean)) * of_channels(invstd**2 * weighted / pixels)
    by_x = (in_full(by_y) - of_channels(total / pixels) - centred) * of_channels(invstd * weight)
    return by_x.to(x.dtype)


KERNELS = (
    batch_norm_stats,
    batch_norm_gather_stats_with_counts,
    batch_norm_elemt,
    batch_norm_backward_reduce,
    batch_norm_backward_elemt,
)


def in_one_piece(kernel: Any) -> Any:
    """Return a function in which autocast sees no operations, as in a kernel of CUDA."""

    def run(*args: Any) -> Any:
        with Autocast(SHOWN_AS, enabled=False):
            return kernel(*args)

    return run


RUNTIME = SimpleNamespace(cudaHostRegister=GPU.register, cudaHostUnregister=GPU.unregister)
CUDA = {
    "cudart": lambda: RUNTIME,
    "Stream": GPU.new_stream,
    "Event": Event,
    "stream": GPU.in_stream,
    "synchronize": GPU.synchronize,
    "current_stream": GPU.stream,
    "is_available": lambda: True,
    "is_current_stream_capturing": lambda: False,
    "device_count": lambda: NUM_GPUS,
    "device": InDevice,
    "current_device": current_device,
    "set_device": set_device,
    "get_device_name": lambda device=None: "an emulated GPU",
    "get_device_capability": lambda device=None: CAPABILITY,
    "get_sync_debug_mode": lambda: GPU.sync_debug_mode,
    "set_sync_debug_mode": GPU.set_sync_debug_mode,
    "empty_cache": lambda: None,
    "reset_peak_memory_stats": lambda device=None: None,
    "max_memory_reserved": lambda device=None: MEMORY,
    "mem_get_info": lambda device=None: (MEMORY, MEMORY),
}
MPS = [
    (torch.backends.mps, "is_available", lambda: True),
    (torch.mps, "synchronize", GPU.synchronize),
    (torch.mps, "driver_allocated_memory", lambda: MEMORY),
]


@contextmanager
def emulated_gpu() -> Iterator[Gpu]:
    """Emulate GPUs in this process, in all its threads."""
    shown = MPS if SHOWN_AS == "mps" else [(torch.cuda, *one) for one in CUDA.items()]
    _setup_privateuseone_for_python_backend("emulated")
    # Registered, it is one kernel as on CUDA; else PyTorch computes it in six operations.
    kernels = torch.library.Library("aten", "IMPL")
    kernels.impl("silu_backward", torch.ops.aten.silu_backward, "PrivateUse1")
    replaced = [
        *shown,
        *((torch, kernel.__name__, in_one_piece(kernel)) for kernel in KERNELS),
        (torch.distributed, "init_process_group", init_process_group),
        (torch.distributed, "is_nccl_available", lambda: True),
        (torch, "autocast", Autocast),
        (torch, "is_autocast_enabled", Autocast.is_enabled),
        (torch.Tensor, "record_stream", lambda x, stream: GPU.record_stream(x.memory, stream)),
        (threading.Thread, "run", lambda thread: run_thread(run, thread)),
    ]
    run = threading.Thread.run
    with ExitStack() as stack:
        for owner, name, stand_in in replaced:
            stack.enter_context(mock.patch.object(owner, name, stand_in))
        stack.enter_context(mock.patch("duet.backend.devices.sees_driver", lambda: True))
        stack.enter_context(Functions())
        stack.enter_context(Dispatch())
        yield GPU
