"""Copies on the way from NumPy to a GPU, counted without one: page-locked memory is the host's."""

from __future__ import annotations

import importlib
from contextlib import contextmanager

import numpy as np
import pytest

import backend

pytestmark = pytest.mark.skipif(backend.use() != "torch", reason="OneFlow has no such memory")


@pytest.fixture
def modules(monkeypatch):
    """Return `ops` and `device` of the backend, whose page-locked tensors are ordinary ones."""
    ops, device = (importlib.import_module(f"backend.torch.{name}") for name in ("ops", "device"))
    empty, locked = ops.torch.empty, set()

    def stand_in(*shape, pin_memory=False, **options):
        made = empty(*shape, **options)
        if pin_memory:
            locked.add(made.data_ptr())
        return made

    monkeypatch.setattr(ops.torch, "empty", stand_in)
    monkeypatch.setattr(ops.Tensor, "is_pinned", lambda x: x.data_ptr() in locked)
    return ops, device


def test_a_batch_in_page_locked_memory_is_not_copied_on_the_host(modules):
    ops, device = modules
    images = device.host_bytes((2, 3, 4, 4), "cuda:0")
    images[...] = np.arange(96).reshape(images.shape)
    on_host = ops.page_locked(images)
    assert np.shares_memory(on_host.numpy(), images)
    np.testing.assert_array_equal(on_host.numpy(), images)
    assert on_host.is_pinned()


def test_a_part_of_it_is_copied_since_its_place_tells_no_end_of_the_reading(modules):
    ops, device = modules
    images = device.host_bytes((4, 3, 4, 4), "cuda:0")
    images[...] = np.arange(192).reshape(images.shape)
    for part in (images[:2], images[2:], images[:, :1], images.transpose(0, 2, 3, 1), images[::-1]):
        on_host = ops.page_locked(part)
        assert on_host.is_pinned() and not np.shares_memory(on_host.numpy(), images)
        np.testing.assert_array_equal(on_host.numpy(), part)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0)[::-1], np.arange(6, dtype=">i8"), np.zeros((0, 3), np.float32),
        np.array([True, False]), np.arange(6, dtype=np.uint8).reshape(2, 3).T,
    ],
)  # fmt: skip
def test_any_other_array_is_copied_once(modules, array):
    ops, _ = modules
    on_host = ops.page_locked(array)
    np.testing.assert_array_equal(on_host.numpy(), array)
    assert on_host.is_pinned() and on_host.numpy().dtype == array.dtype.newbyteorder("=")


def test_beside_a_cpu_memory_is_ordinary(modules):
    _, device = modules
    assert device.host_bytes((2, 3), "cpu").base is None


class Stream:
    """A stream of a GPU that notes what is asked of it; `Stream.running` is the current one."""

    running: Stream
    calls: list[tuple]

    def __init__(self, device):
        self.name = f"{len([call for call in self.calls if call[0] == 'stream'])} of {device}"
        self.calls.append(("stream", self.name))

    def wait_stream(self, other):
        self.calls.append(("wait", self.name, other.name))

    def __getattr__(self, name):  # such as `synchronize`
        return lambda *_: self.calls.append((name, self.name))


@pytest.fixture
def calls(modules, monkeypatch):
    """Return the list of what is asked of two GPUs, in order; the first stream is the current."""
    ops, _ = modules
    Stream.calls = []
    Stream.running = Stream("main")

    @contextmanager
    def inside(stream):
        before, Stream.running = Stream.running, stream
        yield
        Stream.running = before

    def copy(x, device, non_blocking=False):
        Stream.calls.append(("copy", Stream.running.name, device, non_blocking, x.is_pinned()))
        return x.clone()

    def keep(x, stream):
        Stream.calls.append(("keep", stream.name))

    cuda = ops.torch.cuda
    monkeypatch.setattr(ops, "present", lambda device: device)
    monkeypatch.setattr(cuda, "Stream", Stream)
    monkeypatch.setattr(cuda, "stream", inside)
    monkeypatch.setattr(cuda, "current_stream", lambda device: Stream.running)
    monkeypatch.setattr(cuda, "synchronize", lambda *_: Stream.calls.append(("synchronize",)))
    monkeypatch.setattr(ops.Tensor, "to", copy)
    monkeypatch.setattr(ops.Tensor, "record_stream", keep)
    ops.copy_stream.cache_clear()
    yield Stream.calls
    ops.copy_stream.cache_clear()


def test_a_batch_travels_on_a_stream_of_its_own_for_which_the_device_waits(modules, calls):
    ops, device = modules
    images = device.host_bytes((2, 3, 512, 512), "cuda:0")
    images[...] = np.arange(images.size, dtype=np.uint8).reshape(images.shape)
    for _ in range(2):
        arrived = ops.tensor(images, "cuda:0")
        np.testing.assert_array_equal(arrived.numpy(), images)
    one = [
        ("copy", "1 of cuda:0", "cuda:0", True, True),
        ("wait", "0 of main", "1 of cuda:0"),
        ("keep", "0 of main"),
    ]
    # The stream is made once. Nothing else is asked: the host waits for nothing.
    assert calls[1:] == [("stream", "1 of cuda:0"), *one, *one]
    assert Stream.running.name == "0 of main"


def test_each_gpu_has_its_own_stream_for_copies(modules, calls):
    ops, _ = modules
    images = np.zeros(ops.LARGE_COPY, np.uint8)
    for device in ("cuda:0", "cuda:1", "cuda:0"):
        ops.tensor(images, device)
    streams = [call[1] for call in calls if call[0] == "copy"]
    assert streams == ["1 of cuda:0", "2 of cuda:1", "1 of cuda:0"]


def test_a_small_array_stays_on_the_current_stream(modules, calls):
    ops, _ = modules
    small = np.arange(ops.LARGE_COPY // 4 - 1, dtype=np.float32)
    np.testing.assert_array_equal(ops.tensor(small, "cuda:0").numpy(), small)
    assert calls[1:] == [("copy", "0 of main", "cuda:0", True, True)]


def test_a_layout_other_than_rows_keeps_its_values_on_the_way(modules, calls):
    ops, _ = modules
    images = np.arange(3 * 640 * 640, dtype=np.int64).astype(np.uint8).reshape(1, 640, 640, 3)
    pixels = images.transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(ops.tensor(pixels, "cuda:0").numpy(), pixels)
    assert ("wait", "0 of main", "1 of cuda:0") in calls
