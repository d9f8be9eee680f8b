"""Two machines on one: packets pass, are lost when the cable is cut, and nothing is left behind."""

from __future__ import annotations

import socket
import subprocess
import sys
import time

import pytest

from tests.distributed import network_namespaces
from tests.distributed.machines import require_two_machines
from tests.distributed.network_namespaces import Machine, two_machines

CONNECTION = """
import socket, sys
address, seconds = sys.argv[1], float(sys.argv[2])
socket.create_connection((address, 29500), timeout=seconds).close()
"""
LISTENER = """
import socket, time
server = socket.create_server(("", 29500))
print("listening", flush=True)
while True:
    server.accept()[0].close()
"""


def namespaces() -> list[str]:
    command = ["ip", "netns", "list"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def connects(source: Machine, target: Machine) -> bool:
    command = source.command(sys.executable, "-c", CONNECTION, target.address, 0.5)
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


def listen(machine: Machine) -> subprocess.Popen[str]:
    command = machine.command(sys.executable, "-c", LISTENER)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "listening\n"
    return process


@pytest.fixture(autouse=True)
def _needs_two_machines():
    require_two_machines()


def test_a_cable_joins_two_machines_until_it_is_cut_and_again_once_it_is_mended():
    with two_machines() as (one, two):
        listener = listen(two)
        assert connects(one, two)
        one.set_link("down")
        assert not connects(one, two)
        one.set_link("up")
        assert connects(one, two)
        assert listener.poll() is None
    listener.wait(10)


def test_a_program_on_a_machine_is_not_reached_from_outside_of_it():
    with two_machines() as (one, _):
        listener = listen(one)
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", 29500), timeout=0.5)
    listener.wait(10)


def test_two_pairs_of_machines_at_once_have_nothing_in_common():
    with two_machines() as (one, _), two_machines() as (_, other):
        listener = listen(other)
        assert not connects(one, other)
    listener.wait(10)


def test_a_test_that_fails_leaves_no_machine_and_no_process():
    before = namespaces()
    with pytest.raises(ZeroDivisionError), two_machines() as (one, two):
        assert {one.namespace, two.namespace} <= set(namespaces())
        sleeper = subprocess.Popen(two.command("sleep", 60))
        while sleeper.pid not in two.processes():
            time.sleep(0.01)
        raise ZeroDivisionError
    assert sleeper.wait(10) == -9
    assert namespaces() == before


def test_a_machine_that_cannot_be_made_leaves_no_half_of_the_pair(monkeypatch):
    before, real = namespaces(), network_namespaces._ip

    def refuse_links(*words):
        if words[0] == "link":
            raise OSError("no veth")
        return real(*words)

    monkeypatch.setattr(network_namespaces, "_ip", refuse_links)
    assert "no veth" in network_namespaces.reason_against()
    assert namespaces() == before
