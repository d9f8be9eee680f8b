"""A network of their own for ranks: what is in it, who may make one, and what is said without."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest

from duet.backend.processes import LAUNCHERS
from duet.utils.processes import launch, private_network
from duet.utils.processes.private_network import join_network, make_network

PR_SET_DUMPABLE = 4  # linux/prctl.h
NOBODY = 65534


def namespaces_of_a_maker() -> list[int]:
    """Return those of a process that has made a network, and has ended."""
    own, maker = socket.socketpair()
    with own, maker:
        subprocess.run("true", preexec_fn=lambda: make_network(maker), check=True)
        return socket.recv_fds(own, 1, 2)[1]


def reason_against() -> str:
    """Return why this system refuses a private network; empty if it allows one."""
    try:
        namespaces_of_a_maker()
        return ""
    except subprocess.SubprocessError as error:
        return str(error)


needs_namespaces = pytest.mark.skipif(
    bool(reason_against()) and os.environ.get("REQUIRE_NETNS") != "1",
    reason=f"network namespaces: {reason_against()}",
)


def as_nobody() -> None:
    """Give up root, in this process; it may still read its own files in /proc."""
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1)


def in_child(work: Callable[[], bool]) -> bool:
    """Return what a function returns in a forked process; False if it raises."""
    child = os.fork()
    if child == 0:
        done = False
        try:
            done = work()
        finally:
            os._exit(0 if done else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def is_alone_with_a_loopback() -> bool:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.connect(server.getsockname())
    return [name for _, name in socket.if_nameindex()] == ["lo"]


def enters_and_is_alone() -> bool:
    before = os.getuid(), os.getgid()
    join_network(namespaces_of_a_maker())
    return is_alone_with_a_loopback() and (os.getuid(), os.getgid()) == before


@needs_namespaces
def test_a_private_network_has_a_loopback_only_and_leaves_its_maker_s_parent_outside():
    before = socket.if_nameindex()
    assert in_child(enters_and_is_alone)
    assert socket.if_nameindex() == before


@needs_namespaces
@pytest.mark.skipif(os.geteuid() != 0, reason="every other test runs without root already")
def test_who_is_not_root_stays_the_same_user():
    assert in_child(lambda: as_nobody() is None and enters_and_is_alone())


PARENT = """
import os, signal, socket, subprocess, sys
from duet.utils.processes.private_network import join_network, make_network
from duet.utils.processes.process_family import ask_for_signal_when_parent_ends
def prepare():
    join_network(namespaces)
    ask_for_signal_when_parent_ends(signal.SIGKILL)
own, maker = socket.socketpair()
subprocess.run("true", preexec_fn=lambda: make_network(maker), check=True)
namespaces = socket.recv_fds(own, 1, 2)[1]
child = subprocess.Popen(["sleep", "100"], preexec_fn=prepare)
print("started", flush=True)
child.wait()
"""


@needs_namespaces
def test_a_process_in_it_still_ends_with_its_parent():
    """Entering a user namespace takes the kernel's request back, so it comes afterwards."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None and parent.stdout.readline() == "started\n"
    parent.kill()
    parent.communicate(timeout=20)  # returns when nobody can write there any more


def refuse() -> None:
    raise PermissionError


@pytest.mark.parametrize("backend", LAUNCHERS)
def test_ranks_that_listen_everywhere_without_it_report_it(backend, monkeypatch, caplog):
    monkeypatch.setattr(private_network, "_leave_network", refuse)
    command = [sys.executable, "-c", "pass"]
    assert launch.run_ranks(command, backend, {"WORLD_SIZE": "1"}) == 0
    line = "the ranks will listen on all interfaces: oneflow always does, and the system"
    assert (line in caplog.text) is LAUNCHERS[backend].needs_network


def test_a_first_rank_that_is_killed_while_it_makes_the_network_ends_the_job(monkeypatch, capfd):
    """As by a sandbox that kills who asks for a network, in place of refusing."""
    monkeypatch.setattr(
        private_network, "_leave_network", lambda: os.kill(os.getpid(), signal.SIGKILL)
    )
    assert launch.run_ranks(["sleep", "100"], "oneflow", {"WORLD_SIZE": "2"}) == launch.EXIT_FAILED
    assert "rank 0 was killed by SIGKILL" in capfd.readouterr().err
