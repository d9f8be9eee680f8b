"""Collectives of emulated GPUs: late as all their work, and as strict as NCCL.

gloo sends the memory of the GPUs, in a group of its own: the ranks may get to their collectives on
the host and on the GPUs in different orders.

Of SyncBatchNorm, which works over the ranks, the five kernels of CUDA are here from their
definitions. Maps are (B, C, H, W) in any layout, also in half precision; statistics (C,) are
float32, or float64 of such maps. `invstd` is 1 / sqrt(biased variance + eps): a rank sends no
variance but this.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import distributed
from torch.distributed import Backend, ProcessGroup, ProcessGroupGloo, Work
from torch.utils._pytree import tree_leaves, tree_map_only

from tests.emulated.streams import GPU, SHOWN_AS, Event, Stream, gpu_of, inside

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


ENGINE = "like_nccl"
EMULATED = ("allreduce_", "broadcast_", "allgather_", "_allgather_base_")
LAST = torch.channels_last
start_processes = distributed.init_process_group


class Link:
    """What joins the GPUs of the ranks."""

    group: ProcessGroup
    stream: Stream | None = None  # NCCL's own: collectives run beside the current stream
    works: list[Work] = []  # PyTorch keeps only their part in C++


def init_process_group(engines: str, device_id: torch.device | None = None, **options: Any) -> None:
    """Do as `torch.distributed.init_process_group`, with a stand-in for NCCL."""
    kind = inside(0).type
    if device_id is not None:
        Link.stream = GPU.new_stream(device_id)
        Backend.register_backend(ENGINE, make_engine, devices=[kind])
        options["device_id"] = inside(gpu_of(device_id))
    start_processes(engines.replace(f"{SHOWN_AS}:nccl", f"{kind}:{ENGINE}"), **options)
    if device_id is not None:
        distributed.group.WORLD._set_default_backend(ProcessGroup.BackendType.CUSTOM)


def make_engine(store: distributed.Store, rank: int, size: int, timeout: timedelta) -> Any:
    """Return gloo, after making the group of the GPUs with it."""
    if store.add(f"{SHOWN_AS}:{Link.stream.gpu}", 1) > 1:
        raise RuntimeError(f"Duplicate GPU detected: {SHOWN_AS}:{Link.stream.gpu}")
    gloo = ProcessGroupGloo(store, rank, size, timeout)
    Link.group = ProcessGroup(store, rank, size)
    kind = ProcessGroup.BackendType.GLOO
    Link.group._set_default_backend(kind)
    Link.group._register_backend(torch.device("cpu"), kind, gloo)
    return gloo


def begin(function: Any, args: Sequence[Any]) -> Any:
    """Run a collective of the host, or queue one of the GPUs."""
    tensors = [x for x in tree_leaves(args) if isinstance(x, torch.Tensor)]
    if not any(hasattr(x, "gpu") for x in tensors):
        if Link.stream is not None:
            Link.stream.run()  # another rank may wait in a collective that is only queued here
        return function(*args)
    check(function, tensors)
    Link.stream.wait_stream(GPU.stream(Link.stream.gpu))
    sent = on_host(function, args)
    Link.stream.put(lambda: Work.unbox(function(*sent)[1]).wait())
    Link.works.append(Queued(args[0]))
    return args[0], Work.boxed(Link.works[-1])


def check(function: Any, tensors: Sequence[torch.Tensor]) -> None:
    """Raise RuntimeError where NCCL does, or for a collective that is not emulated."""
    if function.overloadpacket.__name__ not in EMULATED:
        raise RuntimeError(f"{function}: NCCL lacks it, or it is not emulated")
    found = {getattr(x, "gpu", None) for x in tensors}
    if found != {Link.stream.gpu}:
        raise RuntimeError(f"{function}: tensors of {found}, this rank is {Link.stream.gpu}")
    if not all(x.is_contiguous() or x.is_contiguous(memory_format=LAST) for x in tensors):
        raise RuntimeError(f"{function}: Tensors must be contiguous")


def on_host(function: Any, args: Sequence[Any]) -> list[Any]:
    """Return the arguments by which gloo does a collective on the memory."""
    given = zip(function._schema.arguments, args, strict=False)
    sent = [Link.group.boxed() if slot.name == "process_group" else x for slot, x in given]
    return tree_map_only(torch.Tensor, lambda x: x.memory, sent)


class Queued(Work):
    """A collective that is queued; the current stream waits for it, the host does not."""

    def __init__(self, results: Any) -> None:
        super().__init__()
        self._results, self._end = results, Event()
        self._end.record(Link.stream)

    def wait(self, timeout: timedelta | None = None) -> bool:
        GPU.stream(Link.stream.gpu).wait_event(self._end)
        return True

    def get_future(self) -> torch.futures.Future:
        """Return what is done at once: PyTorch's lets the streams of who waits for it wait."""
        self.wait()
        future: torch.futures.Future = torch.futures.Future()
        future.set_result(self._results)
        return future
