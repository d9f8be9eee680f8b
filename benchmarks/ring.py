"""Bytes that each rank sends to sum an array over the ranks: by arithmetic, and counted.

    python -m benchmarks.ring --ranks 2 --mb 1 4 8

starts so many ranks of itself on this machine, as train.py does. A line for each size compares what
rank 0 sent, as Linux counts it for each connection, with `ring_bytes`.

docs/en/all-reduce.md explains the arithmetic. A ring sums gradients: each member exchanges its
part of the sum with its neighbours (Patarasuk and Yuan 2009: a ring moves the least bytes).
Exchange and computation do not overlap, which is the worst case.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from duet import backend
from duet.backend import dist, ops
from duet.backend.checks import CPU
from duet.backend.processes import this_process
from duet.backend.select import FRAMEWORKS, choose
from duet.utils.cli.flags import from_one, new_parser
from duet.utils.processes import watchdog
from duet.utils.processes.command import run_command
from duet.utils.processes.local_ranks import run_ranks

FLOAT = 4  # bytes
LIMIT_SECONDS = 60.0
MEGA = 10**6
BYTES_ACKED = 120  # in Linux's tcp_info: what the other end has confirmed; unsigned, 64 bits


@dataclass(frozen=True)
class Link:
    """The link of one device or machine to the next; both directions at once."""

    latency: float  # seconds a message
    bandwidth: float  # bytes a second, each way


def ring_bytes(size: float, members: int) -> float:
    """Return the bytes that each member of a ring sends, and receives, to sum `size` bytes."""
    return 2 * (members - 1) / members * size


def ring_seconds(size: float, members: int, link: Link) -> float:
    """Return the time of such a sum: 2 (members - 1) messages of latency + bytes / bandwidth."""
    return 2 * (members - 1) * link.latency + ring_bytes(size, members) / link.bandwidth


def bytes_sent() -> int:
    """Return what the other ends of this process's connections have received so far."""
    return sum(struct.unpack_from("Q", info, BYTES_ACKED)[0] for info in connections())


def connections() -> Iterator[bytes]:
    """Yield the tcp_info of each open connection of this process."""
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # of what is closed by now, and of what is no connection
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                with socket.socket(fileno=os.dup(descriptor)) as connection:
                    connection.getpeername()
                    yield connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)


def sent_to_sum(megabytes: int) -> tuple[int, int]:
    """Sum an array over the ranks; return the bytes that this rank sent, and those of the array."""
    mine = ops.tensor(np.full(megabytes * MEGA // FLOAT, 1 + this_process().rank, np.float32))
    dist.all_gather(np.zeros(1))  # all are here
    before = bytes_sent()
    dist.sum_(mine)
    summed = ops.to_numpy(mine)
    dist.all_gather(np.zeros(1))  # what was sent is confirmed
    assert (summed == sum(range(1, this_process().world_size + 1))).all()
    return bytes_sent() - before, megabytes * MEGA


def measure(sizes: list[int]) -> None:
    """Print a line for each size, in megabytes."""
    ranks = this_process().world_size
    for megabytes in sizes:
        sent, size = sent_to_sum(megabytes)
        if this_process().is_main:
            computed = ring_bytes(size, ranks)
            print(
                f"{ranks} ranks sum {megabytes} MB: rank 0 sent {sent / MEGA:.2f} MB; "
                f"a ring sends {computed / MEGA:.2f} MB"
            )


def main() -> None:
    parser = new_parser("python -m benchmarks.ring", "Bytes that a rank sends to sum an array.")
    add = parser.add_argument
    add("--backend", choices=FRAMEWORKS)
    add("--ranks", type=from_one, default=2, metavar="N")
    add("--mb", type=from_one, nargs="+", default=[1, 4, 8], metavar="MB", help="of the arrays")
    flags = parser.parse_args()
    if this_process().world_size == 1 and flags.ranks > 1:
        command = [sys.executable, "-m", "benchmarks.ring", *sys.argv[1:]]
        sys.exit(run_ranks(command, choose(flags.backend), {"WORLD_SIZE": str(flags.ranks)}))
    backend.use(flags.backend)
    dist.start(CPU, LIMIT_SECONDS)
    if this_process().world_size > 1:
        watchdog.start(LIMIT_SECONDS)
    measure(flags.mb)
    dist.stop()


if __name__ == "__main__":
    run_command(main, several=True)
