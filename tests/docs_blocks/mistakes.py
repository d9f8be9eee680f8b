"""What commands answer, for blocks that show it: they run here, without a process of their own."""

import contextlib
import importlib
import io
import shlex
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest import mock

from duet.backend import BackendError
from duet.utils.cli.train_config import read_train_flags
from duet.utils.cli.val_config import parse_val_flags
from duet.utils.detect.config import parse_detect_flags
from duet.utils.errors import UserError
from duet.utils.export.config import parse_export_flags
from duet.utils.project import PROJECT
from tests.docs_blocks.blocks import BlockError

WIDTH = 80  # of a line on a page
PARSERS: dict[str, Callable[[Sequence[str]], object]] = {
    "train.py": read_train_flags,
    "val.py": parse_val_flags,
    "detect.py": parse_detect_flags,
    "export.py": parse_export_flags,
}


def show(name: str, command: str) -> None:
    """Print a command and its answer, in the marks by which a page includes them as NAME.out:name.

    Args:
        name: of the part; letters, digits and hyphens.
        command: a script and its flags, as `train.py --epochs 3`.
    """
    print(f"--8<-- [start:{name}]")
    print(f"$ duet {command.replace('.py', '', 1)}")
    print(answer(command))
    print(f"--8<-- [end:{name}]")


def flags_taken(command: str) -> str:
    """Return the lines with which a script refuses flags, or "accepted"."""
    script, *flags = shlex.split(command)
    lines = _printed(lambda: PARSERS[script](flags)).splitlines()[:-1]  # the last names --help
    return _fitting("\n".join(lines).removeprefix("error: ")) or "accepted"


def answer(command: str) -> str:
    """Return the message with which a script refuses a command, in lines that fit on a page."""
    script, *flags = shlex.split(command)
    main = importlib.import_module(script.removesuffix(".py")).main
    with mock.patch.object(sys, "argv", [f"duet {script.removesuffix('.py')}", *flags]):
        reported_text = _printed(main)
    if not reported_text:
        raise BlockError(f"{command}: is not refused, so that there is no answer to show")
    for place in (Path.cwd(), PROJECT):  # before lines are cut, which must not depend on it
        reported_text = reported_text.replace(f"{place}/", "")
    return _fitting(reported_text)


def _printed(work: Callable[[], object]) -> str:
    """Return what a command prints of a mistake; "" where there is none."""
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed):
        try:
            work()
        except (UserError, BackendError) as error:
            print(f"error: {error}", file=printed)
        except SystemExit:  # the parser has said why
            pass
    return printed.getvalue()


def _fitting(text: str) -> str:
    """Return the text in lines that fit on a page."""
    return "\n".join(
        textwrap.fill(line, WIDTH, break_on_hyphens=False, break_long_words=False)
        for line in text.splitlines()
    )
