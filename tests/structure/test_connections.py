"""One file opens connections to the outside; others talk to processes of the same job."""

from __future__ import annotations

import ast

from tests.structure.source_files import PYTHON_FILES, parse
from utils.files.project import PROJECT

NETWORK = {
    "aiohttp", "asyncio", "ftplib", "http", "httpx", "imaplib", "nntplib", "poplib", "requests",
    "smtplib", "socket", "socketserver", "ssl", "telnetlib", "urllib.error", "urllib.request",
    "urllib3", "webbrowser", "xmlrpc",
}  # fmt: skip
# Names of functions of packages that fetch by themselves.
FETCHERS = {"create_connection", "download_url_to_file", "load_state_dict_from_url", "urlopen",
            "urlretrieve", "snapshot_download", "hf_hub_download"}  # fmt: skip

# What knows a network, and why that is right.
ALLOWED = {
    ("utils/data/fetch/download.py", "http"): "the one place",
    ("utils/data/fetch/download.py", "urllib.error"): "the one place",
    ("utils/data/fetch/download.py", "urllib.request"): "the one place",
    ("utils/data/fetch/download.py", "urlopen"): "the one place",
    (
        "utils/media/feeds.py",
        "ssl",
    ): "certificates for FFmpeg, which opens a stream",
    ("utils/state/lock.py", "socket"): "the name of this machine",
    ("utils/serve/server.py", "socket"): "where a server listens",
    ("utils/serve/server.py", "asyncio"): "requests of a server",
    ("utils/serve/app.py", "asyncio"): "requests of a server",
    ("utils/serve/app.py", "http"): "the names of statuses",
    ("utils/serve/frames.py", "asyncio"): "the server and its model process, over pipes",
    ("utils/serve/worker.py", "asyncio"): "the same",
    ("utils/processes/local_ranks.py", "socket"): "a free port of the loopback",
    ("utils/processes/private_network.py", "socket"): "a loopback for the ranks alone",
    ("backend/oneflow/__init__.py", "socket"): "the store of a job, before it is joined",
    ("backend/oneflow/__init__.py", "create_connection"): "the store of a job",
}


def network_of(tree: ast.Module) -> set[str]:
    """The modules and functions of a file that reach a network."""
    found: set[str] = set()
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            found |= {called} & FETCHERS
        for name in names:
            found |= {known for known in NETWORK if f"{name}.".startswith(f"{known}.")}
    return found


def test_connections_are_opened_in_one_place() -> None:
    found = {
        (path.relative_to(PROJECT).as_posix(), name)
        for path in PYTHON_FILES
        if path.relative_to(PROJECT).parts[0] not in ("tests", "benchmarks")
        for name in network_of(parse(path))
    }
    assert found == set(ALLOWED)


def test_what_reaches_a_network_is_recognised() -> None:
    reaching = "import http.client; from urllib import request; torch.hub.download_url_to_file(a)"
    assert network_of(ast.parse(reaching)) == {"http", "urllib.request", "download_url_to_file"}
    assert not network_of(ast.parse("from urllib.parse import unquote; import httplike"))
