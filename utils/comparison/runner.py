"""Run one command to its end in its own process group, and measure time and memory."""

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

from duet.utils.processes.process_family import (
    ask_for_signal_when_parent_ends,
    descendants,
    ending_children,
)

POLL_SECONDS = 0.05
SECONDS_TO_END = 10
DEVICE_POLL_MILLISECONDS = 500
# No side rounds float32 to TF32, since OneFlow 0.9 and other trainers have no flag for it. What the
# user sets goes before.
ALIKE = {"NVIDIA_TF32_OVERRIDE": "0"}


@dataclass(frozen=True)
class Outcome:
    """How a process ended."""

    exit_code: int  # negative for the number of the signal that ended it
    timed_out: bool  # it was ended because it took too long
    seconds: float  # from its start to its end
    processor_seconds: float  # user and system time of all its processes
    peak_host_mib: float  # peak of its largest process, sampled every POLL_SECONDS
    peak_device_mib: float | None  # rise of the used memory of all GPUs; None without nvidia-smi


def run_process(
    command: Sequence[str],
    log: Path,
    timeout: float,
    devices: str,
    watchers: Sequence[Callable[[], None]] = (),
) -> Outcome:
    """Run a command without a shell; on Ctrl-C end all its processes and raise KeyboardInterrupt.

    At its end this process has no others that it started.

    Args:
        command: program and arguments.
        log: takes what it prints.
        timeout: seconds after which it is ended.
        devices: as for train.py, such as "0,1"; "cpu" asks nvidia-smi nothing.
        watchers: called again and again while it runs, and once after its end.

    Raises:
        OSError: the program cannot be started.
    """
    samples = log.with_suffix(".device-memory")
    with log.open("wb") as stream, device_memory(devices, samples), ending_children():
        start, taken = time.monotonic(), sum(os.times()[2:4])  # of children that have ended
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=ask_for_signal_when_parent_ends,
            env={**ALIKE, **os.environ},
        )
        memory = PeakMemory(process.pid)
        try:
            timed_out = not _wait(process, start + timeout, (memory, *watchers))
        except BaseException:
            _end(process, signal.SIGINT)
            raise
        if timed_out:
            _end(process, signal.SIGTERM)
        seconds = time.monotonic() - start
    taken = sum(os.times()[2:4]) - taken
    for look in watchers:
        look()
    peak_device = rise(samples, 1 + devices.count(","))
    samples.unlink(missing_ok=True)
    return Outcome(process.returncode, timed_out, seconds, taken, memory.kib / 1024, peak_device)


def _wait(
    process: subprocess.Popen[bytes], deadline: float, watchers: Sequence[Callable[[], None]]
) -> bool:
    """Return whether the process ended before the deadline."""
    while process.poll() is None:
        if time.monotonic() > deadline:
            return False
        for look in watchers:
            look()
        time.sleep(POLL_SECONDS)
    return True


def _end(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to the process group, and give it time to end."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
    _wait(process, time.monotonic() + SECONDS_TO_END, ())
    process.kill()  # no effect if it has ended
    process.wait()


class PeakMemory:
    """The largest resident size, in KiB, of a process and those that it started; Linux only.

    The peak of `wait4` cannot be used: a process inherits it from its parent.
    """

    def __init__(self, process: int) -> None:
        self._process = process
        self.kib = 0

    def __call__(self) -> None:
        """Look again."""
        for process in (self._process, *descendants(self._process)):
            with contextlib.suppress(OSError):  # it may have ended meanwhile
                lines = Path("/proc", str(process), "status").read_text(errors="replace")
                peaks = [int(x.split()[1]) for x in lines.splitlines() if x.startswith("VmHWM:")]
                self.kib = max([self.kib, *peaks])


@contextlib.contextmanager
def device_memory(devices: str, samples: Path) -> Iterator[None]:
    """Have nvidia-smi write the GPUs' used memory (MiB per line, in turn) into a file in the block.

    It is measured from outside, so both frameworks and any other trainer are treated alike. The
    memory that their allocators keep in reserve is included.
    """
    program = shutil.which("nvidia-smi")
    if program is None or devices == "cpu":
        yield
        return
    # nvidia-smi ignores CUDA_VISIBLE_DEVICES.
    visible = dict(enumerate(filter(None, os.environ.get("CUDA_VISIBLE_DEVICES", "").split(","))))
    numbers = [device.removeprefix("cuda:") or "0" for device in devices.split(",")]
    physical = [visible.get(int(x), x) if x.isdecimal() else x for x in numbers]
    command = [program, "--query-gpu=memory.used", "--format=csv,noheader,nounits",
        "-i", ",".join(physical), "-lms", str(DEVICE_POLL_MILLISECONDS)]  # fmt: skip
    with samples.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.DEVNULL)
    try:
        time.sleep(2 * DEVICE_POLL_MILLISECONDS / 1000)  # a line before the run begins
        yield
    finally:
        process.kill()
        process.wait()


def rise(samples: Path, gpus: int) -> float | None:
    """Sum over GPUs the largest line minus the first, MiB; None if nothing was measured."""
    if not samples.exists():
        return None
    lines = samples.read_text(encoding="utf-8", errors="replace").split()
    numbers = [float(line) for line in lines if line.isdecimal()]
    of_each = [numbers[gpu::gpus] for gpu in range(gpus)]
    return sum(max(mib) - mib[0] for mib in of_each) if all(of_each) else None
