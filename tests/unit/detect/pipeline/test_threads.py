"""Sources are read ahead in threads, and results written in others: in order, in bounded memory."""

import threading
import time
from contextlib import closing

import numpy as np
import pytest

from duet.utils.detect.media.source import Frame
from duet.utils.detect.pipeline import threads as reading
from duet.utils.detect.pipeline.threads import Reader
from duet.utils.errors import BrokenSourceError

SIDE = 4


class FakeSource:
    """A source of frames filled with its number, which may break, wait, or never end.

    Attributes:
        opened: the names of all fake sources whose frames were asked for, in that order.
    """

    opened: list[str] = []
    rate = None

    def __init__(self, number, kind="image", frames=1, breaks=False, waits=False, side=SIDE):
        self.number, self.kind, self.num_frames = number, kind, frames
        self.name = f"{kind} {number}"
        self.closed = threading.Event()
        self._breaks, self._waits, self._side = breaks, waits, side

    def frames(self):
        FakeSource.opened.append(self.name)
        for index in range(self.num_frames):
            time.sleep(0.001 * (self.number * 7 % 5))  # some are slower than others
            image = np.full((self._side, self._side, 3), self.number, np.uint8)
            yield Frame(image, self.name, None if self.kind == "image" else index)
        if self._waits:
            assert self.closed.wait(20), "nobody closed the source"
        if self._breaks:
            raise BrokenSourceError(f"no more of {self.number}")

    def close(self):
        self.closed.set()


@pytest.fixture(autouse=True)
def opened(monkeypatch):
    names = []
    monkeypatch.setattr(FakeSource, "opened", names)
    return names


def sum_of(image):
    return int(image.sum())


def make_reader(batch_size=1, threads=3, prepare=sum_of):
    return Reader(prepare, batch_size, threads)


def read_all(sources, **options):
    with make_reader(**options) as reader:
        return list(reader.batches(sources))


def names(batches):
    return [
        [(read.source.name, read.frame and read.frame.number) for read in batch]
        for batch in batches
    ]


def test_batches_end_where_the_source_kind_changes():
    kinds = ["image", "image", "image", "video", "video", "image"]
    sources = [FakeSource(n, kind, 1 if kind == "image" else 3) for n, kind in enumerate(kinds)]
    found = [
        [name.split()[1] for name, _ in batch] for batch in names(read_all(sources, batch_size=2))
    ]
    assert found == [["0", "1"], ["2"], ["3", "3"], ["3"], ["4", "4"], ["4"], ["5"]]


def test_broken_source_is_reported_and_the_rest_continues():
    sources = [FakeSource(0), FakeSource(1, frames=0, breaks=True), FakeSource(2),
               FakeSource(3, "video", 2, breaks=True), FakeSource(4)]  # fmt: skip
    reads = [read for batch in read_all(sources) for read in batch]
    assert [(read.source.number, read.problem) for read in reads] == [
        (0, ""), (1, "no more of 1"), (2, ""), (3, ""), (3, ""), (3, "no more of 3"), (4, ""),
    ]  # fmt: skip
    assert all((read.frame is None) == bool(read.problem) for read in reads)


def test_large_images_are_not_read_ahead(opened, monkeypatch):
    monkeypatch.setattr(reading, "MOST_BYTES", 100)
    side = 6  # 108 bytes
    with make_reader(threads=1, batch_size=6) as reader:
        sources = [FakeSource(number, side=side) for number in range(20)]
        with closing(reader.batches(sources)) as batches:
            assert len(next(batches)) == 1  # a batch is cut where it is large
            time.sleep(0.1)
            assert len(opened) <= 3
            assert [batch[0].source.number for batch in batches] == list(range(1, 20))


def test_live_sources_do_not_wait_for_each_other():
    stuck, lively = FakeSource(1, "live", 1, waits=True), FakeSource(2, "live", 30)
    with make_reader() as reader, closing(reader.batches([stuck, lively])) as batches:
        seen = [next(batches)[0].source.number for _ in range(31)]
    assert seen.count(2) == 30
    assert stuck.closed.is_set() and lively.closed.is_set()


@pytest.mark.parametrize("kind", ["video", "live"])
def test_shutdown_wakes_a_thread_waiting_for_a_frame(kind):
    source = FakeSource(1, kind, 1, waits=True)
    start = time.monotonic()
    with (
        pytest.raises(KeyboardInterrupt),
        make_reader() as reader,
        closing(reader.batches([source])) as batches,
    ):
        next(batches)
        time.sleep(0.05)
        raise KeyboardInterrupt
    assert source.closed.is_set()
    assert time.monotonic() - start < 8  # the thread would wait for 20
    alive = [thread.name for thread in threading.enumerate() if thread.name.startswith(kind)]
    assert not alive


@pytest.mark.parametrize("kind", ["image", "video", "live"])
def test_thread_defect_ends_the_run(kind):
    def fail(image):
        raise RuntimeError("defect")

    with pytest.raises(RuntimeError, match="defect"):
        read_all([FakeSource(number, kind, 2) for number in range(3)], prepare=fail)
