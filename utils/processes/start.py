"""The first lines of a command: what must run before its imports, which may be slow or missing.

Standard library only, and no syntax newer than Python 3.8.
"""

from __future__ import annotations

import importlib.util
import os
import sys

from duet.utils.processes.interrupt import end_at_interrupt
from duet.utils.project import PROJECT

OLDEST = (3, 10)
PACKAGES = ("cv2", "matplotlib", "numpy", "PIL", "safetensors", "tqdm", "yaml")
EXIT_USER_ERROR = 2


def program_words() -> list[str]:
    """Return the words after the interpreter that start this command: a script, or -m duet NAME."""
    script = sys.argv[0]  # or "duet train", from duet/__main__.py
    return ["-m", *script.split()] if script.startswith("duet ") else [script]


def start_command() -> None:
    """End this process with one line at Ctrl-C, and if its Python cannot run a command."""
    end_at_interrupt()
    open_closed_streams()
    problem = python_problem()
    if problem:
        sys.stderr.write(f"error: {problem}\n")
        sys.exit(EXIT_USER_ERROR)


def open_closed_streams() -> None:
    """Have the null device in place of standard streams that are closed, as by `>&-`.

    Otherwise the next file that is opened gets the number of one, and what a library, a crash or a
    process of ours prints is written into it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)  # the smallest free number, so that of `name`
            os.set_inheritable(nowhere, True)  # by processes that are started here
            setattr(sys, name, os.fdopen(nowhere, mode, closefd=False))


def python_problem() -> str | None:
    """Return why this Python cannot run a command, with the next step; None if it can."""
    if sys.version_info[:2] < OLDEST:
        reason = "is Python {}.{}; 3.10 or newer is needed".format(*sys.version_info)
    else:
        missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
        if not missing:
            return None
        reason = f"has no {', '.join(missing)}"
    # An environment has its stamp once it is complete: utils/setup/environments.py.
    ready = sorted(PROJECT.glob(".venv/*/duet-environment.json"), reverse=True)
    pythons = " or ".join(str(stamp.parent / "bin" / "python") for stamp in ready)
    remedy = (
        f"use {pythons} in its place"
        if pythons
        else f"run `make setup` in {PROJECT}, then use .venv/torch/bin/python in its place"
    )
    return f"{sys.executable} {reason}\n{remedy}"
