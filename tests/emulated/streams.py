"""Names, streams, events, memory and collectives of emulated GPUs, late as real ones may be.

What is queued runs when the host waits for it, or when another stream does. To the program the
GPUs are cuda:0 and cuda:1, to PyTorch another kind of device. EMULATED_KIND=mps: a GPU of Apple,
without float64, page-locked memory, streams and CUDA.

Collectives are as late as all work, and as strict as NCCL. gloo sends the memory of the GPUs, in a
group of its own: the ranks may get to their collectives on the host and on the GPUs in different
orders.
"""

from __future__ import annotations

import itertools
import os
import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
from torch import distributed
from torch.distributed import Backend, ProcessGroup, ProcessGroupGloo, Work
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

NUM_GPUS = 2
KIND, SHOWN_AS = "privateuseone", os.environ.get("EMULATED_KIND", "cuda")
# PyTorch does backward passes on the first device of that kind alone: it is the one that belongs to
# this process, cuda:LOCAL_RANK.
OWN = int(os.environ.get("LOCAL_RANK", "0")) % NUM_GPUS
_current = 0


def inside(gpu: int) -> torch.device:
    """Return what PyTorch calls a GPU in this process."""
    return torch.device(KIND, (gpu - OWN) % NUM_GPUS)


def is_inside(device: Any) -> bool:
    """Return whether a device is a GPU, by the name that PyTorch has."""
    return torch.device(device).type == inside(0).type


def gpu_of(device: Any) -> int:
    """Return which GPU a device is, by either name; without a number the current one."""
    if isinstance(device, int):
        return device
    device = torch.device(device or SHOWN_AS)
    if device.index is None:
        return _current
    return device.index if device.type == SHOWN_AS else (device.index + OWN) % NUM_GPUS


def current_device() -> int:
    return _current


def set_device(device: Any) -> None:
    """Do as `torch.cuda.set_device`."""
    global _current
    _current = gpu_of(device)


class InDevice:
    """Does as `torch.cuda.device`."""

    def __init__(self, device: Any) -> None:
        self._gpu = gpu_of(device)

    def __enter__(self) -> None:
        self._before = _current
        set_device(self._gpu)

    def __exit__(self, *error: object) -> None:
        set_device(self._before)


class Stream:
    """Work of one GPU in order, none of it done before somebody waits."""

    def __init__(self, gpu: int) -> None:
        self.gpu = gpu
        self.queue: list[Callable[[], object]] = []

    def put(self, work: Callable[[], object]) -> None:
        self.queue.append(work)
        if GPU.at_once:
            self.run()

    def run(self, until: Event | None = None) -> None:
        """Do what is queued: all, or up to an event."""
        # Without modes: to the emulation, a collective of the queue would be one of the host.
        with GPU.lock, _disable_current_modes():
            while self.queue and not (until and until.is_done):
                self.queue.pop(0)()

    def wait_stream(self, other: Stream) -> None:
        event = Event()
        event.record(other)
        self.wait_event(event)

    def wait_event(self, event: Event) -> None:
        # By then the other stream may have done no more than that, or all: once so, once so.
        self.put(lambda: event.is_done or event.stream.run(None if next(GPU.runs_ahead) else event))


class Event:
    """A place in a stream."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.is_done = True

    def record(self, stream: Stream | None = None) -> None:
        self.stream, self.is_done = stream or GPU.stream(), False
        self.stream.put(self._end)

    def _end(self) -> None:
        self.is_done = True

    def synchronize(self) -> None:
        if not self.is_done:
            GPU.waits += 1
            self.stream.run(self)

    def elapsed_time(self, other: Event) -> float:
        return 1.0  # ms


@dataclass
class Piece:
    """Memory of a GPU: the stream that allocated it uses it again once it is freed."""

    stream: Stream
    storage: torch.UntypedStorage
    num_tensors: int = 0
    used_by: list[Stream] = field(default_factory=list)  # for these the allocator waits


class Gpu:
    """The state of the devices in this process."""

    def __init__(self) -> None:
        self.at_once = False  # run all work as it is queued
        self.waits = 0  # of the host
        self.operations: Counter[str] = Counter()  # that are queued, by name
        self.runs_ahead = itertools.cycle((False, True))
        self.sync_debug_mode = "default"
        self.lock = threading.RLock()
        self._first_streams = [Stream(gpu) for gpu in range(NUM_GPUS)]
        self._streams = weakref.WeakSet(self._first_streams)
        self._of_thread = threading.local()
        self._pieces: dict[int, Piece] = {}
        self._page_locked: dict[int, torch.Tensor] = {}  # by address
        self._registered: dict[int, int] = {}  # memory of others, first address -> end

    def stream(self, device: Any = None) -> Stream:
        """Do as `torch.cuda.current_stream`, which is one of this thread."""
        gpu = gpu_of(device)
        return getattr(self._of_thread, "streams", {}).get(gpu, self._first_streams[gpu])

    def new_stream(self, device: Any = None) -> Stream:
        stream = Stream(gpu_of(device))
        self._streams.add(stream)
        return stream

    def wait(self, gpu: int) -> None:
        """Let the host wait for all work of a GPU's stream, because an operation needs it."""
        if self.sync_debug_mode == "warn":
            warnings.warn("called a synchronizing CUDA operation", stacklevel=2)
        self.waits += 1
        self.stream(gpu).run()

    def synchronize(self, device: Any = None) -> None:
        """Do as `torch.cuda.synchronize`."""
        self.waits += 1
        for stream in [stream for stream in self._streams if stream.gpu == gpu_of(device)]:
            stream.run()

    def set_sync_debug_mode(self, mode: str) -> None:
        self.sync_debug_mode = mode

    @contextmanager
    def in_stream(self, stream: Stream) -> Iterator[None]:
        before = getattr(self._of_thread, "streams", {})
        self._of_thread.streams = {**before, stream.gpu: stream}
        try:
            with InDevice(stream.gpu):
                yield
        finally:
            self._of_thread.streams = before

    def add(self, tensor: torch.Tensor, memory: torch.Tensor, gpu: int) -> Callable[[], object]:
        """Note a tensor of a GPU and its memory; return what ends its use of that.

        Memory is used again when the last tensor there is freed, or has other memory.
        """
        storage = memory.untyped_storage()
        piece = self._pieces.setdefault(storage.data_ptr(), Piece(self.stream(gpu), storage))
        piece.num_tensors += 1
        return weakref.finalize(tensor, self._free, piece)

    def _free(self, piece: Piece) -> None:
        piece.num_tensors -= 1
        if piece.num_tensors == 0:
            self._pieces.pop(piece.storage.data_ptr(), None)
            if not piece.used_by:
                piece.stream.put(lambda: piece.storage.fill_(255))  # the bytes of NaN

    def record_stream(self, memory: torch.Tensor, stream: Stream) -> None:
        self._pieces[memory.untyped_storage().data_ptr()].used_by.append(stream)

    def lock_pages(self, x: torch.Tensor) -> torch.Tensor:
        """Let copies read host memory later; it is kept for ever."""
        self._page_locked[x.untyped_storage().data_ptr()] = x
        return x

    def has_locked_pages(self, x: torch.Tensor) -> bool:
        start = x.untyped_storage().data_ptr()
        registered = any(first <= start < end for first, end in self._registered.items())
        return registered or start in self._page_locked

    def register(self, address: int, num_bytes: int, flags: int) -> int:
        """Do as `cudaHostRegister`; return its code, 0 if all is well."""
        self._registered[address] = address + num_bytes
        return 0

    def unregister(self, address: int) -> int:
        del self._registered[address]
        return 0


def spoil(x: torch.Tensor) -> torch.Tensor:
    """Fill a tensor with what nothing written looks like: NaN, or a number out of all ranges."""
    return x.fill_(torch.nan if x.dtype.is_floating_point else 1 if x.dtype == torch.bool else 77)


GPU = Gpu()


# Collectives of ranks.

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


def begin_collective(function: Any, args: Sequence[Any]) -> Any:
    """Run a collective of the host, or queue one of the GPUs."""
    tensors = [x for x in tree_leaves(args) if isinstance(x, torch.Tensor)]
    if not any(hasattr(x, "gpu") for x in tensors):
        if Link.stream is not None:
            Link.stream.run()  # another rank may wait in a collective that is only queued here
        return function(*args)
    check_collective(function, tensors)
    Link.stream.wait_stream(GPU.stream(Link.stream.gpu))
    sent = on_host(function, args)
    Link.stream.put(lambda: Work.unbox(function(*sent)[1]).wait())
    Link.works.append(Queued(args[0]))
    return args[0], Work.boxed(Link.works[-1])


def check_collective(function: Any, tensors: Sequence[torch.Tensor]) -> None:
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
