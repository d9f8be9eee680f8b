"""A loopback-only network for ranks that listen on all interfaces; Linux only.

OneFlow 0.9 always binds its servers to every address. In a separate network namespace its ranks
reach each other and nothing else reaches them.
"""

import contextlib
import os
import socket
import struct
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from duet.utils.system.children import call_c_library

with contextlib.suppress(ImportError):  # not on Windows
    import fcntl

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000  # linux/sched.h
SIOCSIFFLAGS, IFF_UP = 0x8914, 1  # linux/sockios.h, linux/if.h
INTERFACE_REQUEST = "16sh14x"  # struct ifreq: a name and its flags


@contextlib.contextmanager
def private_network() -> Iterator[Sequence[int]]:
    """Create a network; yield its namespaces as open files for `enter`.

    Root creates only a network namespace. Other users also need a user namespace, in which they
    keep their ID and groups, and so their access to files.

    SubprocessError if not allowed, as in most containers; OSError without `cat` to hold it.
    """
    # CLONE_NEWUSER needs a single-threaded process, which holds the network until opened here.
    maker = subprocess.Popen("cat", stdin=subprocess.PIPE, preexec_fn=_make)
    with contextlib.ExitStack() as stack:
        try:
            namespaces = []
            for kind in ("net",) if os.geteuid() == 0 else ("user", "net"):  # to enter, in order
                file = os.open(f"/proc/{maker.pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
                stack.callback(os.close, file)
                namespaces.append(file)
        finally:
            maker.communicate()
        yield namespaces


def enter(namespaces: Sequence[int]) -> None:
    """Move this single-threaded process into namespaces."""
    for namespace in namespaces:
        call_c_library("setns", namespace, 0)


def _make() -> None:
    """Move this process into a new network with an active loopback interface."""
    _leave_network()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        fcntl.ioctl(handle, SIOCSIFFLAGS, struct.pack(INTERFACE_REQUEST, b"lo", IFF_UP))


def _leave_network() -> None:
    user, group = os.geteuid(), os.getegid()
    if user == 0:  # in a user namespace root would lose access to other users' files
        return call_c_library("unshare", CLONE_NEWNET)
    call_c_library("unshare", CLONE_NEWUSER | CLONE_NEWNET)
    Path("/proc/self/setgroups").write_text("deny", encoding="utf-8")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="utf-8")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="utf-8")
