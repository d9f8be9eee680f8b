"""Processes that build batches ahead of their consumer, in a fixed order.

Each batch is built by all workers, a part by each: which one is fast changes nothing. Images come
back in slots of memory that all share, everything else through a pipe of each worker. If a process
dies on either side, the pipe ends the other's wait.
"""

import atexit
import contextlib
import faulthandler
import io
import itertools
import math
import mmap
import os
import signal
import subprocess
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import NamedTuple

import cv2
import numpy as np

from duet import backend
from duet.utils.data.loading.batch import Batch, Finishing, join_targets
from duet.utils.data.loading.batches import Batches
from duet.utils.data.loading.image_cache import NamelessFile
from duet.utils.data.loading.order import Epoch
from duet.utils.data.loading.worker_process import start_process
from duet.utils.errors import DatasetError, WorkerError
from duet.utils.memory import keep_freed_images
from duet.utils.system.children import INTERRUPTS, SUSPENDING, blocked
from duet.utils.text import STDERR

PARTS_AHEAD = 2  # of batches, that each worker builds before they are asked for
SLOTS_IN_USE = 2  # of the batch that is used, and of the one before, which a GPU may still read
_ALIGNMENT = 64  # bytes
PARENTS_SIGNALS = {*INTERRUPTS, *SUSPENDING}


class SharedSource:
    """A batch source for workers, its arrays in shared memory and read-only there.

    A copy of a million samples would take 200 MB or more per worker.
    """

    def __init__(self, source: Batches):
        self._source = source
        self._file: NamelessFile | None = None  # shared arrays, once the first worker runs

    def __reduce__(self) -> tuple[object, ...]:
        rest, arrays = io.BytesIO(), []
        ForkingPickler(rest, 5, True, lambda array: arrays.append(array.raw())).dump(self._source)
        sizes = [-(-array.nbytes // _ALIGNMENT) * _ALIGNMENT for array in arrays]
        places = [
            (start, start + array.nbytes)
            for start, array in zip(itertools.accumulate(sizes, initial=0), arrays, strict=False)
        ]
        if self._file is None:
            self._file = NamelessFile(sum(sizes))
            with mmap.mmap(self._file.descriptor, 0) as memory:  # this process has its own arrays
                for (start, end), array in zip(places, arrays, strict=True):
                    memory[start:end] = array
        return _attach, (rest.getvalue(), self._file, places)


def _attach(rest: bytes, file: NamelessFile, places: list[tuple[int, int]]) -> Batches:
    memory = memoryview(file.memory).toreadonly()
    source: Batches = ForkingPickler.loads(
        rest, buffers=[memory[start:end] for start, end in places]
    )
    return source


class _Worker(NamedTuple):
    process: subprocess.Popen[bytes]
    connection: Connection


class _Request(NamedTuple):
    epoch: Epoch
    batch_index: int
    shape: tuple[int, ...]  # (B, 3, H, W)
    start: int  # byte of the slots at which its images begin
    builders: tuple[int, ...]  # worker of each part


class WorkerPool:
    """Workers that start once, stay through all epochs, and give their batches in order.

    Attributes:
        num_slots: batches that have memory at a time.
    """

    def __init__(self, source: Batches, workers: int):
        assert workers >= 1 and len(source) >= 1
        self._source = source
        self._shared = SharedSource(source)
        shapes = [source.shape(index) for index in range(len(source))]
        self._slot_bytes = max(1, *map(math.prod, shapes))  # a rank may have no image
        most_images = max(1, *(shape[0] for shape in shapes))
        self._num_workers = min(workers, len(source) * most_images)
        self._num_parts = min(self._num_workers, most_images)  # of a batch
        self._num_ahead = PARTS_AHEAD * -(-self._num_workers // self._num_parts)
        self.num_slots = self._num_ahead + SLOTS_IN_USE
        self._workers: list[_Worker] = []
        self._starter = 0  # process that started them
        self._device: str | None = None  # that copies images from their slots
        self._requests: deque[_Request] = deque()  # without a reply yet
        self._num_requests, self._run = 0, 0
        self._copies_end: list[Callable[[], None]] = []  # of each slot

    def lend_to(self, device: str) -> None:
        """Give images in their slots, for a device to copy before the next batch is asked for."""
        self._device = device

    def start(self) -> None:
        """Start the workers unless they run, without waiting for them."""
        if self._workers:
            return
        self._starter = os.getpid()
        slots = NamelessFile(self.num_slots * self._slot_bytes)
        # The workers inherit the blocked signals. Ctrl-C reaches all processes of a terminal, a
        # cluster's signals all of a job; only the parent answers them.
        with blocked(PARENTS_SIGNALS):
            for _ in range(self._num_workers):
                self._workers.append(_Worker(*start_process(_serve, self._shared, slots)))
        self._memory, self._is_locked = np.frombuffer(slots.memory, np.uint8), False
        atexit.register(_close_if_there, weakref.ref(self))

    def request(self, epoch: Epoch, first_batch: int = 0) -> None:
        """Request the first few batches of an epoch, unless that has been done; end any run."""
        self._run += 1
        self.start()
        if self._device is not None and not self._is_locked:
            backend.device.page_lock(self._memory, self._device)
            self._is_locked = True
        if not self._requests or self._requests[0][:2] != (epoch, first_batch):
            while self._requests:  # left by an unfinished epoch
                self._replies()
            self._copies_end = [self._copies_so_far()] * self.num_slots
        self._fill(epoch, first_batch)

    def run(
        self, epoch: Epoch, first_batch: int = 0, following: Epoch | None = None
    ) -> Iterator[Batch]:
        """Request the first batches of an epoch, and return an iterator over all.

        Iterators of earlier runs raise WorkerError from then on.

        following: epoch whose first batches are built while the last ones here are used.
        """
        self.request(epoch, first_batch)
        return self._collect(epoch, first_batch, following, self._run)

    def _collect(
        self, epoch: Epoch, first_batch: int, following: Epoch | None, run: int
    ) -> Iterator[Batch]:
        for batch_index in range(first_batch, len(self._source)):
            if run != self._run:
                raise WorkerError("this epoch was ended by the start of another or by close()")
            request, replies = self._requests[0], self._replies()
            self._fill(epoch, batch_index + 1, following)
            for reply in replies:
                if isinstance(reply, Exception):
                    raise reply
            targets, sample_indices, letterboxes, left = zip(*replies, strict=True)
            images = self._memory[request.start :][: math.prod(request.shape)]
            images = images.reshape(request.shape)
            yield Batch(
                images if self._device is not None else images.copy(),
                join_targets(targets, map(len, sample_indices)),
                np.concatenate(sample_indices),
                tuple(itertools.chain(*letterboxes)),
                self._source.indices(epoch, batch_index),
                _joined(left),
            )
            self._copies_end[request.start // self._slot_bytes] = self._copies_so_far()

    def _copies_so_far(self) -> Callable[[], None]:
        """Return a function that waits for the copies of lent images."""
        if self._device is None:
            return lambda: None
        return backend.device.copies_end(self._device)

    def _fill(self, epoch: Epoch, first_batch: int, following: Epoch | None = None) -> None:
        indices = range(len(self._source))
        here = zip(itertools.repeat(epoch), indices[first_batch:])
        then = zip(itertools.repeat(following), indices) if following is not None else ()
        wanted = itertools.chain(here, then)
        for place in itertools.islice(wanted, len(self._requests), self._num_ahead):
            self._request(*place)

    def _request(self, epoch: Epoch, batch_index: int) -> None:
        number, parts = self._num_requests, self._num_parts
        slot = number % self.num_slots
        self._copies_end[slot]()
        builders = tuple((number * parts + part) % self._num_workers for part in range(parts))
        shape = self._source.shape(batch_index)
        request = _Request(epoch, batch_index, shape, slot * self._slot_bytes, builders)
        for part, worker in enumerate(builders):
            first, end = shape[0] * part // parts, shape[0] * (part + 1) // parts
            start = request.start + first * math.prod(shape[1:])
            place = epoch, batch_index, slice(first, end), (end - first, *shape[1:]), start
            try:
                self._workers[worker].connection.send(place)
            except OSError as error:
                raise self._death_of(worker) from error
        self._requests.append(request)
        self._num_requests += 1

    def _replies(self) -> list[object]:
        """Wait for the parts of the next batch; return what their workers send."""
        replies = [self._receive(worker) for worker in self._requests[0].builders]
        self._requests.popleft()
        return replies

    def _receive(self, worker: int) -> object:
        try:
            return self._workers[worker].connection.recv()
        except (EOFError, OSError) as error:
            raise self._death_of(worker) from error

    def _death_of(self, number: int) -> WorkerError:
        process = self._workers[number].process
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
        code = process.returncode or 0
        cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        text = (
            f"loader worker {number} of {self._num_workers} (process {process.pid}) died: {cause}; "
            "if a stack above names an image, repair or remove it; if the machine ran out of "
            "memory, use fewer --workers, a smaller --batch-size or no --cache ram"
        )
        self.close()
        return WorkerError(text)

    def close(self) -> None:
        """End the workers at once; a later run() starts new ones.

        In a forked process it only forgets them, at the latest as that process exits.
        """
        self._run += 1
        own = self._workers if self._starter == os.getpid() else []
        for worker in own:
            worker.process.kill()  # it holds nothing that could be left half-done
        for worker in own:
            worker.process.wait()
            worker.connection.close()
        if own:
            self._copies_so_far()()
        self._workers = []
        self._requests.clear()
        self._memory = np.zeros(0, np.uint8)


def _joined(parts: Sequence[Finishing | None]) -> Finishing | None:
    present = [part for part in parts if part is not None]
    return Finishing(*map(np.concatenate, zip(*present, strict=True))) if present else None


def _close_if_there(pool: weakref.ref[WorkerPool]) -> None:
    found = pool()
    if found is not None:
        found.close()


def _serve(connection: Connection, source: Batches, slots: NamelessFile) -> None:
    """Build the parts of batches that are requested in a worker, until the pipe ends."""
    cv2.setNumThreads(0)
    keep_freed_images()
    faulthandler.enable(STDERR)  # the stack of a crash names the image: see `read_as`
    while True:
        try:
            epoch, batch_index, part, shape, start = connection.recv()
            images = np.ndarray(shape, np.uint8, slots.memory, start)
            connection.send(_reply(source, epoch, batch_index, part, images))
        except (EOFError, OSError):  # the parent is gone
            return


def _reply(
    source: Batches, epoch: Epoch, batch_index: int, part: slice, images: np.ndarray
) -> object:
    try:
        batch = source.build(epoch, batch_index, images, part)
        return batch.targets, batch.sample_indices, batch.letterboxes, batch.finishing
    except DatasetError as error:  # the parent raises it
        return DatasetError(str(error))
    except Exception as error:
        return WorkerError(f"{error}\nin a loader worker:\n{traceback.format_exc()}")
