"""The machine that a comparison ran on."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backend.openmp import THREADS, WAITING
from utils.errors import UserError

# They decide how many threads a framework has, how these wait, and on a GPU whether it rounds.
VARIABLES = (
    *WAITING,
    *THREADS,
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_TF32_OVERRIDE",
    "ONEFLOW_EP_CUDA_ENABLE_TF32_EXECUTION",
)


def describe_machine() -> dict[str, Any]:
    """Return processor, cores, memory, system, GPUs and the variables that frameworks read."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(pages / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "gpus": gpus(),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


def require_same_machine(before: Mapping[str, Any], now: Mapping[str, Any], folder: Path) -> None:
    """Raise UserError if the figures in a folder were measured on another machine."""
    changed = [name for name in now if now[name] != before.get(name)]
    if changed:
        listed = "; ".join(f"{name} was {before.get(name)}, is {now[name]}" for name in changed)
        raise UserError(
            f"--resume {folder}: begun on another machine ({listed}); start a new comparison"
        )


def processor() -> str:
    """Return the processor's name if Linux gives it, else the machine's type."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def gpus() -> list[str]:
    """Return name and driver version of the GPUs that nvidia-smi lists."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []
