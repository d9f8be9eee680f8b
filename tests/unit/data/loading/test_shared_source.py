"""Workers get a source equal to the parent's, its arrays in memory that all share."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from tests.unit.data.sources.test_samples import make_sample
from utils.data.loading.workers import SharedSource
from utils.data.sources.samples import SampleTable, table_of


@dataclass(frozen=True)
class Source:
    """What a worker needs, as a batch source has it."""

    samples: SampleTable
    empty: np.ndarray
    columns: np.ndarray  # not contiguous

    @cached_property
    def made_late(self) -> np.ndarray:
        return np.arange(len(self.samples.class_index))


def own_kib() -> int:
    """The memory of this process alone; that of a shared file is none of it."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))


def checksums(source: Source) -> list[int]:
    samples = source.samples
    arrays = (samples.class_index, samples.boxes_cxcywh_norm, source.columns, source.made_late)
    return [zlib.crc32(np.ascontiguousarray(array)) for array in arrays]


def answer(source: Source, connection: Connection) -> None:
    """Send what this process got, whether it may write, and the memory of its own."""
    found = checksums(source), list(source.samples.paths), source.empty.shape
    connection.send((found, source.samples.class_index.flags.writeable, own_kib()))


def answers(shared: SharedSource, number: int) -> list:
    context = get_context("spawn")
    found = []
    for _ in range(number):
        ours, theirs = context.Pipe()
        process = context.Process(target=answer, args=(shared, theirs), daemon=True)
        process.start()
        theirs.close()
        found.append(ours.recv())
        process.join()
        process.close()
    return found


def make_source(num_objects: int) -> Source:
    samples = table_of([make_sample(0, 0), make_sample(1, num_objects)])
    return Source(samples, np.zeros((0, 4)), np.arange(12).reshape(3, 4)[:, ::2])


def test_workers_get_the_same_arrays_and_no_copy_of_them():
    source = make_source(1_000_000)  # 24 MB
    ((_, _, few_kib),) = answers(SharedSource(make_source(1)), 1)
    for found, writable, kib in answers(SharedSource(source), 2):
        assert found == (checksums(source), list(source.samples.paths), (0, 4))
        assert not writable
        assert kib - few_kib < 8_000
