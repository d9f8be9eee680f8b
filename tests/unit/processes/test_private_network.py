"""A network of their own for ranks: what is in it, who may make one, and what is said without."""

import ctypes
import os
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest

from duet.backend.processes import LAUNCHERS
from duet.utils.processes import launch
from duet.utils.system import private_network

PR_SET_DUMPABLE = 4  # linux/prctl.h
NOBODY = 65534


def refusal_reason() -> str:
    """Return why this system refuses a private network; empty if it allows one."""
    try:
        with private_network.private_network():
            return ""
    except subprocess.SubprocessError as error:
        return str(error)


needs_namespaces = pytest.mark.skipif(
    bool(refusal_reason()) and os.environ.get("REQUIRE_NETNS") != "1",
    reason=f"network namespaces: {refusal_reason()}",
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
    with private_network.private_network() as namespaces:
        private_network.enter(namespaces)
        return is_alone_with_a_loopback() and (os.getuid(), os.getgid()) == before


@needs_namespaces
def test_private_network_has_only_loopback_for_the_child():
    before, files = socket.if_nameindex(), os.listdir("/proc/self/fd")
    assert in_child(enters_and_is_alone)
    with private_network.private_network():
        assert socket.if_nameindex() == before
    assert os.listdir("/proc/self/fd") == files


@needs_namespaces
@pytest.mark.skipif(os.geteuid() != 0, reason="every other test runs without root already")
def test_private_network_keeps_an_unprivileged_user():
    assert in_child(lambda: as_nobody() is None and enters_and_is_alone())


PARENT = """
import os, signal, subprocess, sys
from duet.utils.system.private_network import enter, private_network
from duet.utils.system.children import ask_for_signal_when_parent_ends
def prepare():
    enter(namespaces)
    ask_for_signal_when_parent_ends(signal.SIGKILL)
with private_network() as namespaces:
    child = subprocess.Popen(["sleep", "100"], preexec_fn=prepare)
print("started", flush=True)
child.wait()
"""


@needs_namespaces
def test_process_in_private_network_ends_with_its_parent():
    """Entering a user namespace takes the kernel's request back, so it comes afterwards."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None and parent.stdout.readline() == "started\n"
    parent.kill()
    parent.communicate(timeout=20)  # returns when nobody can write there any more


def refuse() -> None:
    raise PermissionError


@pytest.mark.parametrize("backend", LAUNCHERS)
@pytest.mark.parametrize("name", ["_leave_network", "PATH"], ids=["refused", "no program"])
def test_ranks_without_private_network_report_listening(backend, name, monkeypatch, caplog):
    if name == "PATH":  # no program can hold the network until it is opened
        monkeypatch.setattr(private_network, "_make", lambda: None)
        monkeypatch.setenv("PATH", "/nowhere")
    else:
        monkeypatch.setattr(private_network, name, refuse)
    command = [sys.executable, "-c", "pass"]
    assert launch.run_ranks(command, backend, {"WORLD_SIZE": "1"}) == 0
    line = "the ranks will listen on all interfaces: oneflow always does, and the system"
    assert (line in caplog.text) is LAUNCHERS[backend].needs_network
