"""A loopback-only network for ranks that listen on all interfaces; Linux only.

OneFlow 0.9 always binds its servers to every address. In a separate network namespace its ranks
reach each other and nothing else reaches them.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections.abc import Sequence
from pathlib import Path

from duet.utils.processes.process_family import call_c_library

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000  # linux/sched.h
SIOCSIFFLAGS, IFF_UP = 0x8914, 1  # linux/sockios.h, linux/if.h
INTERFACE_REQUEST = "16sh14x"  # struct ifreq: a name and its flags


def make_network(launcher: socket.socket) -> None:
    """Move this single-threaded process into a new network with an active loopback interface.

    Root creates only a network namespace. Other users also need a user namespace, in which they
    keep their ID and groups, and so their access to files.

    Args:
        launcher: socket to which the namespaces are sent as open files, for `join_network`.

    Raises:
        OSError: not allowed, as in most containers.
    """
    _leave_network()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        fcntl.ioctl(handle, SIOCSIFFLAGS, struct.pack(INTERFACE_REQUEST, b"lo", IFF_UP))
    kinds = ("net",) if os.geteuid() == 0 else ("user", "net")
    namespaces = [os.open(f"/proc/self/ns/{kind}", os.O_RDONLY) for kind in kinds]
    socket.send_fds(launcher, [b"1"], namespaces)


def join_network(namespaces: Sequence[int]) -> None:
    """Move this single-threaded process into a network, by its namespaces as open files."""
    for namespace in namespaces:
        call_c_library("setns", namespace, 0)


def _leave_network() -> None:
    user, group = os.geteuid(), os.getegid()
    if user == 0:  # in a user namespace root would lose access to other users' files
        return call_c_library("unshare", CLONE_NEWNET)
    call_c_library("unshare", CLONE_NEWUSER | CLONE_NEWNET)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
