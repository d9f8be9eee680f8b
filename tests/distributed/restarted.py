"""A rank that adds numbers with the others; in the first attempt, rank 1 is killed while it does.

`python -m tests.distributed.restarted` under `torchrun --max-restarts`.
"""

import os
import signal
import time

from duet import backend

backend.use()

from duet.backend import dist, ops  # noqa: E402
from duet.backend.processes import this_process  # noqa: E402

dist.start("cpu", 60)
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
for step in range(3 if attempt else 1000):
    total = ops.full((1,), 1.0)
    dist.sum_(total)
    assert ops.to_numpy(total).tolist() == [2.0]
    if attempt == 0 and step == 20 and this_process().rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.02)
if this_process().is_main:
    print("done in attempt", attempt, flush=True)
