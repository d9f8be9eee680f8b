"""The processes that run one command together: joining them, and what the first alone does.

Before: a launcher started them. After: `train.py` and `val.py` share the work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import NamedTuple, ParamSpec, TypeVar

import numpy as np

import backend
from backend.processes import processes
from utils.cli.run_config import RunConfig
from utils.errors import UserError
from utils.processes import watchdog
from utils.processes.process_family import ending_after_sigterm
from utils.processes.share import WHOLE, AllGather, Share, gather_alone

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Ranks(NamedTuple):
    """This process's share of the work, and the way to the others; by default it is alone."""

    share: Share = WHOLE
    all_gather: AllGather = gather_alone

    def any(self, flag: bool) -> bool:
        """Whether it holds on some rank; all of them ask at the same moments."""
        return bool(np.concatenate(self.all_gather(np.array([flag], np.uint8))).any())

    def of_main(self, text: str) -> str:
        """The first rank's text, on all of them; what it did before is done when they have it."""
        return self.all_gather(np.frombuffer(text.encode(), np.uint8))[0].tobytes().decode()

    def all_have(self, text: str) -> bool:
        """Whether all ranks have the same text."""
        texts = self.all_gather(np.frombuffer(text.encode(), np.uint8))
        return all(np.array_equal(other, texts[0]) for other in texts)


ALONE = Ranks()


@contextmanager
def joined(config: RunConfig, was_terminated: bool = False) -> Iterator[Ranks]:
    """Work with the other ranks, which a watchdog watches; leave when all have come to the end.

    Of several processes each imports its framework here, before any work is shared; one that is
    alone does it when it needs it. Who answers SIGTERM does so again from then on.

    Raises:
        UserError: the environment does not say where the others are.
    """
    place = processes()
    if place.world_size == 1:
        yield ALONE
        return
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if not os.environ.get(name):
            raise UserError(
                f"RANK and WORLD_SIZE={place.world_size} are set, but {name} is not; set it to "
                "where rank 0 listens, or unset them and use --nproc"
            )
    with ending_after_sigterm(was_terminated):
        backend.use(config.backend)
        backend.dist.start(backend.device.resolve(config.device), config.timeout)
        watchdog.start(config.timeout, backend.dist.all_gather)
    yield Ranks(Share(place.rank, place.world_size), backend.dist.all_gather)
    backend.dist.stop()


def on_main(function: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """A function that the first rank runs, and the others skip: it writes or prints."""

    @wraps(function)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        if processes().is_main:
            function(*args, **kwargs)

    return run
