"""Checks of `contract.Device`."""

import importlib.metadata
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np

from duet import backend
from duet.backend.contract import CAPABILITIES
from duet.backend.select import FRAMEWORKS
from tests.conformance.judging import Backend, assert_refused, judges
from tests.frameworks import run_out_of_memory


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set these variables in the block, as a launcher does."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@judges("device.resolve")
def resolves_to_what_is_there(b: Backend) -> None:
    assert b.device.resolve("cpu") == "cpu"
    if b.device.supports("cuda"):
        assert [b.device.resolve(name) for name in ("", "0", "cuda:0")] == ["cuda:0"] * 3
    else:
        assert b.device.resolve("") == "cpu"
        assert_refused("cpu", b.device.resolve, "0")
        assert_refused("cpu", b.device.resolve, "cuda:0")
    with environment(RANK="1", LOCAL_RANK="1", WORLD_SIZE="2"):
        assert b.device.resolve("cpu") == "cpu"
        assert_refused("'0'", b.device.resolve, "0")  # one for two ranks
        if not b.device.supports("cuda"):
            assert b.device.resolve("") == "cpu"
    for name in ("99", "cuda:99", "gpu", "cuda", "CPU", "0,1", "-1"):
        assert_refused(repr(name), b.device.resolve, name)


@judges("device.synchronize")
@judges("device.mark")
@judges("device.seconds_between")
def marks_span_queued_work_and_nothing_is_left_after_synchronizing(b: Backend) -> None:
    x = b.ops.tensor(np.ones((500, 500)))
    # The best of three, since the machine may be busy with something else.
    marked, left = [], []
    for _ in range(3):
        start, began = b.device.mark("cpu"), time.perf_counter()
        for _ in range(10):
            x = b.ops.atan(x)
        end = b.device.mark("cpu")
        assert b.device.synchronize("cpu") is None
        done = time.perf_counter()
        b.ops.to_numpy(x[0, 0])
        read = time.perf_counter()
        marked.append(b.device.seconds_between(start, end) / (read - began))
        left.append((read - done) / (done - began))
    # The two clocks do not start at exactly the same time.
    assert max(marked) > 0.5 and min(marked) < 1.1, marked
    assert min(left) < 0.5, left


@judges("device.describe")
def one_line_with_the_version(b: Backend) -> None:
    line = b.device.describe("cpu")
    package = FRAMEWORKS[backend.use()].package
    assert importlib.metadata.version(package).partition("+")[0] in line
    assert "CPU" in line and "\n" not in line


@judges("device.rounds_to_tf32")
def says_whether_products_lose_bits(b: Backend) -> None:
    # 1 + 2^-12 needs 12 bits after the point, TF32 has 10: a product with 1 gives 1 under it.
    device = b.device.resolve("")
    layer = b.nn.Conv2d(64, 64, 3, 1, 1, bias=False)
    weights = np.zeros((64, 64, 3, 3), np.float32)
    weights[range(64), range(64), 1, 1] = 1
    b.nn.load_state_arrays(layer, {"weight": weights})
    images = b.ops.tensor(np.full((8, 64, 64, 64), 1 + 2**-12, np.float32), device)
    with b.autograd.no_grad():
        products = b.ops.to_numpy(b.nn.place(layer, device, "float32")(images))
    lost = abs(products - (1 + 2**-12)).max() > 2**-14  # float32's own rounding is near 2^-23
    assert not lost or b.device.rounds_to_tf32(device) is True
    assert b.device.rounds_to_tf32("cpu") is False


@judges("device.compute_exactly")
def says_whether_products_still_lose_bits_when_told_to_be_exact(b: Backend) -> None:
    assert b.device.compute_exactly("cpu") is None
    assert b.device.rounds_to_tf32("cpu") is False
    b.device.compute_exactly(b.device.resolve(""))
    says_whether_products_lose_bits(b)


@judges("device.shapes_repeat")
def a_context_for_one_device_or_a_nested_one(b: Backend) -> None:
    for repeat in (True, False):
        with b.device.shapes_repeat("cpu", repeat), b.device.shapes_repeat("cpu", not repeat):
            halves = b.ops.to_numpy(b.ops.sigmoid(b.ops.tensor(np.zeros(3, np.float32))))
        assert halves.tolist() == [0.5] * 3


@judges("device.host_threads")
@judges("device.set_host_threads")
def threads_are_those_of_the_thread_that_asks(b: Backend) -> None:
    before = b.device.host_threads()
    assert isinstance(before, int) and before >= 1
    images = b.ops.tensor(np.ones((1, 3, 16, 16), np.float32))
    b.ops.to_numpy(b.ops.sigmoid(images))  # this thread has begun operations

    def with_threads(number: int) -> int:
        b.device.set_host_threads(number)
        values = b.ops.to_numpy(b.ops.sigmoid(images))
        np.testing.assert_allclose(values, 1 / (1 + np.exp(-1)), rtol=1e-6)
        return b.device.host_threads()

    try:
        with ThreadPoolExecutor(1) as pool:
            found = [pool.submit(with_threads, number).result() for number in (1, 2)]
        assert found[0] == 1 and found[1] in (1, 2)
        assert b.device.host_threads() == before
        several = found[1] == 2  # this backend's operations can take several
        assert with_threads(2) == (2 if several else 1) and with_threads(1) == 1
    finally:
        b.device.set_host_threads(before)
    assert b.device.host_threads() == before
    assert_refused("0", b.device.set_host_threads, 0)


@judges("device.supports")
def answers_for_each_capability(b: Backend) -> None:
    for capability in CAPABILITIES:
        assert isinstance(b.device.supports(capability), bool)
    assert_refused("cuda", b.device.supports, "teleportation")


@judges("device.is_out_of_memory")
def tells_it_from_other_errors(b: Backend) -> None:
    try:
        run_out_of_memory()
    except RuntimeError as error:
        assert b.device.is_out_of_memory(error)
    assert b.device.is_out_of_memory(MemoryError())
    assert b.device.is_out_of_memory(RuntimeError("CUDA error: out of memory"))
    assert b.device.is_out_of_memory(RuntimeError("CUBLAS_STATUS_ALLOC_FAILED"))
    assert not b.device.is_out_of_memory(RuntimeError("an illegal memory access"))
    assert not b.device.is_out_of_memory(ValueError("out of memory"))
    assert not b.device.is_out_of_memory(KeyboardInterrupt())


@judges("device.peak_memory")
def counts_what_a_call_takes_and_gives_back(b: Backend) -> None:
    size, kept = 64 * 2**20, []

    def take() -> None:
        kept.append(b.ops.to_numpy(b.zeros((size // 4,)) + 1.0))
        kept.clear()

    before = b.device.peak_memory(lambda: None, "cpu")
    assert 2**20 < before < 2**40
    assert b.device.peak_memory(take, "cpu") - before > 0.9 * size


@judges("device.used_memory")
def a_gpu_has_used_memory_and_a_cpu_none_of_its_own(b: Backend) -> None:
    assert b.device.used_memory("cpu") is None
    if b.device.supports("cuda"):
        b.device.synchronize("cuda:0")
        assert 0 <= b.device.used_memory("cuda:0") < 2**40


@judges("device.free_memory")
def a_gpu_has_free_memory_and_a_cpu_none_of_its_own(b: Backend) -> None:
    assert b.device.free_memory("cpu") is None
    if b.device.supports("cuda"):
        assert 0 < b.device.free_memory("cuda:0") < 2**40


@judges("device.page_lock")
@judges("device.copies_end")
def page_locked_memory_may_change_after_its_copies(b: Backend) -> None:
    for device in ("cpu", "cuda:0") if b.device.supports("cuda") else ("cpu",):
        memory = np.full(96, 7, np.uint8)
        b.device.page_lock(memory, device)
        assert (memory == 7).all()
        for part in (memory[32:80].reshape(2, 24), memory[:0], memory[::3]):
            part[...] = 8
            copied = b.ops.tensor(part, device)
            wait = b.device.copies_end(device)
            assert callable(wait)
            wait()
            part[...] = 9
            np.testing.assert_array_equal(b.ops.to_numpy(copied), np.full(part.shape, 8))
