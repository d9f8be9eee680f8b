"""One of two ranks: what a program does wrong with collectives shows on emulated GPUs.

`python -m tests.emulated.rank_faults` under torchrun. Rank 0 prints the name of each check.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed
from torch.distributed import HashStore

from tests.emulated import collectives
from tests.emulated.faults import numbers
from tests.emulated.gpu import emulated_gpu
from tests.emulated.streams import GPU, NUM_GPUS, OWN, inside

HERE, ELSEWHERE = f"cuda:{OWN}", f"cuda:{(OWN + 1) % NUM_GPUS}"


def ones(**options: Any) -> torch.Tensor:
    return torch.ones(3, **{"device": HERE, **options})


def fails(run: Callable[[], object], text: str) -> bool:
    try:
        run()
    except RuntimeError as error:
        assert text in str(error), error
        return True
    return False


def check_a_collective_is_late_and_the_host_does_not_wait() -> None:
    x, waits = ones(), GPU.waits
    distributed.all_reduce(x)
    assert x.memory.isnan().all() and GPU.waits == waits
    assert numbers(x) == [2.0] * 3


def check_a_sum_that_is_used_before_it_is_there() -> None:
    for waits, expected in ((False, 1.0), (True, 2.0)):
        x = ones()
        work = distributed.all_reduce(x, async_op=True)
        if waits:
            work.wait()
        assert numbers(x) == [expected] * 3
        collectives.Link.stream.run()


def check_each_collective_gives_what_all_ranks_sent() -> None:
    mine = ones() * OWN
    found = [torch.empty(3, device=HERE) for _ in range(2)]
    distributed.all_gather(found, mine)
    assert [numbers(x) for x in found] == [[0.0] * 3, [1.0] * 3]
    distributed.broadcast(mine, 1)
    assert numbers(mine) == [1.0] * 3


def check_ranks_that_meet_in_another_order_on_the_host() -> None:
    x, host = ones(), torch.ones(3)
    distributed.all_reduce(x)
    if OWN == 0:
        numbers(x)
    distributed.all_reduce(host)
    assert host.tolist() == numbers(x) == [2.0] * 3


def check_a_sum_of_sums_that_the_host_waits_for() -> None:
    x = ones()
    distributed.all_reduce(x)
    y = x * 2
    distributed.all_reduce(y)
    torch.cuda.synchronize(HERE)
    assert y.memory.tolist() == [8.0] * 3


def check_a_tensor_of_the_host_under_nccl() -> None:
    group = distributed.new_group(backend=f"{inside(0).type}:{collectives.ENGINE}")
    assert fails(lambda: distributed.all_reduce(torch.ones(3), group=group), "No backend type")


def check_a_tensor_of_the_gpu_of_another_rank() -> None:
    assert fails(lambda: distributed.all_reduce(ones(device=ELSEWHERE)), "this rank is")


def check_an_operation_that_nccl_lacks() -> None:
    assert fails(lambda: distributed.recv(ones(), src=None), "NCCL lacks it")


def check_a_tensor_with_gaps() -> None:
    x = torch.ones(3, 2, device=HERE)[:, 0]
    assert fails(lambda: distributed.all_reduce(x), "must be contiguous")


def check_two_ranks_on_one_gpu() -> None:
    store = HashStore()
    store.add(HERE, 1)
    assert fails(lambda: collectives.make_engine(store, 0, 2, None), "Duplicate GPU")


if __name__ == "__main__":
    with emulated_gpu():
        distributed.init_process_group("cpu:gloo,cuda:nccl", device_id=torch.device(HERE))
        for name, check in sorted(globals().items()):
            if name.startswith("check_"):
                check()
                if OWN == 0:
                    print(name)
        distributed.destroy_process_group()
        sys.stdout.flush()
        # Not by the interpreter's end, in which a thread of gloo, which refused collectives have
        # left waiting, aborts now and then.
        os._exit(0)
