"""Ranks of one machine that train.py and val.py start use the loopback only, and no name server."""

from __future__ import annotations

import os
import socket
import sys

import backend
from tests.distributed.jobs import start_job
from tests.distributed.listening_sockets import Listener, listeners, watch
from tests.distributed.machines import require_two_machines
from tests.distributed.network_namespaces import two_machines

# The host's name must be one that only a name server could know.
RENAMED = (
    "import os, socket, sys; socket.sethostname('host-without-entry');"
    "os.execvp(sys.argv[1], sys.argv[1:])"
)


def test_a_job_of_two_ranks_listens_on_the_loopback_only(tmp_path):
    job = start_job(tmp_path, {})
    seen = watch(job.processes, lambda: job.process.poll() is not None)
    code, text = job.end()
    assert code == 0, text
    assert seen, "no socket was seen, not even the framework's"
    exposed = {listener for listener in seen if listener.is_exposed}
    # Where the system refuses OneFlow's ranks a network of their own, a line says so.
    assert bool(exposed) == ("the ranks listen on all interfaces" in text), exposed
    assert not exposed or backend.use() == "oneflow"


def test_a_job_of_two_ranks_needs_no_name_server_for_the_machines_own_name(tmp_path):
    require_two_machines()
    with two_machines() as (machine, _):  # where no name server answers
        there = machine.command("unshare", "--uts", sys.executable, "-c", RENAMED)
        code, text = start_job(tmp_path, {}, within=there).end()
    assert code == 0, text


def test_a_socket_on_all_interfaces_is_found():
    with socket.create_server(("", 0)) as server, socket.create_server(("127.0.0.1", 0)) as own:
        found = {listener.port: listener for listener in listeners(os.getpid())}
        assert found[server.getsockname()[1]].address == "0.0.0.0"
        assert not found[own.getsockname()[1]].is_exposed
    outside = frozenset({"lo", "eth0"})
    assert Listener("0.0.0.0", 1, outside).is_exposed and Listener("::", 1, outside).is_exposed
    assert not Listener("::ffff:127.0.0.1", 1, outside).is_exposed
    assert not Listener("::", 1, frozenset({"lo"})).is_exposed
