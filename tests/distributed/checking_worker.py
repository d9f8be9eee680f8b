"""One rank of those that run the conformance checks of `dist`; writes what failed as JSON.

`python -m tests.distributed.checking_worker FOLDER` under a launcher.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path

from duet import backend
from duet.backend.processes import this_process
from duet.utils.processes.command import run_command
from duet.utils.system.children import delay_abort
from tests.conformance.checks_dist import network  # noqa: F401  registers its checks
from tests.conformance.judging import CHECKS, Backend

TIMEOUT_S = 240.0


def main(folder: Path) -> None:
    backend.use()
    backend.dist.start("cpu", TIMEOUT_S)
    delay_abort()
    failures = {}
    for check in CHECKS:
        try:
            check.run(Backend())
        except AssertionError:
            failures[check.label] = traceback.format_exc()
    document = {"world_size": this_process().world_size, "failures": failures}
    (folder / f"rank{this_process().rank}.json").write_text(json.dumps(document))
    backend.dist.stop()


if __name__ == "__main__":
    run_command(lambda: main(Path(sys.argv[1])), several=True)
