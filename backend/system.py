"""What the backends ask the system and Python: cores, control groups, memory, the collector.

The only file of backend/ that knows one; `utils/system/` has the rest. Linux reports all of it;
elsewhere a plain answer is given.
"""

import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

with suppress(ImportError):  # not on Windows
    import resource

# The driver library through which every framework reaches an NVIDIA GPU.
NVIDIA_DRIVER = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
CONTROL_GROUPS = Path("/sys/fs/cgroup")
NODES, DEVICES = Path("/sys/devices/system/node"), Path("/sys/bus/pci/devices")
OWN_GROUPS = Path("/proc/self/cgroup")
CLEAR_REFERENCES, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
RESET_PEAK = "5"  # man 5 proc: resets the peak to the current resident size
PEAK = "VmHWM:"


def cores_of(process: int = 0) -> set[int]:
    """Return the cores a process, 0 for this one, may run on; all where systems bind none."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return os.sched_getaffinity(process)
    return set(range(os.cpu_count() or 1))


def can_bind() -> bool:
    return hasattr(os, "sched_setaffinity")  # Linux


def bind_to(cores: set[int]) -> None:
    os.sched_setaffinity(0, cores)


def group_folders(controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control groups for a controller, and their parents."""
    lines = OWN_GROUPS.read_text(encoding="utf-8").splitlines() if OWN_GROUPS.exists() else []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = CONTROL_GROUPS / controllers if controllers else CONTROL_GROUPS
        group = root / path.lstrip("/")
        yield from (group, *(parent for parent in group.parents if parent.is_relative_to(root)))
    yield CONTROL_GROUPS  # a container may not see its own path


@contextmanager
def variables(**values: str) -> Iterator[None]:
    """Set environment variables in the block, unless the user has set them."""
    absent = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(absent)
    try:
        yield
    finally:
        for name in absent:
            del os.environ[name]


def without_telemetry() -> AbstractContextManager[None]:
    """Return a context in which ONNX Runtime, from 1.29, can be imported and sends no events.

    It reads the variable only then.
    """
    return variables(ORT_DISABLE_TELEMETRY="1")


def peak_during(run: Callable[[], object]) -> int:
    """Return the process's peak memory in bytes during a call, or ever if it cannot be reset.

    0 on Windows, which reports none to the standard library.
    """
    with suppress(OSError):  # not Linux, or /proc is read-only
        CLEAR_REFERENCES.write_text(RESET_PEAK, encoding="ascii")
    run()
    try:
        lines = STATUS.read_text(encoding="utf-8").splitlines()
        (kibibytes,) = (int(line.split()[1]) for line in lines if line.startswith(PEAK))
    except (OSError, ValueError):
        return _peak_ever()
    return kibibytes * 1024


def _peak_ever() -> int:
    if "resource" not in globals():
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector, also as a decorator: for many new objects without cycles.

    It would scan all of them again and again: a quarter of the time that a COCO file takes, a sixth
    of a short command's with PyTorch.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def age_objects() -> None:
    """Move all objects into the oldest generation, which the collector rarely scans."""
    if not gc.get_freeze_count():  # else a caller's frozen objects would be unfrozen
        gc.freeze()
        gc.unfreeze()
