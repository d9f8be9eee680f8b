"""A network that has nothing but a loopback, for ranks that listen on all interfaces; Linux only.

OneFlow 0.9 binds its servers to every address and has no option against it. In a network namespace
of their own its ranks reach each other, and nothing else reaches them.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000  # linux/sched.h
SIOCSIFFLAGS, IFF_UP = 0x8914, 1  # linux/sockios.h, linux/if.h
INTERFACE_REQUEST = "16sh14x"  # struct ifreq: a name and its flags
IS_MADE = 0


@contextlib.contextmanager
def private_network() -> Iterator[Sequence[int]]:
    """Make a network; yield its namespaces, as open files that `enter` takes.

    Root makes only a network. Other users need a user namespace for it, in which they keep their
    number, their groups and so their access to files.

    Raises:
        OSError: the system refuses it, as most containers do.
    """
    here, there = socket.socketpair()
    maker = os.fork()  # CLONE_NEWUSER needs a process with one thread
    if maker == 0:
        here.close()
        _make(there)
    there.close()
    with contextlib.ExitStack() as stack:
        try:
            _require_made(here)
            namespaces = [_open(stack, maker, kind) for kind in _kinds()]
        finally:
            here.close()
            os.waitpid(maker, 0)
        yield namespaces


def enter(namespaces: Sequence[int]) -> None:
    """Move this process, which has one thread, into namespaces."""
    for namespace in namespaces:
        _call("setns", namespace, 0)


def _kinds() -> tuple[str, ...]:
    """Return the namespaces to enter, in their order."""
    return ("net",) if os.geteuid() == 0 else ("user", "net")


def _make(parent: socket.socket) -> NoReturn:
    """Enter a new network, say so or why not, and keep it until the parent has opened it."""
    result = errno.EINTR
    try:
        _leave_network()
        _raise_loopback()
        result = IS_MADE
    except OSError as error:
        result = error.errno or result
    finally:
        parent.send(bytes([result]))
        parent.recv(1)
        os._exit(0)


def _require_made(maker: socket.socket) -> None:
    answer = maker.recv(1) or bytes([errno.ECHILD])
    if answer[0] != IS_MADE:
        raise OSError(answer[0], os.strerror(answer[0]))


def _open(stack: contextlib.ExitStack, process: int, kind: str) -> int:
    file = os.open(f"/proc/{process}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
    stack.callback(os.close, file)
    return file


def _leave_network() -> None:
    user, group = os.geteuid(), os.getegid()
    if user == 0:  # a user namespace would take root's access to the files of others
        return _call("unshare", CLONE_NEWNET)
    _call("unshare", CLONE_NEWUSER | CLONE_NEWNET)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        fcntl.ioctl(handle, SIOCSIFFLAGS, struct.pack(INTERFACE_REQUEST, b"lo", IFF_UP))


def _call(name: str, *arguments: int) -> None:
    """Call a function of the C library that Python 3.10 lacks; OSError if it fails."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
