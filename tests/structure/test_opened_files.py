"""Files are opened for reading in one place, `utils/files/regular.py`, which no file can block."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.structure.source_files import PYTHON_FILES, parse
from utils.files.project import PROJECT

READERS = {"read_text", "read_bytes", "fromfile", "loadtxt", "genfromtxt", "memmap", "imread"}
OPENERS = {"open", "ZipFile", "safe_open", "load_file"}
OURS = {"read_text", "read_bytes"}  # as plain names they are those of utils/files/regular.py

# What opens files otherwise, and why that is right.
ALLOWED = {
    ("utils/files/regular.py", "open"): "the one place",
    ("utils/state/checkpoint.py", "safe_open"): "of a file that is pinned",
    ("utils/state/checkpoint.py", "open"): "a folder, to sync it",
    ("utils/weights/members.py", "ZipFile"): "of a file that is open",
    ("utils/weights/members.py", "open"): "a member of a zip that is open",
    ("utils/data/loading/nameless_file.py", "open"): "of another rank, compared with its address",
    ("utils/data/loading/memory.py", "read_text"): "/proc and /sys",
    ("backend/cores.py", "read_text"): "/proc and /sys",
    ("backend/host_peak.py", "read_text"): "/proc",
    ("utils/comparison/load.py", "read_text"): "/proc",
    ("utils/comparison/runner.py", "read_text"): "/proc, and a log that it has written",
    ("utils/data/fetch/unpacking.py", "ZipFile"): "of a file that is open",
    ("utils/data/fetch/unpacking.py", "open"): "of a file that is open",
    ("utils/media/video.py", "open"): "of a file that is open",
    ("utils/media/feeds.py", "open"): "a URL",
    ("utils/processes/cores.py", "read_text"): "/sys",
    ("utils/processes/process_family.py", "read_text"): "/proc",
    ("utils/processes/private_network.py", "open"): "/proc",
    ("utils/processes/start.py", "open"): "the null device",
    ("utils/processes/suspend.py", "read_text"): "what its own launcher has written",
    ("utils/processes/exit_status.py", "open"): "to write, of a file that is open",
    ("utils/files/atomic.py", "open"): "to write, and what it has written",
    ("utils/export/metadata.py", "ZipFile"): "of bytes",
    ("utils/export/metadata.py", "open"): "a member of a zip in bytes",
    ("utils/export/opening.py", "open"): "a format's own, of which each opens as it must",
    ("utils/export/opening.py", "read_text"): "/proc",
    ("utils/state/lock.py", "open"): "to lock",
    ("utils/setup/lock.py", "read_text"): "the project's own files",
    ("docs/site/hooks.py", "read_text"): "the project's own files",
    ("utils/setup/environments.py", "read_text"): "the project's own files",
}


def opened_for_reading(tree: ast.Module) -> Iterator[str]:
    """The names of the calls in a file that read a file by its path."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        is_method = isinstance(node.func, ast.Attribute)
        name = getattr(node.func, "attr" if is_method else "id", "")
        if (
            name in READERS
            and (is_method or name not in OURS)
            or name in OPENERS
            and not writes(node)
        ):
            yield name


def writes(call: ast.Call) -> bool:
    """Whether a call has a mode that makes, or adds to, a file."""
    modes = [*call.args, *(keyword.value for keyword in call.keywords)]
    return any(
        isinstance(mode, ast.Constant)
        and isinstance(mode.value, str)
        and mode.value in ("w", "wb", "x", "xb", "a", "ab", "rb+")
        for mode in modes
    )


def test_files_are_opened_for_reading_in_one_place() -> None:
    found = {
        (str(path.relative_to(PROJECT)), name)
        for path in PYTHON_FILES
        if path.relative_to(PROJECT).parts[0] not in ("tests", "benchmarks")
        for name in opened_for_reading(parse(path))
    }
    assert found == set(ALLOWED)


def test_the_calls_that_open_are_recognised() -> None:
    reading = "open(a); open(a, 'rb'); p.open(); p.read_text(); np.fromfile(a); os.open(a, flags)"
    assert len(list(opened_for_reading(ast.parse(reading)))) == 6
    other = "open(a, 'wb'); p.open('w'); read_text(p); read_bytes(p); open_regular(p)"
    assert not list(opened_for_reading(ast.parse(other)))
