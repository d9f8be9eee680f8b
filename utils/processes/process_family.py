"""Make sure that ranks do not outlive their launcher, nor wait for each other forever."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import threading
import time
from collections.abc import Iterator

import psutil

from duet.utils.processes.start import handling
from duet.utils.text import STDERR

PARENT_POLL_SECONDS = 0.5
ORPHAN_SECONDS = 30  # as long as torchrun waits after SIGTERM


def end_as_orphan() -> None:
    """End this process when its parent ends: SIGTERM at once, exit after ORPHAN_SECONDS.

    In between, a process that handles SIGTERM has time to save its state. The parent is polled:
    some launchers start ranks in threads that end.
    """
    threading.Thread(target=_end_after, args=(os.getppid(),), daemon=True, name="orphan").start()


def _end_after(parent: int) -> None:
    # Windows keeps the number of a parent that has ended.
    while os.getppid() == parent and (os.name != "nt" or psutil.pid_exists(parent)):
        time.sleep(PARENT_POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(ORPHAN_SECONDS)
    os._exit(1)


@contextlib.contextmanager
def ending_in_any_call(seconds: float) -> Iterator[None]:
    """End this process on SIGTERM or Ctrl-C in the block, or after a time limit.

    Ranks wait for each other in calls that block all Python threads, such as `import oneflow`.
    There is nothing to save at that point.
    """
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    ending = {signal.SIGTERM} if ignored else {signal.SIGTERM, signal.SIGINT}
    faulthandler.dump_traceback_later(seconds, exit=True, file=STDERR)
    try:
        with handling(dict.fromkeys(ending, signal.SIG_DFL)):
            yield
    finally:
        faulthandler.cancel_dump_traceback_later()
