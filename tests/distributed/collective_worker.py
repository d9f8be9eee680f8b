"""A rank that adds numbers over all ranks, again and again: `test_two_machines.py` starts it.

    launcher ... -m tests.distributed.collective_worker FOLDER SUMS SECONDS

Writes FOLDER/rank<R>-sum<N> after the N-th sum, with its value as text. When a sum takes longer
than so many seconds it ends with status 1, as the watchdog of train.py does.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import numpy as np

from backend import dist, ops
from backend.processes import processes


def main() -> None:
    folder, sums, seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    dist.start("cpu", 10 * seconds)
    rank = processes().rank
    for number in range(sums):
        # os._exit: an exception in one rank of OneFlow would be waited for without end.
        alarm = threading.Timer(seconds, os._exit, [1])
        alarm.start()
        value = ops.tensor(np.float32([rank + number]))
        dist.sum_(value)
        total = ops.to_numpy(value)[0]
        alarm.cancel()
        (folder / f"rank{rank}-sum{number}").write_text(f"{total:g}")
    dist.stop()


if __name__ == "__main__":
    main()
