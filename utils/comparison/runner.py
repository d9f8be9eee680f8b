"""Run one command to its end as a process group of its own, and say what it took.

Before: `plan.py` says which. After: `measured.py` reads what the run wrote.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

POLL_SECONDS = 0.05
SECONDS_TO_END = 10
DEVICE_POLL_MILLISECONDS = 500


@dataclass(frozen=True)
class Outcome:
    """How a process ended.

    Attributes:
        exit_code: negative for the number of the signal that ended it.
        timed_out: it was ended because it took too long.
        seconds: from its start to its end.
        peak_host_mib: of its largest process, as seen every POLL_SECONDS.
        peak_device_mib: that the GPU's used memory rose; None where nvidia-smi is not there.
    """

    exit_code: int
    timed_out: bool
    seconds: float
    peak_host_mib: float
    peak_device_mib: float | None


def run_process(
    command: Sequence[str],
    log: Path,
    timeout: float,
    device: str,
    watch: Callable[[], None] = lambda: None,
) -> Outcome:
    """Run a command without a shell; on Ctrl-C end all its processes and raise KeyboardInterrupt.

    Args:
        command: program and arguments.
        log: takes what it prints.
        timeout: seconds after which it is ended.
        device: as for train.py; "cpu" asks nvidia-smi nothing.
        watch: called again and again while it runs.

    Raises:
        OSError: the program cannot be started.
    """
    samples = log.with_suffix(".device-memory")
    with log.open("wb") as stream, device_memory(device, samples):
        start, process = time.monotonic(), None
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            memory = PeakMemory(process.pid)
            timed_out = not _wait(process, start + timeout, (memory, watch))
            if timed_out:
                _end(process, signal.SIGTERM)
        except BaseException:
            if process is not None:
                _end(process, signal.SIGINT)
            raise
        seconds = time.monotonic() - start
        _signal_group(process, signal.SIGKILL)  # what it may have left behind
        watch()
    peak_device = rise(samples)
    samples.unlink(missing_ok=True)
    return Outcome(process.returncode, timed_out, seconds, memory.kib / 1024, peak_device)


def _wait(
    process: subprocess.Popen[bytes], deadline: float, watchers: Sequence[Callable[[], None]]
) -> bool:
    """Whether the process ended before the deadline."""
    while process.poll() is None:
        if time.monotonic() > deadline:
            return False
        for look in watchers:
            look()
        time.sleep(POLL_SECONDS)
    return True


def _end(process: subprocess.Popen[bytes], first: signal.Signals) -> None:
    """Ask the whole group to end, then make it."""
    try:
        _signal_group(process, first)
        _wait(process, time.monotonic() + SECONDS_TO_END, ())
    finally:  # at a second Ctrl-C too
        _signal_group(process, signal.SIGKILL)
        process.wait()


class PeakMemory:
    """The largest resident size, in KiB, that a process or one it started has had; Linux only.

    The peak that `wait4` reports would not do: a process inherits it from the one that started it.
    """

    def __init__(self, process: int) -> None:
        self._process = process
        self.kib = 0

    def __call__(self) -> None:
        """Look again."""
        pending = [self._process]
        while pending:
            folder = Path("/proc", str(pending.pop()))
            # It may have ended meanwhile.
            with contextlib.suppress(OSError):
                lines = Path(folder, "status").read_text(errors="replace").splitlines()
                peaks = [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
                self.kib = max([self.kib, *peaks])
                children = Path(folder, "task", folder.name, "children").read_text()
                pending += map(int, children.split())


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


@contextlib.contextmanager
def device_memory(device: str, samples: Path) -> Iterator[None]:
    """Have nvidia-smi write the GPU's used memory (MiB a line) into a file meanwhile.

    Asked from outside, both frameworks and any other trainer are measured alike, with what their
    allocators keep in reserve.
    """
    program = shutil.which("nvidia-smi")
    if program is None or device == "cpu":
        yield
        return
    command = [
        program, "--query-gpu=memory.used", "--format=csv,noheader,nounits",
        "-i", _physical(device), "-lms", str(DEVICE_POLL_MILLISECONDS),
    ]  # fmt: skip
    with samples.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.DEVNULL)
    try:
        time.sleep(2 * DEVICE_POLL_MILLISECONDS / 1000)  # a line before the run begins
        yield
    finally:
        process.kill()
        process.wait()


def _physical(device: str) -> str:
    """The GPU as nvidia-smi counts, which CUDA_VISIBLE_DEVICES does not touch."""
    number = device.removeprefix("cuda:") or "0"
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return visible[int(number)] if number.isdecimal() and int(number) < len(visible) else number


def rise(samples: Path) -> float | None:
    """Largest line less the first, MiB; None where nothing was measured."""
    if not samples.exists():
        return None
    lines = samples.read_text(encoding="utf-8", errors="replace").split()
    numbers = [float(line) for line in lines if line.isdecimal()]
    return max(numbers) - numbers[0] if numbers else None
