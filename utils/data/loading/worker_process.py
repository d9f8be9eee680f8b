"""Processes that call one function, in an interpreter of their own.

multiprocessing's would import the program's main module, which may lack a guard, and would fix the
program's start method.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing import connection
from multiprocessing.connection import Connection, Pipe
from multiprocessing.reduction import ForkingPickler
from multiprocessing.spawn import get_executable
from pathlib import Path

from duet.utils.system.children import INTERRUPTS, inheriting
from duet.utils.system.files import number_for_child

HOME = str(Path(os.path.abspath(__file__)).parents[4])  # folder of the package `duet`
PROGRAM = (
    "import sys; sys.path[:] = sys.argv[2:]; "
    "from duet.utils.data.loading.worker_process import serve; serve(int(sys.argv[1]))"
)

_starting = threading.local()  # .numbers: of open files that the process being started inherits


def inherited(descriptor: int) -> int:
    """Let the process being started inherit an open file, while an argument of it is pickled.

    Returns its number there, for `open_inherited`.
    """
    number = number_for_child(descriptor)
    _starting.numbers.append(number)
    return number


def start_process(
    function: Callable[..., None], *arguments: object
) -> tuple[subprocess.Popen[bytes], Connection]:
    """Call `function(connection, *arguments)` in a new process; return it and its connection.

    It imports from the same folders. If it dies early, the connection ends.
    """
    _starting.numbers = []
    content = ForkingPickler.dumps((function, arguments))
    ours, theirs = Pipe()
    paths = [path or HOME for path in (*sys.path, HOME)]  # "" is the working folder at any time
    process = subprocess.Popen(
        [get_executable(), "-c", PROGRAM, str(theirs.fileno()), *paths],
        stdin=subprocess.DEVNULL,
        **inheriting([theirs.fileno(), *_starting.numbers]),
    )
    theirs.close()  # then ours ends when the process dies
    with contextlib.suppress(OSError):
        ours.send_bytes(content)
    return process, ours


def serve(number: int) -> None:
    """Call the function that an inherited connection names first."""
    for interrupt in INTERRUPTS:  # only the parent answers them
        signal.signal(interrupt, signal.SIG_IGN)
    parent = getattr(connection, "PipeConnection", Connection)(number)  # Windows has handles
    function, arguments = ForkingPickler.loads(parent.recv_bytes())
    function(parent, *arguments)
