"""Ranks of one machine that train.py and val.py start listen on no interface but the loopback."""

from __future__ import annotations

import os
import socket

import backend
from tests.distributed.jobs import Job
from tests.distributed.listening_sockets import Listener, listeners, watch


def test_a_job_of_two_ranks_listens_on_the_loopback_only(tmp_path):
    job = Job(tmp_path, raw=False, plan={})
    seen = watch(job.processes, lambda: job.process.poll() is not None)
    code, text = job.end()
    assert code == 0, text
    assert seen, "no socket was seen, not even the watchdog's"
    exposed = {listener for listener in seen if listener.is_exposed}
    # Where the system refuses OneFlow's ranks a network of their own, a line says so.
    assert bool(exposed) == ("the ranks listen on all interfaces" in text), exposed
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
