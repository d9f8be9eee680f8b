"""Processes of their own: what a program does wrong with a GPU shows on the emulated one.

`python -m tests.emulated.test_faults check_` makes the checks of one process, and with
`ranks_check_` under torchrun those of two ranks. The first rank prints the name of each.
"""

# ruff: noqa: E402
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

if os.environ["YOLO_BACKEND"] != "torch":
    pytest.skip("it is PyTorch's", allow_module_level=True)

import torch
from torch import distributed
from torch.distributed import HashStore

from tests.emulated.gpu import emulated_gpu
from tests.emulated.streams import ENGINE, GPU, NUM_GPUS, OWN, Link, inside, make_engine
from tests.environments import python

RANKS_CHECK = "ranks_check_"  # begins the names of the checks of two ranks
ZERO = torch.zeros(())


def page_locked(value: float) -> torch.Tensor:
    return torch.empty(3, pin_memory=True).fill_(value)


def numbers(x: torch.Tensor) -> list[float]:
    return x.cpu().nan_to_num(-1.0).tolist()


def check_work_is_late() -> None:
    x = page_locked(1.0).to("cuda:0", non_blocking=True) + 1.0
    assert x.memory.isnan().all()
    assert numbers(x) == [2.0] * 3


def check_a_host_array_filled_again_too_early() -> None:
    source = page_locked(1.0)
    x = source.to("cuda:0", non_blocking=True)
    source.fill_(5.0)
    assert numbers(x) == [5.0] * 3


def check_results_read_before_their_event() -> None:
    x = torch.ones(3, device="cuda:0") + 1.0
    host, arrived = torch.empty(3, pin_memory=True), torch.cuda.Event()
    host.copy_(x, non_blocking=True)
    arrived.record(torch.cuda.current_stream("cuda:0"))
    assert host.isnan().all()
    arrived.synchronize()
    assert host.tolist() == [2.0] * 3


def check_a_stream_that_does_not_wait_for_another() -> None:
    for waits, expected in ((False, -1.0), (True, 2.0)):
        beside = torch.cuda.Stream("cuda:0")
        with torch.cuda.stream(beside):
            x = page_locked(1.0).to("cuda:0", non_blocking=True)
        if waits:
            torch.cuda.current_stream("cuda:0").wait_stream(beside)
        assert numbers(x + 1.0) == [expected] * 3


def check_a_stream_that_waits_for_another_too_early() -> None:
    current, beside = torch.cuda.current_stream("cuda:0"), torch.cuda.Stream("cuda:0")
    found = set()
    for _ in range(2):  # the other one goes no further, or does all
        current.wait_stream(beside)
        with torch.cuda.stream(beside):
            x = page_locked(1.0).to("cuda:0", non_blocking=True)
        found.update(numbers(x + 1.0))
    assert found == {-1.0, 2.0}


def check_memory_freed_while_another_stream_reads_it() -> None:
    current, beside = torch.cuda.current_stream("cuda:0"), torch.cuda.Stream("cuda:0")
    for records, expected in ((False, {-1.0, 2.0}), (True, {2.0})):
        found = set()
        for _ in range(2):
            with torch.cuda.stream(beside):
                x = page_locked(1.0).to("cuda:0", non_blocking=True)
            current.wait_stream(beside)
            if records:
                x.record_stream(current)
            y = x + 1.0
            del x
            found.update(numbers(y))
        assert found == expected


def check_memory_freed_while_a_stream_beside_reads_it() -> None:
    for records, expected in ((False, -1.0), (True, 2.0)):
        current, beside = torch.cuda.current_stream("cuda:0"), torch.cuda.Stream("cuda:0")
        x = torch.ones(3, device="cuda:0")
        beside.wait_stream(current)
        with torch.cuda.stream(beside):
            y = x + 1.0
            if records:
                x.record_stream(beside)
            del x
            later = torch.cuda.Event()
            later.record(current)
            later.synchronize()
            assert numbers(y) == [expected] * 3


def check_a_copy_to_the_host_read_too_early() -> None:
    x = torch.ones(3, device="cuda:0") + 1.0
    host, before = x.to("cpu", non_blocking=True), GPU.waits
    assert host.isnan().all() and host.is_pinned()
    torch.cuda.synchronize()
    assert host.tolist() == [2.0] * 3 and GPU.waits == before + 1


def check_memory_that_nobody_wrote() -> None:
    for x in (torch.empty(3, device="cuda:0"), torch.ones(3, device="cuda:0").new_empty(3)):
        assert numbers(x) == [-1.0] * 3


def check_two_devices_in_one_operation() -> None:
    x, one = torch.ones(3, device="cuda:0"), torch.tensor(1.0).to("cuda:0")
    others = torch.ones(3), torch.ones(3, device="cuda:1")
    for run in (lambda: x + others[0], lambda: x + others[1], lambda: ZERO.add_(one)):
        assert "two devices" in refusal(run)


def check_a_wait_for_another_gpu() -> None:
    x = torch.ones(3, device="cuda:1") + 1.0
    torch.cuda.synchronize()
    assert x.memory.isnan().all()
    with torch.cuda.device(1):
        torch.cuda.synchronize()
    assert x.memory.tolist() == [2.0] * 3


def check_a_number_of_the_host_is_read_at_once() -> None:
    number = torch.tensor(1.0)
    x = torch.ones(3, device="cuda:0") + number
    number.fill_(5.0)
    assert numbers(x) == [2.0] * 3


def check_what_is_not_emulated_is_refused() -> None:
    assert "shape" in refusal(lambda: torch.ones(1, 3, device="cuda:0").squeeze_(0))
    assert "dtype" in refusal(lambda: torch.autocast("cuda"))
    with torch.autocast("cuda", torch.bfloat16):
        assert "autocast" in refusal(lambda: torch.rsqrt(torch.ones(3, device="cuda:0")))


def refusal(run: Callable[[], object]) -> str:
    """Return what an operation is refused with; "" if it runs."""
    try:
        run()
    except RuntimeError as error:
        return str(error)
    return ""


def check_each_wait_is_counted() -> None:
    x = torch.ones(3, device="cuda:0")
    for read in (torch.Tensor.cpu, torch.Tensor.nonzero, lambda x: x[x > 0], lambda x: x[0].item()):
        before = GPU.waits
        read(x)
        assert GPU.waits == before + 1, read


def check_gradients_are_those_of_a_cpu() -> None:
    found = []
    for device in ("cpu", "cuda:0"):
        weight = torch.arange(1.0, 7.0).reshape(2, 3).to(device).requires_grad_()
        (weight @ weight.T).tanh().sum().backward()
        found.append(weight.grad.cpu())
    assert torch.equal(*found)


# Of two ranks.

HERE, ELSEWHERE = f"cuda:{OWN}", f"cuda:{(OWN + 1) % NUM_GPUS}"


def ones(**options: Any) -> torch.Tensor:
    return torch.ones(3, **{"device": HERE, **options})


def ranks_check_a_collective_is_late_and_the_host_does_not_wait() -> None:
    x, waits = ones(), GPU.waits
    distributed.all_reduce(x)
    assert x.memory.isnan().all() and GPU.waits == waits
    assert numbers(x) == [2.0] * 3


def ranks_check_a_sum_that_is_used_before_it_is_there() -> None:
    for waits, expected in ((False, 1.0), (True, 2.0)):
        x = ones()
        work = distributed.all_reduce(x, async_op=True)
        if waits:
            work.wait()
        assert numbers(x) == [expected] * 3
        Link.stream.run()


def ranks_check_each_collective_gives_what_all_ranks_sent() -> None:
    mine = ones() * OWN
    found = [torch.empty(3, device=HERE) for _ in range(2)]
    distributed.all_gather(found, mine)
    assert [numbers(x) for x in found] == [[0.0] * 3, [1.0] * 3]
    distributed.broadcast(mine, 1)
    assert numbers(mine) == [1.0] * 3


def ranks_check_ranks_that_meet_in_another_order_on_the_host() -> None:
    x, host = ones(), torch.ones(3)
    distributed.all_reduce(x)
    if OWN == 0:
        numbers(x)
    distributed.all_reduce(host)
    assert host.tolist() == numbers(x) == [2.0] * 3


def ranks_check_a_sum_of_sums_that_the_host_waits_for() -> None:
    x = ones()
    distributed.all_reduce(x)
    y = x * 2
    distributed.all_reduce(y)
    torch.cuda.synchronize(HERE)
    assert y.memory.tolist() == [8.0] * 3


def ranks_check_a_tensor_of_the_host_under_nccl() -> None:
    group = distributed.new_group(backend=f"{inside(0).type}:{ENGINE}")
    assert "No backend type" in refusal(lambda: distributed.all_reduce(torch.ones(3), group=group))


def ranks_check_a_tensor_of_the_gpu_of_another_rank() -> None:
    assert "this rank is" in refusal(lambda: distributed.all_reduce(ones(device=ELSEWHERE)))


def ranks_check_an_operation_that_nccl_lacks() -> None:
    assert "NCCL lacks it" in refusal(lambda: distributed.recv(ones(), src=None))


def ranks_check_a_tensor_with_gaps() -> None:
    x = torch.ones(3, 2, device=HERE)[:, 0]
    assert "must be contiguous" in refusal(lambda: distributed.all_reduce(x))


def ranks_check_two_ranks_on_one_gpu() -> None:
    store = HashStore()
    store.add(HERE, 1)
    assert "Duplicate GPU" in refusal(lambda: make_engine(store, 0, 2, None))


# The tests.


def names_of(which: str) -> list[str]:
    return sorted(name for name in globals() if name.startswith(which))


@pytest.mark.parametrize("which", ["check_", RANKS_CHECK])
def test_emulated_gpu_shows_each_fault(which: str) -> None:
    from tests.distributed.conftest import run_ranks  # with models, which come after the GPU

    words = ("-m", "tests.emulated.test_faults", which)
    done = python(*words) if which == "check_" else run_ranks(2, *words, raw=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == names_of(which) != []


if __name__ == "__main__":
    (which,) = sys.argv[1:]
    with emulated_gpu():
        if which == RANKS_CHECK:
            distributed.init_process_group("cpu:gloo,cuda:nccl", device_id=torch.device(HERE))
        for name in names_of(which):
            globals()[name]()
            if OWN == 0:
                print(name, flush=True)
        if which == RANKS_CHECK:
            distributed.destroy_process_group()
            # Not by the interpreter's end, in which a thread of gloo, which refused collectives
            # have left waiting, aborts now and then.
            os._exit(0)
