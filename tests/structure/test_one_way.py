"""What comes from outside has one way in, what goes to a person or to a network one way out."""

import ast
from collections.abc import Callable, Iterable, Iterator

import pytest

from tests.structure.test_imports import PYTHON_FILES, imports_of, name_of, parse

# They run before anything is installed, or print nothing but names of ours.
ELSEWHERE = ("tests/", "benchmarks/", "utils/setup/")
# Packages and functions, and the files that alone use them.
ONE_PLACE = {
    ("yaml",): ("utils/files/yaml_files.py",),
    ("xml", "defusedxml", "lxml", "pyexpat"): ("utils/files/xml_files.py",),
    ("json.loads", "json.load"): ("utils/files/json_files.py",),
    ("json.JSONDecoder",): (),
    # Elsewhere `print(x)` is `say(x)` of utils/text.py; the other one ends a command.
    ("print", "pprint", "sys.stdout.write"): ("utils/processes/command.py", "utils/text.py"),
}


def product_files() -> Iterator[tuple[str, ast.Module]]:
    for path in PYTHON_FILES:
        if not name_of(path).startswith(ELSEWHERE):
            yield name_of(path), parse(path)


@pytest.mark.parametrize("names", ONE_PLACE, ids=lambda names: names[0])
def test_reading_or_printing_calls_live_in_one_file(names):
    found = set()
    for name, tree in product_files():
        calls = {ast.unparse(x.func) for x in ast.walk(tree) if isinstance(x, ast.Call)}
        if {*names} & (calls | {used.partition(".")[0] for used in imports_of(tree)}):
            found.add(name)
    assert found == set(ONE_PLACE[names])


# Files are opened for reading in one place, utils/files/regular.py, which no file can block.

READERS = {"read_text", "read_bytes", "fromfile", "loadtxt", "genfromtxt", "memmap", "imread"}
OPENERS = {"open", "ZipFile", "safe_open", "load_file"}
OURS = {"read_text", "read_bytes"}  # as plain names they are those of utils/files/regular.py

# What opens files otherwise, and why that is right.
OPENED_ELSEWHERE = {
    ("utils/files/regular.py", "open"): "the one place",
    ("utils/files/array_cache.py", "safe_open"): "of a file that is pinned",
    ("utils/weights/checkpoint.py", "safe_open"): "of a file that is pinned",
    ("utils/weights/archives.py", "ZipFile"): "of a file that is open",
    ("utils/weights/archives.py", "open"): "a member of a zip that is open",
    ("utils/system/files.py", "open"): "a folder, to sync it, and of another rank",
    ("utils/system/machine.py", "read_text"): "/proc",
    ("utils/system/machine.py", "read_bytes"): "/proc",
    ("utils/memory.py", "read_text"): "/sys",
    ("utils/processes/cores.py", "read_text"): "/sys",
    ("backend/cores.py", "read_text"): "/sys",
    ("backend/system.py", "read_text"): "/proc",
    ("utils/comparison/runs.py", "read_text"): "a log that it has written",
    ("utils/data/fetch/download.py", "ZipFile"): "of a file that is open",
    ("utils/data/fetch/download.py", "open"): "of a file that is open",
    ("utils/detect/media/video.py", "open"): "of a file that is open",
    ("utils/detect/media/live.py", "open"): "a URL",
    ("utils/system/private_network.py", "open"): "/proc",
    ("utils/processes/start.py", "open"): "the null device",
    ("utils/processes/suspend.py", "read_text"): "what its own launcher has written",
    ("utils/processes/exit_status.py", "open"): "to write, of a file that is open",
    ("utils/files/atomic.py", "open"): "to write, and what it has written",
    ("utils/export/metadata.py", "ZipFile"): "of bytes",
    ("utils/export/metadata.py", "open"): "a member of a zip in bytes",
    ("utils/export/opening.py", "open"): "a format's own, of which each opens as it must",
    ("utils/files/run_folder.py", "open"): "to lock",
    ("docs/site/hooks.py", "read_text"): "the project's own files",
    ("docs/site/notebooks.py", "read_text"): "the project's own files",
    ("utils/setup/environments.py", "read_text"): "the project's own files",
}


def found_in_product(find: Callable[[ast.Module], Iterable[str]]) -> set[tuple[str, str]]:
    """What a function finds in the files of the product, by their names."""
    return {
        (name_of(path), name)
        for path in PYTHON_FILES
        if not name_of(path).startswith(("tests/", "benchmarks/", "docs/figures/"))
        for name in find(parse(path))
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
    assert found_in_product(opened_for_reading) == set(OPENED_ELSEWHERE)


# One file opens connections to the outside; others talk to processes of the same job.

NETWORK = {
    "aiohttp", "asyncio", "ftplib", "http", "httpx", "imaplib", "nntplib", "poplib", "requests",
    "smtplib", "socket", "socketserver", "ssl", "telnetlib", "urllib.error", "urllib.request",
    "urllib3", "webbrowser", "xmlrpc",
}  # fmt: skip
# Names of functions of packages that fetch by themselves.
FETCHERS = {"create_connection", "download_url_to_file", "load_state_dict_from_url", "urlopen",
            "urlretrieve", "snapshot_download", "hf_hub_download"}  # fmt: skip

# What knows a network, and why that is right.
CONNECTED_ELSEWHERE = {
    ("utils/data/fetch/download.py", "http"): "the one place",
    ("utils/data/fetch/download.py", "urllib.error"): "the one place",
    ("utils/data/fetch/download.py", "urllib.request"): "the one place",
    ("utils/data/fetch/download.py", "urlopen"): "the one place",
    ("utils/detect/media/live.py", "ssl"): "certificates for FFmpeg, which opens a stream",
    ("utils/files/run_folder.py", "socket"): "the name of this machine",
    ("utils/serve/server.py", "socket"): "where a server listens",
    ("utils/serve/server.py", "asyncio"): "requests of a server",
    ("utils/serve/app.py", "asyncio"): "requests of a server",
    ("utils/serve/app.py", "http"): "the names of statuses",
    ("utils/serve/frames.py", "asyncio"): "the server and its model process, over pipes",
    ("utils/serve/worker.py", "asyncio"): "the same",
    ("utils/processes/launch.py", "socket"): "a free port of the loopback",
    ("utils/system/private_network.py", "socket"): "a loopback for the ranks alone",
    ("backend/oneflow/__init__.py", "socket"): "the store of a job, before it is joined",
    ("backend/oneflow/__init__.py", "create_connection"): "the store of a job",
}


def network_of(tree: ast.Module) -> set[str]:
    """The modules and functions of a file that reach a network."""
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    found = {getattr(called, "attr", getattr(called, "id", "")) for called in calls} & FETCHERS
    for name in imports_of(tree):
        found |= {known for known in NETWORK if f"{name}.".startswith(f"{known}.")}
    return found


def test_connections_are_opened_in_one_file() -> None:
    assert found_in_product(network_of) == set(CONNECTED_ELSEWHERE)


def test_no_message_refers_to_a_page_missing_from_the_wheel():
    """Docstrings and comments are for readers of the checkout; other text is printed."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for name, tree in product_files():
        docstrings = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert "docs/en" not in node.value or id(node) in docstrings, (
                    f"{name}: {node.value}"
                )
