"""Collectives of emulated GPUs: late as all their work, and as strict as NCCL.

gloo sends the memory of the GPUs, in a group of its own: the ranks may get to their collectives on
the host and on the GPUs in different orders.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
from torch import distributed
from torch.distributed import Backend, ProcessGroup, ProcessGroupGloo, ReduceOp, Work
from torch.utils._pytree import tree_map_only

from tests.emulated.names import KIND, SHOWN_AS, gpu_of, inside
from tests.emulated.streams import GPU, Event, Stream

ENGINE = "like_nccl"
EMULATED = ("allreduce_", "broadcast_", "allgather_", "_allgather_base_")
start_processes = distributed.init_process_group
CPU = torch.device("cpu")


class Link:
    """What joins the GPUs of the ranks."""

    group: ProcessGroup
    stream: Stream  # as NCCL's own: collectives run beside the current stream
    works: list[Work]  # PyTorch keeps only their part in C++


def init_process_group(engines: str, device_id: torch.device | None = None, **options: Any) -> None:
    """Do as `torch.distributed.init_process_group`, with a stand-in for NCCL."""
    if f"{SHOWN_AS}:nccl" in engines:
        assert device_id is not None
        Link.stream, Link.works = Stream(device_id), []
        Backend.register_backend(ENGINE, make_engine, devices=[inside(0).type])
        engines = engines.replace(f"{SHOWN_AS}:nccl", f"{inside(0).type}:{ENGINE}")
        options["device_id"] = inside(gpu_of(device_id))
    start_processes(engines, **options)
    if "device_id" in options:
        distributed.group.WORLD._set_default_backend(ProcessGroup.BackendType.CUSTOM)


def make_engine(
    store: distributed.Store, rank: int, size: int, timeout: timedelta
) -> distributed.Backend:
    """Return gloo, once in the group of the GPUs."""
    if store.add(f"{SHOWN_AS}:{Link.stream.gpu}", 1) > 1:
        raise RuntimeError("Duplicate GPU detected: two ranks have one")
    gloo = ProcessGroupGloo(store, rank, size, timeout)
    Link.group = ProcessGroup(store, rank, size)
    Link.group._set_default_backend(ProcessGroup.BackendType.GLOO)
    Link.group._register_backend(CPU, ProcessGroup.BackendType.GLOO, gloo)
    return gloo


def begin(function: Any, args: Any) -> Any:
    """Run a collective of the host, or queue one of the GPUs."""
    from tests.emulated.tensors import OnGpu, flat

    tensors = flat(args)
    if not any(isinstance(x, OnGpu) for x in tensors):
        if hasattr(Link, "stream"):  # another rank may wait in one that is only queued here
            Link.stream.run()
        return function(*args)
    check(function, tensors)
    private = [
        Link.group.boxed() if argument.name == "process_group" else value
        for argument, value in zip(function._schema.arguments, args, strict=False)
    ]
    private = tree_map_only(OnGpu, lambda x: x.memory, private)
    if function.overloadpacket.__name__ == "_allgather_base_":
        private[0] = private[0].view(-1)  # gloo divides the first axis, NCCL the memory
    Link.stream.wait_stream(GPU.stream(Link.stream.gpu))
    Link.stream.put(lambda: Work.unbox(function(*private)[1]).wait())
    Link.works.append(Queued(args[0]))
    return args[0], Work.boxed(Link.works[-1])


def check(function, tensors):
    pass


class Queued(Work):
    """A collective that is queued; the current stream waits for it, the host does not."""

    def __init__(self, results: Any) -> None:
        super().__init__()
        self.results, self.end = results, Event()
        self.end.record(Link.stream)

    def wait(self, timeout: timedelta | None = None) -> bool:
        GPU.stream(Link.stream.gpu).wait_event(self.end)
        return True

    def get_future(self) -> torch.futures.Future:
        self.wait()
        future: torch.futures.Future = torch.futures.Future()
        future.set_result(self.results)
        return future
