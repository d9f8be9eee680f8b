"""Jobs of two ranks listen on the loopback only; one that fails or hangs leaves no process."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from duet import backend
from tests.distributed.jobs import FLAGS, start_job

LISTENING = "0A"  # TCP_LISTEN in /proc/net/tcp
LOOPBACK = {"lo"}
POLL_SECONDS = 0.01


class Listener(NamedTuple):
    """A socket that takes connections."""

    address: str
    port: int
    interfaces: frozenset[str]  # of its network namespace

    @property
    def is_exposed(self) -> bool:
        """Whether another machine could reach it, if no firewall hinders."""
        if self.interfaces == LOOPBACK:
            return False
        address = ipaddress.ip_address(self.address)
        return not (getattr(address, "ipv4_mapped", None) or address).is_loopback


def listeners(process: int) -> set[Listener]:
    """Return the listening TCP sockets of a process; none if it has ended."""
    folder = Path("/proc", str(process))
    try:
        mine = set(_open_files(folder / "fd"))
        lines = (folder / "net" / "dev").read_text().splitlines()[2:]
        interfaces = frozenset(line.partition(":")[0].strip() for line in lines)
        tables = [(folder / "net" / name).read_text() for name in ("tcp", "tcp6")]
    except OSError:
        return set()
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    return {
        Listener(*_place(row[1]), interfaces)
        for row in rows
        if row[3] == LISTENING and f"socket:[{row[9]}]" in mine
    }


def _open_files(folder: Path) -> Iterator[str]:
    for file in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            yield os.readlink(file)


def _place(text: str) -> tuple[str, int]:
    """Return address and port of `0100007F:1F90`: words of four bytes in the host's order."""
    address, _, port = text.partition(":")
    raw = bytes.fromhex(address)
    words = b"".join(raw[i : i + 4][::-1] for i in range(0, len(raw), 4))
    return str(ipaddress.ip_address(words)), int(port, 16)


def watch(processes: Callable[[], Iterable[int]], is_over: Callable[[], bool]) -> set[Listener]:
    """Return all listening sockets that the processes had until it was over."""
    seen: set[Listener] = set()
    while not is_over():
        for process in processes():
            seen |= listeners(process)
        time.sleep(POLL_SECONDS)
    return seen


def test_a_job_of_two_ranks_listens_on_the_loopback_only(tmp_path):
    job = start_job(tmp_path, {})
    seen = watch(job.processes, lambda: job.process.poll() is not None)
    code, text = job.end()
    assert code == 0, text
    assert seen, "no socket was seen, not even the framework's"
    exposed = {listener for listener in seen if listener.is_exposed}
    # Where the system refuses OneFlow's ranks a network of their own, a line says so.
    assert bool(exposed) == ("the ranks will listen on all interfaces" in text), exposed
    assert not exposed or backend.use() == "oneflow"


def test_a_socket_on_all_interfaces_is_found():
    with socket.create_server(("", 0)) as server, socket.create_server(("127.0.0.1", 0)) as own:
        found = {listener.port: listener for listener in listeners(os.getpid())}
        assert found[server.getsockname()[1]].address == "0.0.0.0"
        assert not found[own.getsockname()[1]].is_exposed
    outside = frozenset({"lo", "eth0"})
    assert Listener("0.0.0.0", 1, outside).is_exposed and Listener("::", 1, outside).is_exposed
    assert not Listener("::ffff:127.0.0.1", 1, outside).is_exposed
    assert not Listener("::", 1, frozenset({"lo"})).is_exposed


JOBS_AT_ONCE = 3
IMPATIENT = (*FLAGS, "--timeout", "3")


class Case(NamedTuple):
    """A job, and what happens to it."""

    how: str = "nothing"
    rank: int = 0
    phase: str = ""
    flags: tuple[str, ...] = FLAGS

    def run(self, folder: Path) -> tuple[int, str]:
        plan = {"how": self.how, "rank": self.rank, "phase": self.phase, "seconds": 0.2}
        job = start_job(folder, plan, self.flags, raw=True)
        return job.end(folder / self.phase if self.phase else None)


CASES = {
    "defect": Case("raise", 1, "training"),
    "mistake of all": Case(flags=(*FLAGS, "--batch", "5")),
    "hang": Case("stand still", 1, "validation", IMPATIENT),
}


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[dict[str, Future[tuple[int, str]]]]:
    """All jobs, a few at a time: they wait more than they compute."""
    with ThreadPoolExecutor(JOBS_AT_ONCE) as pool:
        yield {
            name: pool.submit(case.run, tmp_path_factory.mktemp("job"))
            for name, case in CASES.items()
        }


def test_an_exception_of_one_rank_is_seen_and_ends_the_job(running):
    code, text = running["defect"].result()
    assert code == 1, text
    assert text.index("rank 1: Traceback") < text.index("RuntimeError: a defect")


def test_what_all_ranks_find_wrong_is_reported_once(running):
    code, text = running["mistake of all"].result()
    assert code == 1
    assert text.count("error: --batch-size 5 is the total over 2") == 1, text
    assert "rank 1: error" not in text


def test_a_rank_that_stands_still_is_named_and_shown(running):
    code, text = running["hang"].result()
    assert code == 1, text
    still = r"rank 1 \(.*no progress for [34] s in validation, step 3 \(--timeout 3\)"
    assert re.search(still, text), text
    assert "in go_wrong" in text  # the stack
