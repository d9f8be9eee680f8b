"""A process of its own: what a program does wrong with a GPU shows on the emulated one.

Prints the name of each check.
"""

from __future__ import annotations

import copy

import torch

from tests.emulated.gpu import emulated_gpu
from tests.emulated.streams import GPU


def page_locked(value: float) -> torch.Tensor:
    return torch.empty(3, pin_memory=True).fill_(value)


def numbers(x: torch.Tensor) -> list[float]:
    return x.cpu().nan_to_num(-1.0).tolist()


def check_work_is_late() -> None:
    x = page_locked(1.0).to("cuda:0", non_blocking=True) + 1.0
    assert x.memory.isnan().all()
    assert numbers(x) == [2.0] * 3


def check_work_can_be_done_at_once() -> None:
    GPU.at_once = True
    x = page_locked(1.0).to("cuda:0", non_blocking=True) + 1.0
    GPU.at_once = False
    assert x.memory.tolist() == [2.0] * 3


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


def check_memory_freed_while_another_stream_reads_it() -> None:
    for records, expected in ((False, -1.0), (True, 2.0)):
        current, beside = torch.cuda.current_stream("cuda:0"), torch.cuda.Stream("cuda:0")
        with torch.cuda.stream(beside):
            x = page_locked(1.0).to("cuda:0", non_blocking=True)
        current.wait_stream(beside)
        if records:
            x.record_stream(current)
        y = x + 1.0
        del x
        assert numbers(y) == [expected] * 3


def check_two_devices_in_one_operation() -> None:
    for other in (torch.ones(3), torch.ones(3, device="cuda:1")):
        try:
            torch.ones(3, device="cuda:0") + other
        except RuntimeError as error:
            assert "two devices" in str(error)
        else:
            raise AssertionError("it ran")


def check_a_wait_for_another_gpu() -> None:
    x = torch.ones(3, device="cuda:1") + 1.0
    torch.cuda.synchronize()
    assert x.memory.isnan().all()
    with torch.cuda.device(1):
        torch.cuda.synchronize()
    assert x.memory.tolist() == [2.0] * 3


def check_memory_that_a_tensor_takes_over() -> None:
    x = torch.ones(3, device="cuda:0")
    x.data = x.double() + 1.0
    assert x.dtype == torch.float64 and numbers(x) == [2.0] * 3


def check_a_copy_is_late_too() -> None:
    x = copy.deepcopy(torch.nn.Parameter(torch.ones(3, device="cuda:0") + 1.0))
    assert x.memory.isnan().all() and isinstance(x, torch.nn.Parameter)
    assert numbers(x.detach()) == [2.0] * 3


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


if __name__ == "__main__":
    with emulated_gpu():
        for name, check in sorted(globals().items()):
            if name.startswith("check_"):
                check()
                print(name)
