"""The first steps of a command, before imports that may be slow or missing.

Standard library only, in Python 3.8 syntax.
"""

from __future__ import annotations

import importlib.util
import os
import sys

from duet.utils.processes.interrupt import end_at_interrupt
from duet.utils.project import PROJECT, STAMP

OLDEST = (3, 10)
PACKAGES = ("cv2", "matplotlib", "numpy", "PIL", "pycocotools", "safetensors", "tqdm", "yaml")
EXIT_USER_ERROR = 2


def program_words() -> list[str]:
    """Return the interpreter arguments that start this command: a script, or -m duet NAME."""
    script = sys.argv[0]  # or "duet train", from duet/__main__.py
    return ["-m", *script.split()] if script.startswith("duet ") else [script]


def start_command() -> None:
    """Set up Ctrl-C to end the process with one line, and check Python and its packages."""
    end_at_interrupt()
    open_closed_streams()
    problem = python_problem()
    if problem:
        sys.stderr.write(f"error: {problem}\n")
        sys.exit(EXIT_USER_ERROR)


def open_closed_streams() -> None:
    """Replace closed standard streams, as by `>&-`, with the null device.

    Otherwise the next file opened would get the number of one, and output of libraries, crashes or
    child processes would be written to it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)  # takes the free number of `name`
            os.set_inheritable(nowhere, True)  # for child processes
            setattr(sys, name, os.fdopen(nowhere, mode, closefd=False))


def python_problem() -> str | None:
    """Return why this Python cannot run a command and how to fix it; None if it can."""
    if sys.version_info[:2] < OLDEST:
        reason = "is Python {}.{}, but 3.10 or newer is required".format(*sys.version_info)
    else:
        missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
        if not missing:
            return None
        reason = f"lacks the packages {', '.join(missing)}"
    ready = sorted(PROJECT.glob(f".venv/*/{STAMP}"), reverse=True)
    pythons = " or ".join(str(stamp.parent / "bin" / "python") for stamp in ready)
    if pythons:
        remedy = f"use {pythons} instead"
    elif (PROJECT / "Makefile").exists():
        remedy = f"run `make setup` in {PROJECT}, then use .venv/torch/bin/python instead"
    else:
        remedy = f"run `{sys.executable} -m pip install 'duet-detect[torch]'`"
    return f"{sys.executable} {reason}\n{remedy}"
