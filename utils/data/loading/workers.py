"""Processes that build batches ahead of their consumer, in a fixed order.

Worker i of W builds the batches i, i + W, i + 2W, ...: a batch never depends on which worker is
fast. Images come back through memory shared with one worker, everything else through that
worker's own pipe. If a process dies on either side, the pipe ends the other's wait.
"""

from __future__ import annotations

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
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import cv2
import numpy as np

from duet.utils.data.loading.batch import Batch
from duet.utils.data.loading.batches import Batches
from duet.utils.data.loading.image_cache import NamelessFile
from duet.utils.data.loading.order import Epoch
from duet.utils.data.loading.worker_process import start_process
from duet.utils.errors import DatasetError, WorkerError
from duet.utils.memory import keep_freed_images
from duet.utils.text import STDERR

SLOTS_PER_WORKER = 2  # batches that a worker may be ahead
_ALIGNMENT = 64  # bytes
NewArray = Callable[[tuple[int, ...]], np.ndarray]  # makes a uint8 array of a shape
PARENTS_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1}
new_bytes: NewArray = partial(np.empty, dtype=np.uint8)


class SharedSlots(NamedTuple):
    """Memory for a few image arrays, shared with a worker."""

    slot_bytes: int  # of the largest array
    file: NamelessFile

    def images(self, batch_index: int, workers: int, shape: tuple[int, ...]) -> np.ndarray:
        """Return the uint8 array of a batch's images; a worker's batches take its slots in turn."""
        assert math.prod(shape) <= self.slot_bytes
        slot = batch_index // workers % SLOTS_PER_WORKER
        return np.ndarray(shape, np.uint8, self.file.memory, slot * self.slot_bytes)


class SharedSource:
    """A batch source for workers; what they get is equal to it, its arrays read-only.

    The arrays lie in shared memory: a copy of a million samples would take 200 MB or more per
    worker.
    """

    def __init__(self, source: Batches):
        self._source = source
        self._file: NamelessFile | None = None  # shared arrays, once the first worker runs

    def __reduce__(self) -> tuple[Any, ...]:
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
    slots: SharedSlots


class WorkerPool:
    """Workers that start once, stay through all epochs, and give their batches in order."""

    def __init__(self, source: Batches, workers: int):
        assert workers >= 1 and len(source) >= 1
        self._source = source
        self._shared = SharedSource(source)
        self._num_workers = min(workers, len(source))
        self._workers: list[_Worker] = []
        self._starter = 0  # process that started them
        self._unread: list[int] = []  # requests of each worker that have no reply yet
        self._run = 0

    def start(self) -> None:
        """Start the workers unless they run, without waiting for them."""
        if self._workers:
            return
        self._starter = os.getpid()
        slot_bytes = max(math.prod(self._source.shape(i)) for i in range(len(self._source)))
        # The workers inherit the blocked signals. Ctrl-C reaches all processes of a terminal, a
        # cluster's signals all of a job; only the parent answers them.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, PARENTS_SIGNALS)
        try:
            for _ in range(self._num_workers):
                slots = SharedSlots(slot_bytes, NamelessFile(SLOTS_PER_WORKER * slot_bytes))
                started = start_process(_serve, self._shared, self._num_workers, slots)
                self._workers.append(_Worker(*started, slots))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        self._unread = [0] * self._num_workers
        atexit.register(_close_if_there, weakref.ref(self))

    def run(
        self, epoch: Epoch, first_batch: int = 0, new_array: NewArray = new_bytes
    ) -> Iterator[Batch]:
        """Request the first few batches of an epoch at once; return an iterator over all.

        This ends an earlier run: its iterator raises WorkerError from then on.

        Args:
            new_array: makes the uint8 array that a batch's images are copied into.
        """
        self.start()
        self._run += 1
        for number in range(self._num_workers):
            while self._unread[number]:  # left by an unfinished epoch
                self._receive(number)
        ahead = first_batch + SLOTS_PER_WORKER * self._num_workers
        for batch_index in range(first_batch, min(len(self._source), ahead)):
            self._request(epoch, batch_index)
        return self._collect(epoch, first_batch, self._run, new_array)

    def _collect(
        self, epoch: Epoch, first_batch: int, run: int, new_array: NewArray
    ) -> Iterator[Batch]:
        for batch_index in range(first_batch, len(self._source)):
            if run != self._run:
                raise WorkerError("this epoch was ended by the start of another or by close()")
            number = batch_index % self._num_workers
            reply = self._receive(number)
            if isinstance(reply, Exception):
                raise reply
            shape = self._source.shape(batch_index)
            slots = self._workers[number].slots
            images = new_array(shape)
            images[...] = slots.images(batch_index, self._num_workers, shape)
            next_index = batch_index + SLOTS_PER_WORKER * self._num_workers
            if next_index < len(self._source):
                self._request(epoch, next_index)
            targets, sample_indices, letterboxes = reply
            global_indices = self._source.indices(epoch, batch_index)
            yield Batch(images, targets, sample_indices, letterboxes, global_indices)

    def _request(self, epoch: Epoch, batch_index: int) -> None:
        number = batch_index % self._num_workers
        try:
            self._workers[number].connection.send((epoch, batch_index))
        except OSError as error:
            raise self._death_of(number) from error
        self._unread[number] += 1

    def _receive(self, number: int) -> Any:
        try:
            reply = self._workers[number].connection.recv()
        except (EOFError, OSError) as error:
            raise self._death_of(number) from error
        self._unread[number] -= 1
        return reply

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
        self._workers = []


def _close_if_there(pool: weakref.ref[WorkerPool]) -> None:
    found = pool()
    if found is not None:
        found.close()


def _serve(connection: Connection, source: Batches, workers: int, slots: SharedSlots) -> None:
    """Answer requests (epoch, batch index) in a worker until the pipe ends."""
    cv2.setNumThreads(0)
    keep_freed_images()
    faulthandler.enable(STDERR)  # the stack of a crash names the image: see `read_as`
    while True:
        try:
            epoch, batch_index = connection.recv()
            connection.send(_reply(source, workers, slots, epoch, batch_index))
        except (EOFError, OSError):  # the parent is gone
            return


def _reply(
    source: Batches, workers: int, slots: SharedSlots, epoch: Epoch, batch_index: int
) -> Any:
    images = slots.images(batch_index, workers, source.shape(batch_index))
    try:
        batch = source.build(epoch, batch_index, images)
        return batch.targets, batch.sample_indices, batch.letterboxes
    except DatasetError as error:  # the parent raises it
        return DatasetError(str(error))
    except Exception as error:
        return WorkerError(f"{error}\nin a loader worker:\n{traceback.format_exc()}")
